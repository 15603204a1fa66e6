/* Calls that move bytes. See sequences.h. */
#include "sequences.h"

static long limited(long amount) { return amount < 0 ? 0 : amount > AMOUNT_MAX ? AMOUNT_MAX : amount; }

/* Splits `bytes` into `count` parts, some of them empty with a null address. */
static int split(struct iovec *parts, long count, long amount) {
    long at = 0;
    int n = 0;
    if (count > 16) count = 16;
    for (; n < count; n++) {
        long len = n == count - 1 ? amount - at : amount / count;
        if (count > 2 && n == 1) len = 0;
        parts[n] = (struct iovec){len ? bytes + at : NULL, (size_t)len};
        at += len;
    }
    return n;
}

static int is_tcp(long slot) {
    int domain = 0;
    socklen_t len = sizeof domain;
    return getsockopt(fd_of(slot), SOL_SOCKET, SO_DOMAIN, &domain, &len) == 0 && domain != AF_UNIX;
}

static void received(long slot, long n, long flags) {
    int error = errno;
    int discards = flags & MSG_TRUNC && is_tcp(slot);
    check(slot, n, (flags & MSG_PEEK) != 0, discards || flags & MSG_OOB);
    errno = error;
}

/* ---- receiving ---- */

static void do_read(const long *a, int count) {
    long amount = limited(a[1]);
    (void)count;
    blank(amount);
    guard();
    long n = read(fd_of(a[0]), bytes, (size_t)amount);
    receiving(a[0], n);
    unguard();
    received(a[0], n, 0);
}

static void do_readv(const long *a, int count) {
    struct iovec parts[16];
    long amount = limited(a[2]);
    (void)count;
    blank(amount);
    int n = split(parts, a[1], amount);
    guard();
    long got = receiving(a[0], readv(fd_of(a[0]), parts, n));
    unguard();
    received(a[0], got, 0);
}

static void do_preadv2(const long *a, int count) {
    struct iovec parts[16];
    long amount = limited(a[2]);
    (void)count;
    blank(amount);
    int n = split(parts, a[1], amount);
    guard();
    long got = receiving(a[0], preadv2(fd_of(a[0]), parts, n, -1, (int)a[3]));
    unguard();
    received(a[0], got, 0);
}

static void do_recv(const long *a, int count) {
    long amount = limited(a[1]);
    (void)count;
    blank(amount);
    guard();
    long n = receiving(a[0], recv(fd_of(a[0]), bytes, (size_t)amount, (int)a[2]));
    unguard();
    received(a[0], n, a[2]);
}

static void do_recvfrom(const long *a, int count) {
    struct sockaddr_storage name;
    socklen_t len = sizeof name;
    long amount = limited(a[1]);
    (void)count;
    memset(&name, 0x55, sizeof name);
    blank(amount);
    guard();
    long n = receiving(a[0], recvfrom(fd_of(a[0]), bytes, (size_t)amount, (int)a[2], (void *)&name, &len));
    unguard();
    if (n >= 0) say(" len %d", (int)len);
    received(a[0], n, a[2]);
}

/* Tells what came beside bytes; descriptors go into slots from `to` on, or are closed. */
static void tell_control(struct msghdr *message, long to) {
    for (struct cmsghdr *one = CMSG_FIRSTHDR(message); one; one = CMSG_NXTHDR(message, one)) {
        say(" [%d:%d %d", one->cmsg_level, one->cmsg_type, (int)one->cmsg_len);
        int fds = one->cmsg_level == SOL_SOCKET && one->cmsg_type == SCM_RIGHTS ? (int)((one->cmsg_len - CMSG_LEN(0)) / sizeof(int)) : 0;
        for (int i = 0; i < fds; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(one) + i * (int)sizeof fd, sizeof fd);
            say(" fd %d%s", fd, fcntl(fd, F_GETFD) & FD_CLOEXEC ? "c" : "");
            if (to < 0) { close(fd); continue; }
            put_slot(to, fd, -1);
            if (shared->received < shared->passed) {
                *slot_of(to) = shared->passing[shared->received++ % 16];
                slot_of(to)->fd = fd;
            }
            to = -1;
        }
        say("]");
    }
}

static void do_recvmsg(const long *a, int count) {
    static _Alignas(struct cmsghdr) char control[256];
    struct sockaddr_storage name;
    struct iovec parts[16];
    long amount = limited(a[1]);
    struct msghdr message = {.msg_iov = parts, .msg_name = &name, .msg_namelen = sizeof name};
    blank(amount);
    message.msg_iovlen = (size_t)split(parts, a[3], amount);
    message.msg_control = control, message.msg_controllen = (size_t)(a[4] < 256 ? a[4] : 256);
    guard();
    long n = receiving(a[0], recvmsg(fd_of(a[0]), &message, (int)a[2]));
    unguard();
    received(a[0], n, a[2]);
    if (n < 0) return;
    say(" flags %x name %d control %d", (unsigned)message.msg_flags, (int)message.msg_namelen, (int)message.msg_controllen);
    tell_control(&message, count > 5 ? a[5] : -1);
}

static void do_recvmmsg(const long *a, int count) {
    struct mmsghdr messages[4] = {0};
    struct iovec parts[4];
    struct timespec span = {0, 10000000};
    long each = limited(a[1]) / 4, vlen = a[3] < 4 ? a[3] : 4;
    (void)count;
    blank(each * 4);
    for (int i = 0; i < 4; i++) parts[i] = (struct iovec){bytes + i * each, (size_t)each}, messages[i].msg_hdr.msg_iov = &parts[i], messages[i].msg_hdr.msg_iovlen = 1;
    guard();
    long n = receiving(a[0], recvmmsg(fd_of(a[0]), messages, (unsigned)vlen, (int)a[2], &span));
    unguard();
    long sum = 0;
    for (int i = 0; i < n; i++) {
        say(" "), receiving(a[0], messages[i].msg_len), say("/%x", (unsigned)messages[i].msg_hdr.msg_flags);
        /* Bytes of each message follow those of the one before. */
        memmove(bytes + sum, bytes + i * each, messages[i].msg_len);
        if (!(a[2] & MSG_PEEK)) sum += messages[i].msg_len;
    }
    memset(bytes + sum, 0xee, 16);
    received(a[0], sum, a[2]);
}

/* ---- sending ---- */

static void done_sending(long slot, long n) {
    unguard();
    sent(slot, n);
}

static void do_write(const long *a, int count) {
    long amount = limited(a[1]);
    (void)count;
    fill(a[0], amount);
    guard();
    done_sending(a[0], sending(a[0], write(fd_of(a[0]), bytes, (size_t)amount)));
}

/* Writes much, which may take until others have read. How much is taken is not told. */
static void do_write_much(const long *a, int count) {
    long amount = limited(a[1]);
    (void)count;
    fill(a[0], amount);
    set_full(a[0], 1, 1);
    guard();
    long n = write(fd_of(a[0]), bytes, (size_t)amount);
    /* Others may have found it empty meanwhile. */
    set_full(a[0], 1, 1);
    sending(a[0], n);
    done_sending(a[0], n);
}

static void do_writev(const long *a, int count) {
    struct iovec parts[16];
    long amount = limited(a[2]);
    (void)count;
    fill(a[0], amount);
    int n = split(parts, a[1], amount);
    guard();
    done_sending(a[0], sending(a[0], writev(fd_of(a[0]), parts, n)));
}

static void do_pwritev2(const long *a, int count) {
    struct iovec parts[16];
    long amount = limited(a[2]);
    (void)count;
    fill(a[0], amount);
    int n = split(parts, a[1], amount);
    guard();
    done_sending(a[0], sending(a[0], pwritev2(fd_of(a[0]), parts, n, -1, (int)a[3])));
}

static void do_send(const long *a, int count) {
    long amount = limited(a[1]);
    (void)count;
    fill(a[0], amount);
    if (a[2] & MSG_OOB) mix(a[0]);
    guard();
    done_sending(a[0], sending(a[0], send(fd_of(a[0]), bytes, (size_t)amount, (int)a[2])));
}

/* sendmsg SLOT AMOUNT FLAGS PARTS [SLOT WHOSE DESCRIPTOR GOES ALONG | -2 FOR CREDENTIALS] */
static void do_sendmsg(const long *a, int count) {
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(struct ucred))] = {0};
    struct cmsghdr *head = (void *)control;
    struct iovec parts[16];
    struct msghdr message = {.msg_iov = parts};
    long amount = limited(a[1]), extra = count > 4 ? a[4] : -1;
    fill(a[0], amount);
    message.msg_iovlen = (size_t)split(parts, a[3], amount);
    if (a[2] & MSG_OOB) mix(a[0]);
    if (extra == -2) {
        struct ucred own = {getpid(), getuid(), getgid()};
        *head = (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_CREDENTIALS, .cmsg_len = CMSG_LEN(sizeof own)};
        memcpy(CMSG_DATA(head), &own, sizeof own);
        message.msg_control = control, message.msg_controllen = CMSG_SPACE(sizeof own);
    } else if (extra >= 0) {
        int fd = fd_of(extra);
        *head = (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof fd)};
        memcpy(CMSG_DATA(head), &fd, sizeof fd);
        message.msg_control = control, message.msg_controllen = CMSG_SPACE(sizeof fd);
    }
    guard();
    long n = sending(a[0], sendmsg(fd_of(a[0]), &message, (int)a[2]));
    done_sending(a[0], n);
    if (extra >= 0 && n > 0) shared->passing[shared->passed++ % 16] = *slot_of(extra);
}

static void do_sendmmsg(const long *a, int count) {
    struct mmsghdr messages[4] = {0};
    struct iovec parts[4];
    long each = limited(a[1]) / 4, vlen = a[3] < 4 ? a[3] : 4, sum = 0;
    (void)count;
    fill(a[0], each * 4);
    for (int i = 0; i < 4; i++) parts[i] = (struct iovec){bytes + i * each, (size_t)each}, messages[i].msg_hdr.msg_iov = &parts[i], messages[i].msg_hdr.msg_iovlen = 1;
    guard();
    long n = sending(a[0], sendmmsg(fd_of(a[0]), messages, (unsigned)vlen, (int)a[2]));
    for (int i = 0; i < n; i++) sum += messages[i].msg_len;
    say(" sum"), sending(a[0], sum);
    done_sending(a[0], sum);
}

/* ---- much at once ---- */

/* Writes parts of some size without waiting until nothing more is taken. How much that is, is not
 * told: it is the kernel's choice. */
static void do_fillup(const long *a, int count) {
    long part = limited(a[1]), sum = 0;
    int fd = fd_of(a[0]), flags = fcntl(fd, F_GETFL), tries = 0;
    (void)count;
    if (flags < 0) { result(-1); return; }
    fcntl(fd, F_SETFL, flags | O_NONBLOCK);
    set_full(a[0], 1, 1);
    long n = 0;
    int error = 0;
    while (tries < 3 && sum < 64 << 20) {
        fill(a[0], part);
        n = write(fd, bytes, (size_t)part);
        error = errno;
        if (n > 0) { sent(a[0], n), sum += n, tries = 0; continue; }
        if (n == 0 || error != EAGAIN) break;
        /* What is on its way makes room a moment later. */
        tries++;
        usleep(2000);
    }
    fcntl(fd, F_SETFL, flags);
    errno = error;
    result(n < 0 ? -1 : 0);
}

/* True if bytes are on their way to this end. */
static int is_owed(const struct slot *own) {
    if (own->session < 0) return 0;
    return shared->written[own->session][!own->side] != shared->taken[own->session][!own->side];
}

/* Reads until nothing comes any more. */
static void do_drain(const long *a, int count) {
    long part = limited(a[1]), sum = 0, n = 0;
    int fd = fd_of(a[0]), flags = fcntl(fd, F_GETFL), tries = 0, error = 0;
    (void)count;
    if (flags < 0) { result(-1); return; }
    fcntl(fd, F_SETFL, flags | O_NONBLOCK);
    const struct slot *own = slot_of(a[0]);
    while (tries < (is_owed(own) ? 150 : 3)) {
        blank(part);
        n = read(fd, bytes, (size_t)part);
        error = errno;
        if (n > 0) { check(a[0], n, 0, own->session < 0 || shared->is_mixed[own->session][!own->side]), sum += n, tries = 0; continue; }
        if (n == 0 || error != EAGAIN) break;
        tries++;
        usleep(2000);
    }
    fcntl(fd, F_SETFL, flags);
    if (!is_owed(own)) set_full(a[0], 0, 0);
    errno = error;
    say(sum > 0 ? " some" : " none");
    result(n < 0 ? -1 : 0);
    if (own->session >= 0 && n < 0 && error == EAGAIN)
        say(!is_owed(own) || shared->is_mixed[own->session][!own->side] ? " all" : " NOT ALL");
}

/* ---- between descriptors ---- */

static void do_splice(const long *a, int count) {
    (void)count;
    mix_from(a[1], a[0]);
    guard();
    long n = sending(a[1], splice(fd_of(a[0]), NULL, fd_of(a[1]), NULL, (size_t)limited(a[2]), (unsigned)a[3]));
    unguard();
    check(a[0], n, 0, 1);
}

static void do_tee(const long *a, int count) {
    (void)count;
    mix_from(a[1], a[0]);
    guard();
    sending(a[1], tee(fd_of(a[0]), fd_of(a[1]), (size_t)limited(a[2]), (unsigned)a[3]));
    unguard();
}

static void do_vmsplice(const long *a, int count) {
    static unsigned char given[65536];
    long amount = a[1] < 65536 ? limited(a[1]) : 65536;
    struct iovec part = {given, (size_t)amount};
    (void)count;
    mix(a[0]);
    memset(given, (int)amount, sizeof given);
    guard();
    sending(a[0], vmsplice(fd_of(a[0]), &part, 1, (unsigned)a[2]));
    unguard();
}

static void do_sendfile(const long *a, int count) {
    off_t at = a[3];
    (void)count;
    mix_from(a[0], a[1]);
    guard();
    sending(a[0], sendfile(fd_of(a[0]), fd_of(a[1]), a[3] >= 0 ? &at : NULL, (size_t)limited(a[2])));
    unguard();
    if (a[3] >= 0) say(" at %ld", (long)at);
}

static void do_copy_file_range(const long *a, int count) {
    (void)count;
    guard();
    result(copy_file_range(fd_of(a[0]), NULL, fd_of(a[1]), NULL, (size_t)limited(a[2]), 0));
    unguard();
}

const struct call data_calls[] = {
    {"read", do_read}, {"readv", do_readv}, {"preadv2", do_preadv2}, {"recv", do_recv}, {"recvfrom", do_recvfrom}, {"recvmsg", do_recvmsg}, {"recvmmsg", do_recvmmsg},
    {"write", do_write}, {"write_much", do_write_much}, {"writev", do_writev}, {"pwritev2", do_pwritev2}, {"send", do_send}, {"sendmsg", do_sendmsg}, {"sendmmsg", do_sendmmsg},
    {"fillup", do_fillup}, {"drain", do_drain},
    {"splice", do_splice}, {"tee", do_tee}, {"vmsplice", do_vmsplice}, {"sendfile", do_sendfile}, {"copy_file_range", do_copy_file_range},
    {NULL, NULL},
};
