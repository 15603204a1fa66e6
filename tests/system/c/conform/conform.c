/* The transcript, the byte sequences, and both sides of the peer. See conform.h. */
#include "conform.h"
#include <sys/prctl.h>

int S = -1, kind;
char phase;
const char *kind_name;
pid_t peer_pid;
int peer_errno;
char self_path[PATH_MAX];
const char *static_path;
static int channel = -1, moves, is_peer;
static unsigned long sent, received;
static int ends_here[8], ends_count;

struct order { int op, when; pid_t tid; long a, b, c; };
struct answer { long result; int error, pad; };


/* ---- transcript ---- */

void say(const char *format, ...) {
    char line[2000];
    va_list words;
    va_start(words, format);
    int len = vsnprintf(line, sizeof line - 1, format, words);
    va_end(words);
    line[len++] = '\n';
    /* One write for each line, so that the lines of a case that crashes are not lost in a buffer.
     */
    if (write(1, line, len) != len) _exit(98);
}

static const char *error_name(int error) {
    const char *name = strerrorname_np(error);
    return name ? name : "?";
}

long report(const char *text, long result) {
    int error = errno;
    if (result == -1) say("%s -> %s", text, error_name(error));
    else say("%s -> %ld", text, result);
    errno = error;
    return result;
}

long report_some(const char *text, long result) {
    int error = errno;
    if (result > 0) say("%s -> some", text);
    else report(text, result);
    errno = error;
    return result;
}

long report_peer(const char *op, const char *a, long result) {
    if (peer_errno) say("peer %s(%s) -> %ld %s", op, a, result, error_name(peer_errno));
    else say("peer %s(%s) -> %ld", op, a, result);
    return result;
}

void say_status(const char *what, int status) {
    if (WIFSIGNALED(status)) say("%s: %s", what, sigabbrev_np(WTERMSIG(status)));
    else say("%s: exit %d", what, WEXITSTATUS(status));
}

void broken(const char *file, int line, const char *what) {
    const char *name = strrchr(file, '/');
    say("BROKEN %s:%d: %s (%s)", name ? name + 1 : file, line, what, error_name(errno));
    _exit(97);
}

/* ---- bytes ---- */

static unsigned char byte_at(unsigned long i, int from_peer) {
    return (unsigned char)(i * 31 + (i >> 8) * 7 + (i >> 16) * 3 + (from_peer ? 101 : 0));
}

char *fill(void *buf, size_t len) {
    unsigned char *bytes = buf;
    for (size_t i = 0; i < len; i++) bytes[i] = byte_at(sent + i, is_peer);
    sent += len;
    return buf;
}

void unfill(size_t len) { sent -= len; }
void skip_sent(long len) { sent += len; }
void skip_received(long len) { received += len; }

static long wrong_at(const void *buf, long len) {
    const unsigned char *bytes = buf;
    for (long i = 0; i < len; i++)
        if (bytes[i] != byte_at(received + i, !is_peer)) return i;
    return -1;
}

void look(const void *buf, long len) {
    int error = errno;
    long at = wrong_at(buf, len);
    if (at >= 0) say("WRONG BYTE at %ld of %ld", at, len);
    errno = error;
}

void check(const void *buf, long len) {
    look(buf, len);
    if (len > 0) received += len;
}

long put(size_t len) {
    static __thread char bytes[65536];
    size_t done = 0;
    while (done < len) {
        size_t part = len - done < sizeof bytes ? len - done : sizeof bytes;
        fill(bytes, part);
        ssize_t n = write(S, bytes, part);
        if (n < 0) { unfill(part); return -1; }
        unfill(part - n);
        done += n;
    }
    return done;
}

long get(size_t len) {
    static __thread char bytes[65536];
    size_t done = 0;
    while (done < len) {
        size_t part = len - done < sizeof bytes ? len - done : sizeof bytes;
        ssize_t n = read(S, bytes, part);
        if (n < 0) return -1;
        if (n == 0) break;
        check(bytes, n);
        done += n;
    }
    return done;
}

/* ---- time and threads ---- */

long now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

int about(long ms, long wanted) { return ms >= wanted - 2 && ms <= wanted + wanted / 4 + 250; }

void nap(long ms) {
    struct timespec span = {ms / 1000, ms % 1000 * 1000000};
    while (nanosleep(&span, &span) == -1 && errno == EINTR) {}
}

pid_t thread_number(void) { return (pid_t)syscall(SYS_gettid); }

void until_asleep(pid_t process, pid_t thread) {
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/%d/task/%d/stat", process, thread);
    int asleep = 0;
    for (int i = 0; i < 3000 && asleep < 4; i++) {
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0) return;
        ssize_t len = read(fd, text, sizeof text - 1);
        close(fd);
        if (len <= 0) return;
        text[len] = 0;
        char *state = strrchr(text, ')');
        asleep = state && state[2] == 'S' ? asleep + 1 : 0;
        struct timespec span = {0, 700000};
        nanosleep(&span, NULL);
    }
}

pid_t tid;
static char notes[4000];
static size_t noted;

void note(const char *format, ...) {
    static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;
    va_list words;
    va_start(words, format);
    pthread_mutex_lock(&one_at_a_time);
    int len = vsnprintf(notes + noted, sizeof notes - noted - 2, format, words);
    va_end(words);
    noted += len;
    notes[noted++] = '\n';
    pthread_mutex_unlock(&one_at_a_time);
}

void join(pthread_t thread) {
    pthread_join(thread, NULL);
    if (noted > 0 && write(1, notes, noted) != (ssize_t)noted) _exit(98);
    noted = 0;
}

static void *numbered(void *run) {
    __atomic_store_n(&tid, thread_number(), __ATOMIC_SEQ_CST);
    return ((void *(*)(void *))run)(NULL);
}

pthread_t begin(void *(*run)(void *)) {
    pthread_t thread;
    tid = 0;
    NEED(pthread_create(&thread, NULL, numbered, (void *)run) == 0);
    while (!__atomic_load_n(&tid, __ATOMIC_SEQ_CST)) sched_yield();
    until_asleep(getpid(), tid);
    return thread;
}

/* Makes a system call that no library can intercept. The code is on a page of its own, because
 * syscall(2) can be interposed and a system call in the program's text may have been rewritten. */
static long bare(long number, long a, long b, void *c) {
#ifdef __x86_64__
    static const unsigned char code[] = {
        0x48, 0x89, 0xf8, /* mov rax, rdi */
        0x48, 0x89, 0xf7, /* mov rdi, rsi */
        0x48, 0x89, 0xd6, /* mov rsi, rdx */
        0x48, 0x89, 0xca, /* mov rdx, rcx */
        0x0f, 0x05, 0xc3, /* syscall; ret */
    };
    static void *page;
    if (!page) {
        void *made = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        NEED(made != MAP_FAILED);
        memcpy(made, code, sizeof code);
        page = made;
    }
    return ((long (*)(long, long, long, void *))page)(number, a, b, c);
#else
    return syscall(number, a, b, c);
#endif
}

long raw_fionread(int fd) {
    int count = -1;
    return bare(SYS_ioctl, fd, FIONREAD, &count) < 0 ? -1 : count;
}

/* ---- the peer, from the case's side ---- */

static void give(struct order order) { NEED(send(channel, &order, sizeof order, MSG_NOSIGNAL) == sizeof order); }

static long take(void) {
    struct answer answer;
    ssize_t n;
    while ((n = recv(channel, &answer, sizeof answer, 0)) == -1 && errno == EINTR) {}
    NEED(n == sizeof answer);
    peer_errno = answer.error;
    return answer.result;
}

long peer3(enum op op, long a, long b, long c) {
    give((struct order){op, 0, 0, a, b, c});
    return take();
}

void later_than(pid_t tid, enum op op, long a, long b, long c) {
    give((struct order){op, 1, tid, a, b, c});
    take();
}

void later3(enum op op, long a, long b, long c) { later_than(getpid(), op, a, b, c); }

long peer_done(void) { return take(); }

void kill_peer(void) {
    kill(peer_pid, SIGKILL);
    int status;
    while (waitpid(peer_pid, &status, 0) == -1 && errno == EINTR) {}
}

void peer_use(int number) { peer3(OP_HOLD, number, 0, 0); }

/* ---- the harness ---- */

static int ask(const char *what, int strict) {
    const char *path = getenv("CONFORM_HARNESS");
    if (!path) return 1;
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    struct sockaddr_un own = {.sun_family = AF_UNIX}, to = {.sun_family = AF_UNIX};
    NEED(fd >= 0 && bind(fd, (void *)&own, sizeof own.sun_family) == 0);
    strncpy(to.sun_path, path, sizeof to.sun_path - 1);
    char text[200];
    snprintf(text, sizeof text, "%s %d %d %s", what, getpid(), peer_pid, strict ? "strict" : "loose");
    NEED(sendto(fd, text, strlen(text), 0, (void *)&to, sizeof to) > 0);
    ssize_t n;
    while ((n = recv(fd, text, sizeof text - 1, 0)) == -1 && errno == EINTR) {}
    close(fd);
    text[n > 0 ? n : 0] = 0;
    return strcmp(text, "ok") == 0;
}

void go_home(void) {
    if (!ask("recall", 1)) say("NOT RETURNED");
}

void point(void) {
    if (phase == 'p') go_home();
}

void kill_server(void) { NEED(ask("kill", 1)); }
void start_server(void) { NEED(ask("start", 1)); }

/* Sends one byte in each direction that the session has, and tells for each if it went past the
 * kernel. */
static int exchange(int *in_moved, int *out_moved) {
    char byte = 'w';
    *in_moved = *out_moved = 1;
    if (kind != POUT) {
        NEED(peer(OP_WARM, 0) == 1);
        *in_moved = raw_fionread(S) == 0;
        NEED(read(S, &byte, 1) == 1 && byte == 'w');
    }
    if (kind != PIN) {
        NEED(write(S, &byte, 1) == 1);
        long found = peer(OP_WARM, 1);
        NEED(found >= 0);
        *out_moved = found == 0;
    }
    return *in_moved && *out_moved;
}

void warm(void) { warm_with(NULL); }

void warm_with(void (*before_each)(void)) {
    int in, out;
    long limit = now_ms() + 5000;
    for (int i = 0; i < 3 || (moves && now_ms() < limit); i++) {
        if (before_each) before_each();
        if (exchange(&in, &out) && i >= 2) return;
        if (i > 3) {
            struct timespec span = {0, 300000};
            nanosleep(&span, NULL);
        }
    }
    if (!moves) return;
    say("NOT MOVED: in %d out %d", in, out);
    /* For debugging a session that does not move: a command to run now. */
    if (getenv("CONFORM_STUCK") && system(getenv("CONFORM_STUCK"))) {}
}

void warm_again(void (*before_each)(void)) {
    if (phase == 'm' || phase == 'p') warm_with(before_each);
}

/* ---- connections ---- */

static int listener = -1;
static char socket_path[108];

static int listen_here(long *port) {
    int one = 1;
    if (kind == UNIX) {
        struct sockaddr_un name = {.sun_family = AF_UNIX};
        snprintf(socket_path, sizeof socket_path, "conform.%d", getpid());
        strcpy(name.sun_path, socket_path);
        unlink(socket_path);
        listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        NEED(bind(listener, (void *)&name, sizeof name) == 0 && listen(listener, 8) == 0);
        *port = getpid();
    } else {
        struct sockaddr_in name = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        socklen_t len = sizeof name;
        listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
        NEED(bind(listener, (void *)&name, sizeof name) == 0 && listen(listener, 8) == 0);
        NEED(getsockname(listener, (void *)&name, &len) == 0);
        *port = ntohs(name.sin_port);
    }
    return listener;
}

/* Connects a pair of sockets. With TCP6 the peer listens and the case connects, otherwise the other
 * way round, so that both roles are tested. */
static int connect_pair(void) {
    static long port;
    if (kind == TCP6) {
        if (port == 0) port = peer(OP_LISTEN, 0);
        NEED(port > 0);
        struct sockaddr_in6 name = {.sin6_family = AF_INET6, .sin6_addr = in6addr_loopback, .sin6_port = htons(port)};
        int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
        NEED(connect(fd, (void *)&name, sizeof name) == 0);
        NEED(peer(OP_ACCEPT, 0) == 0);
        return fd;
    }
    if (listener < 0) listen_here(&port);
    NEED(peer3(OP_CONNECT, kind, port, 0) == 0);
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    NEED(fd >= 0);
    return fd;
}

static int at_once(int fd);
int second_session(void) { return at_once(connect_pair()); }

/* ---- starting the peer ---- */

static void start_peer(void) {
    int ends[2] = {-1, -1}, channels[2];
    NEED(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, channels) == 0);
    int theirs = -1;
    if (kind == PAIR) {
        NEED(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
        S = ends[0], theirs = ends[1];
    } else if (kind == PIN || kind == POUT) {
        NEED(pipe2(ends, O_CLOEXEC) == 0);
        S = ends[kind == POUT], theirs = ends[kind != POUT];
    }
    peer_pid = fork();
    NEED(peer_pid >= 0);
    if (peer_pid == 0) {
        char words[2][16];
        dup2(channels[1], 199);
        if (theirs >= 0) dup2(theirs, 198);
        snprintf(words[0], 16, "%d", theirs >= 0 ? 198 : -1);
        snprintf(words[1], 16, "%d", getppid());
        execl(self_path, self_path, "--peer", words[0], words[1], (char *)NULL);
        _exit(96);
    }
    close(channels[1]);
    if (theirs >= 0) close(theirs);
    channel = channels[0];
    peer(OP_NOTHING, 0);
    if (kind & (TCP | UNIX)) S = second_session();
}

void begin_case(const char *kind_word, int kind_bit, char phase_letter) {
    kind = kind_bit, kind_name = kind_word, phase = phase_letter;
    moves = getenv("CONFORM_HARNESS") != NULL;
    signal(SIGPIPE, SIG_DFL);
    start_peer();
    if (phase != 'k') warm();
    if (phase == 'r') go_home();
}

void end_case(void) {
    if (listener >= 0 && kind == UNIX) unlink(socket_path);
}

/* ---- the peer itself ---- */

static int use(int number) {
    if (number >= ends_count) return -1;
    S = ends_here[number];
    return 0;
}

/* Disables Nagle's algorithm (tcp(7)), because the time at which the kernel sends is not compared.
 */
static int at_once(int fd) {
    int one = 1;
    if (kind & TCP || is_peer) setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return fd;
}

static void have(int fd) {
    S = at_once(fd);
    ends_here[ends_count++ & 7] = fd;
}

static long do_send(long len, int flags) {
    char *bytes = malloc(len + 1);
    long done = 0;
    while (done < len || len == 0) {
        fill(bytes, len - done);
        ssize_t n = flags ? send(S, bytes, len - done, flags) : write(S, bytes, len - done);
        if (n < 0 && errno == EINTR) { unfill(len - done); continue; }
        if (n < 0) { unfill(len - done); break; }
        unfill(len - done - n);
        done += n;
        if (len == 0) break;
    }
    int error = errno;
    free(bytes);
    errno = done < len ? error : 0;
    return done;
}

static long do_drain(long limit) {
    static char bytes[65536];
    long done = 0;
    while (done < limit) {
        long part = limit - done < (long)sizeof bytes ? limit - done : (long)sizeof bytes;
        ssize_t n = read(S, bytes, part);
        if (n == 0) { errno = 0; return done; }
        if (n < 0) return done;
        if (wrong_at(bytes, n) >= 0) { errno = EBADMSG; return done; }
        received += n;
        done += n;
    }
    errno = 0;
    return done;
}

static long do_connect(int which, long port) {
    int fd;
    if (which == UNIX) {
        struct sockaddr_un name = {.sun_family = AF_UNIX};
        snprintf(name.sun_path, sizeof name.sun_path, "conform.%ld", port);
        fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (connect(fd, (void *)&name, sizeof name)) return -1;
    } else {
        struct sockaddr_in name = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(port)};
        fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (connect(fd, (void *)&name, sizeof name)) return -1;
    }
    have(fd);
    errno = 0;
    return 0;
}

static long do_listen(void) {
    struct sockaddr_in6 name = {.sin6_family = AF_INET6, .sin6_addr = in6addr_loopback};
    socklen_t len = sizeof name;
    listener = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(listener, (void *)&name, sizeof name) || listen(listener, 8) || getsockname(listener, (void *)&name, &len)) return -1;
    errno = 0;
    return ntohs(name.sin6_port);
}

static long do_reset(void) {
    struct linger now = {1, 0};
    setsockopt(S, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    return close(S);
}

/* Sends a byte to make the session hot, or receives one with all bytes of the kernel object. */
static long do_warm(int receive) {
    char byte = 'w';
    if (!receive) return write(S, &byte, 1);
    long found = raw_fionread(S);
    return read(S, &byte, 1) == 1 && byte == 'w' ? found : -1;
}

static long do_fillup(void) {
    char byte = 'f';
    long count = 0;
    int flags = fcntl(S, F_GETFL);
    fcntl(S, F_SETFL, flags | O_NONBLOCK);
    while (write(S, &byte, 1) == 1) count++;
    fcntl(S, F_SETFL, flags);
    errno = 0;
    return count;
}

static long do_pass(int how) {
    struct msghdr message = {0};
    union { struct cmsghdr head; char room[CMSG_SPACE(sizeof(int))]; } control;
    char byte = 'p';
    struct iovec part = {&byte, 1};
    message.msg_iov = &part, message.msg_iovlen = 1;
    message.msg_control = &control, message.msg_controllen = sizeof control;
    if (how == OP_TAKE) {
        if (recvmsg(channel, &message, MSG_CMSG_CLOEXEC) != 1 || message.msg_controllen == 0) return -1;
        int fd;
        memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
        have(fd);
        return 0;
    }
    control.head.cmsg_level = SOL_SOCKET, control.head.cmsg_type = SCM_RIGHTS;
    control.head.cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(&control.head), &S, sizeof S);
    return sendmsg(channel, &message, 0) == 1 ? 0 : -1;
}

/* Passes a descriptor of this process to the peer, which receives it with OP_TAKE. */
int pass_own(int fd) {
    int kept = S;
    S = fd;
    give((struct order){OP_TAKE, 0, 0, 0, 0, 0});
    long result = do_pass(OP_PASS);
    S = kept;
    take();
    return (int)result;
}

static long do_signals(pid_t to, int signal, long times, long apart_us) {
    for (long i = 0; i < times || times == 0; i++) {
        if (kill(to, signal)) return -1;
        struct timespec span = {apart_us / 1000000, apart_us % 1000000 * 1000};
        if (apart_us) nanosleep(&span, NULL);
        if (times == 0) break;
    }
    return 0;
}

static long do_echo(long rounds, long size) {
    char *bytes = malloc(size);
    for (long i = 0; i < rounds; i++) {
        long done = 0;
        while (done < size) {
            ssize_t n = read(S, bytes + done, size - done);
            if (n <= 0) return i;
            done += n;
        }
        if (write(S, bytes, size) != size) return i;
    }
    free(bytes);
    errno = 0;
    return rounds;
}

static long do_lines(long len) {
    static char bytes[65536];
    for (long done = 0; done < len;) {
        ssize_t n = read(S, bytes + done, len - done);
        if (n <= 0) return 0;
        done += n;
    }
    for (long i = 1; i < len; i++)
        if (bytes[i] != bytes[0]) return -1;
    return len;
}

static long perform(const struct order *order, pid_t parent) {
    static char bytes[1 << 20];
    int count = 0;
    long n;
    errno = 0;
    switch (order->op) {
    case OP_SEND: return do_send(order->a, (int)order->b);
    case OP_RECV: return do_drain(order->a);
    case OP_RECV_ONE:
        n = recv(S, bytes, order->a, (int)order->b);
        if (n < 0 && errno == ENOTSOCK) n = read(S, bytes, order->a);
        if (n > 0 && wrong_at(bytes, n) >= 0) { errno = EBADMSG; return n; }
        if (n > 0 && !(order->b & MSG_PEEK)) received += n;
        return n;
    case OP_DRAIN: return do_drain(LONG_MAX);
    case OP_CLOSE: return close(S);
    case OP_SHUTDOWN: return shutdown(S, (int)order->a);
    case OP_RESET: return do_reset();
    case OP_EXIT:
        if (order->a) quick_exit(0);
        exit(0);
    case OP_NONBLOCK: return ioctl(S, FIONBIO, &(int){(int)order->a});
    case OP_RAW: return raw_fionread(S);
    case OP_FIONREAD: return ioctl(S, FIONREAD, &count) ? -1 : count;
    case OP_SIGNAL: return do_signals(order->tid ? order->tid : parent, (int)order->a, order->b, order->c);
    case OP_OPTION: return setsockopt(S, (int)order->a, (int)order->b, &(int){(int)order->c}, sizeof(int));
    case OP_OOB: return send(S, "!", 1, MSG_OOB);
    case OP_LISTEN: return do_listen();
    case OP_ACCEPT: {
        int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0) return -1;
        have(fd);
        return 0;
    }
    case OP_CONNECT: return do_connect((int)order->a, order->b);
    case OP_PASS: case OP_TAKE: return do_pass(order->op);
    case OP_FILLUP: return do_fillup();
    case OP_HOLD: return use((int)order->a);
    case OP_WARM: return do_warm((int)order->a);
    case OP_LINES: return do_lines(order->a);
    case OP_ECHO: return do_echo(order->a, order->b);
    default: return 0;
    }
}

int be_peer(int end, pid_t parent) {
    is_peer = 1;
    channel = 199;
    fcntl(channel, F_SETFD, FD_CLOEXEC);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGPIPE, SIG_IGN);
    if (end >= 0) {
        /* An ordinary descriptor number, as a program would have: the lowest free one from 3. */
        int fd = fcntl(end, F_DUPFD_CLOEXEC, 3);
        close(end);
        have(fd);
    }
    struct order order;
    ssize_t n;
    while ((n = recv(channel, &order, sizeof order, 0)) == sizeof order || (n == -1 && errno == EINTR)) {
        if (n < 0) continue;
        if (order.when) {
            struct answer started = {0, 0, 0};
            send(channel, &started, sizeof started, MSG_NOSIGNAL);
            until_asleep(parent, order.tid);
            if (order.op == OP_SIGNAL && order.tid == parent) order.tid = 0;
        }
        long result = perform(&order, parent);
        struct answer answer = {result, result < 0 || order.op == OP_SEND || order.op == OP_RECV || order.op == OP_DRAIN || order.op == OP_RECV_ONE ? errno : 0, 0};
        send(channel, &answer, sizeof answer, MSG_NOSIGNAL);
    }
    return 0;
}

int conform_channel(void) { return channel; }

void works(const char *what) {
    if (kind != POUT) {
        NEED(peer(OP_SEND, 10) == 10);
        if (get(10) != 10) say("%s: does not receive", what);
    }
    if (kind != PIN) {
        if (put(10) != 10) say("%s: does not send", what);
        else NEED(peer(OP_RECV, 10) == 10);
    }
    say("%s: works", what);
}
