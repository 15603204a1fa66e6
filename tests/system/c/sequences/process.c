/* Calls about processes: children, other programs, descriptors that are passed on, and the session
 * server's recalls. See sequences.h. */
#include "sequences.h"

static void do_fork(const long *a, int count) {
    int which = (int)a[0], parent = actor;
    (void)count;
    if (shared->is_alive[which]) { say(" lives"); return; }
    memcpy(shared->slots[which], shared->slots[parent], sizeof shared->slots[which]);
    pid_t pid = fork();
    if (pid == 0) {
        actor = which;
        shared->pids[which] = getpid();
        shared->busy[which] = shared->done[which] = 0;
        atomic_store(&shared->is_alive[which], 1);
        act();
        _exit(0);
    }
    if (pid < 0) { result(-1); return; }
    while (!atomic_load(&shared->is_alive[which])) usleep(100);
}

static void do_wait(const long *a, int count) {
    int status = 0;
    (void)count;
    if (shared->is_alive[a[0]]) { say(" lives"); return; }
    if (!shared->pids[a[0]]) { say(" nobody"); return; }
    result(waitpid(shared->pids[a[0]], &status, WNOHANG) > 0);
    say(" %x", (unsigned)status);
}

/* Has a handler with SA_RESTART run in another actor. */
static void do_signal(const long *a, int count) {
    (void)count;
    if (a[0] < 0 || a[0] >= ACTORS || !shared->is_alive[a[0]]) { say(" nobody"); return; }
    result(kill(shared->pids[a[0]], SIGUSR1));
}

/* The process that watches tells of the end, and gives the turn on. */
static void do_exit(const long *a, int count) {
    (void)count;
    if (a[0]) exit((int)a[0]);
    _exit(0);
}

static void do_exec(const long *a, int count) {
    char number[8];
    (void)a, (void)count;
    snprintf(number, sizeof number, "%d", actor);
    execl(own_path, own_path, "--actor", number, script_path, out_path, (char *)NULL);
    result(-1);
}

/* pass SLOT: to the other side's channel; take SLOT. */
static void do_pass(const long *a, int count) {
    char byte = 'p';
    struct iovec part = {&byte, 1};
    union { struct cmsghdr head; char room[CMSG_SPACE(sizeof(int))]; } control = {0};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    int fd = fd_of(a[0]);
    (void)count;
    control.head = (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof fd)};
    memcpy(CMSG_DATA(&control.head), &fd, sizeof fd);
    if (result(sendmsg(CHANNEL, &message, MSG_DONTWAIT)) == 1) shared->passing[shared->passed++ % 16] = *slot_of(a[0]);
}

static void do_take(const long *a, int count) {
    char byte;
    struct iovec part = {&byte, 1};
    union { struct cmsghdr head; char room[CMSG_SPACE(sizeof(int))]; } control = {0};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    int fd = -1;
    (void)count;
    if (result(recvmsg(CHANNEL, &message, MSG_DONTWAIT)) != 1 || message.msg_controllen == 0) return;
    memcpy(&fd, CMSG_DATA(&control.head), sizeof fd);
    say(" fd %d", fd);
    struct slot passed = shared->passing[shared->received++ % 16];
    passed.fd = fd;
    *slot_of(a[0]) = passed;
}

/* Asks the driver, where it listens, to do something with the sessions of all actors. */
static void ask(const char *what) {
    const char *path = getenv("SEQUENCES_HARNESS");
    if (!path) return;
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    struct sockaddr_un own = {.sun_family = AF_UNIX}, to = {.sun_family = AF_UNIX};
    strncpy(to.sun_path, path, sizeof to.sun_path - 1);
    char text[200];
    int len = snprintf(text, sizeof text, "%s", what);
    for (int i = 0; i < ACTORS; i++)
        if (shared->is_alive[i]) len += snprintf(text + len, sizeof text - (size_t)len, " %d", shared->pids[i]);
    if (fd < 0 || bind(fd, (void *)&own, sizeof own.sun_family) || sendto(fd, text, (size_t)len, 0, (void *)&to, sizeof to) < 0) fail("no harness: %m");
    while (recv(fd, text, sizeof text, 0) < 0 && errno == EINTR) {}
    close(fd);
}

/* Sends the sessions home. */
static void do_recall(const long *a, int count) { (void)a, (void)count; ask("recall strict"); }

/* settle COUNT: waits until so many sessions have moved, or some time has passed. */
static void do_settle(const long *a, int count) {
    char text[32];
    (void)count;
    snprintf(text, sizeof text, "settle %ld", a[0]);
    ask(text);
}

const struct call process_calls[] = {
    {"fork", do_fork}, {"wait", do_wait}, {"signal", do_signal}, {"exit", do_exit}, {"exec", do_exec}, {"pass", do_pass}, {"take", do_take}, {"recall", do_recall}, {"settle", do_settle}, {NULL, NULL},
};
