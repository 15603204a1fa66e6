/* Calls that fewer programs make: children that share memory, programs started with actions on
 * files, threads, limits, streams of the C library, pipes' sizes. See sequences.h. */
#include "sequences.h"
#include <pthread.h>
#include <sched.h>
#include <spawn.h>
#include <sys/resource.h>

extern char **environ;

/* Where children have a slot's descriptor. */
enum { GIVEN = 9, TOLD = 4 };

static void ended(pid_t pid) {
    int status = 0;
    pid_t found;
    while ((found = waitpid(pid, &status, 0)) < 0 && errno == EINTR) {}
    say(" ended %d %x", found == pid, (unsigned)status);
}

/* spawn SLOT FLAGS SLOT: starts this program with the first slot's descriptor as another number,
 * where it writes; with 1 in FLAGS by its name, with 2 the other slot's descriptor is closed there
 * before, with 4 a file takes its number. */
static void do_spawn(const long *a, int count) {
    posix_spawn_file_actions_t actions;
    char *words[] = {(char *)own_path, "--child", "0", "0", NULL};
    int other = fd_of(a[2]);
    pid_t pid;
    (void)count;
    mix(a[0]);
    posix_spawn_file_actions_init(&actions);
    if (a[1] & 2 && other >= 3) posix_spawn_file_actions_addclose(&actions, other);
    if (a[1] & 4 && other >= 3) posix_spawn_file_actions_addopen(&actions, other, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, fd_of(a[0]), GIVEN);
    int error = (a[1] & 1 ? posix_spawnp : posix_spawn)(&pid, own_path, &actions, NULL, words, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (error) { errno = error, result(-1); return; }
    ended(pid);
}

/* What the program does that `spawn` starts. */
int be_child(void) {
    struct pollfd one = {GIVEN, POLLIN, 0};
    if (write(GIVEN, "spwn", TOLD) != TOLD) return 16 + errno;
    return poll(&one, 1, 0) < 0 ? 3 : 2;
}

/* vfork SLOT SLOT: a child in the same memory puts the one's descriptor on another number, closes
 * the other's, writes, and ends. */
static void do_vfork(const long *a, int count) {
    int fd = fd_of(a[0]), other = fd_of(a[1]);
    (void)count;
    mix(a[0]);
    pid_t pid = vfork();
    if (pid == 0) {
        if (other >= 3 && other != fd) close(other);
        if (dup2(fd, GIVEN) != GIVEN) _exit(20);
        _exit(write(GIVEN, "vfrk", TOLD) == TOLD ? 2 : 3);
    }
    if (pid < 0) result(-1);
    else ended(pid);
}

/* system SLOT: a shell writes to the slot's descriptor. */
static void do_system(const long *a, int count) {
    char line[64];
    int fd = fd_of(a[0]);
    (void)count;
    mix(a[0]);
    /* Shells understand numbers of one digit. */
    if (fd < 3 || fd > 9) { say(" not"); return; }
    snprintf(line, sizeof line, "printf syst 2>/dev/null >&%d", fd);
    result(system(line));
}

/* popen SLOT: as the input of a command, and its output. */
static void do_popen(const long *a, int count) {
    char text[32] = "";
    (void)a, (void)count;
    FILE *from = popen("echo line", "r");
    if (!from) { result(-1); return; }
    while (!fgets(text, sizeof text, from) && errno == EINTR) clearerr(from);
    say(" %d", (int)strlen(text));
    result(pclose(from));
}

static struct { int fd, other, calls; } work;

static void *in_thread(void *none) {
    long sum = 0;
    for (int i = 0; i < work.calls; i++) sum += write(work.fd, "t", 1);
    if (work.other >= 0) unshare(CLONE_FILES), close(work.other);
    return sum == work.calls ? NULL : none;
}

/* thread SLOT CALLS [SLOT]: another thread writes, and closes the other slot's descriptor in a
 * table of its own. */
static void do_thread(const long *a, int count) {
    pthread_t thread;
    void *got;
    mix(a[0]);
    work.fd = fd_of(a[0]), work.calls = (int)a[1], work.other = count > 2 ? fd_of(a[2]) : -1;
    if (pthread_create(&thread, NULL, in_thread, "short")) { result(-1); return; }
    pthread_join(thread, &got);
    say(" %s", got ? "short" : "all");
}

/* limit NUMBER: the most descriptors that the process may have. */
static void do_limit(const long *a, int count) {
    struct rlimit limit;
    (void)count;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = (rlim_t)a[0];
    result(setrlimit(RLIMIT_NOFILE, &limit));
}

/* fprintf SLOT AMOUNT: by a stream of the C library's for a duplicate. */
static void do_fprintf(const long *a, int count) {
    int fd = dup(fd_of(a[0]));
    (void)count;
    mix(a[0]);
    FILE *file = fd >= 0 ? fdopen(fd, "w") : NULL;
    if (!file) { result(-1); if (fd >= 0) close(fd); return; }
    result(fprintf(file, "%*d", (int)a[1], 7));
    result(fclose(file));
}

static void do_dprintf(const long *a, int count) {
    (void)count;
    mix(a[0]);
    guard();
    result(dprintf(fd_of(a[0]), "%*d", (int)a[1], 7));
    unguard();
}

/* fread SLOT: by a stream without a buffer, so that nothing is lost in it. */
static void do_fread(const long *a, int count) {
    int fd = dup(fd_of(a[0])), flags;
    (void)count;
    FILE *file = fd >= 0 ? fdopen(fd, "r") : NULL;
    if (!file) { result(-1); if (fd >= 0) close(fd); return; }
    setvbuf(file, NULL, _IONBF, 0);
    flags = fcntl(fd, F_GETFL), fcntl(fd, F_SETFL, flags | O_NONBLOCK);
    blank(8);
    size_t got = fread(bytes, 1, 8, file);
    int error = errno;
    fcntl(fd, F_SETFL, flags);
    say(" %zu %d %d", got, ferror(file) ? error : 0, feof(file));
    fclose(file);
    check(a[0], (long)got, 0, 0);
}

/* reopen SLOT FLAGS: by the name of the number. */
static void do_reopen(const long *a, int count) {
    char path[32];
    (void)count;
    snprintf(path, sizeof path, "/dev/fd/%d", fd_of(a[0]));
    int fd = open(path, (int)a[1]);
    result(fd);
    if (fd >= 0) result(write(fd, "", 0)), close(fd);
}

/* syscall SLOT AMOUNT: write by its number. */
static void do_syscall(const long *a, int count) {
    long amount = a[1] > 1000 ? 1000 : a[1];
    (void)count;
    fill(a[0], amount);
    guard();
    long n = sending(a[0], syscall(SYS_write, fd_of(a[0]), bytes, amount));
    unguard();
    sent(a[0], n);
}

static void do_pwait(const long *a, int count) {
    struct epoll_event one[4];
    struct timespec soon = {0, 1000};
    sigset_t all;
    (void)count;
    sigfillset(&all);
    int n = epoll_pwait2(fd_of(a[0]), one, 4, &soon, &all);
    if (n <= 0) result(n);
    else say(" some");
}

const struct call extra_calls[] = {
    {"spawn", do_spawn}, {"vfork", do_vfork}, {"system", do_system}, {"popen", do_popen}, {"thread", do_thread}, {"limit", do_limit},
    {"fprintf", do_fprintf}, {"dprintf", do_dprintf}, {"fread", do_fread}, {"reopen", do_reopen}, {"syscall", do_syscall}, {"epoll_pwait2", do_pwait},
    {NULL, NULL},
};
