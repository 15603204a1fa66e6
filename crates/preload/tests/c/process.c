/* New processes, made in every possible way, and the descriptors that they find open. */
#include "check.h"
#include <pty.h>
#include <stddef.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>

static int over(pid_t child) {
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

/* The child of vfork runs on this frame, and the parent must find the frame unchanged. */
static __attribute__((noinline)) int by_vfork(int fail, int a, int b, int c) {
    volatile int keep[64];
    for (int i = 0; i < 64; i++) keep[i] = i * a + b * c;
    pid_t child = vfork();
    if (child == 0) {
        dup2(a, 60), close(60), close(b);
        if (fail) _exit(33);
        execl("/bin/sh", "sh", "-c", "exit $1", "sh", "21", (char *)0);
        _exit(99);
    }
    CHECK(child > 0);
    for (int i = 0; i < 64; i++) CHECK(keep[i] == i * a + b * c);
    return over(child);
}

static int in_child(void *x) {
    _exit(write(*(int *)x, "c", 1) == 1 ? 7 : 8);
}

/* Forks under a filter that ends a process which asks for its number or its thread's. */
static void confined(void) {
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_gettid, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getpid, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {sizeof code / sizeof *code, code};
    CHECK(!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) && !prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter));
    pid_t c = fork();
    if (c == 0) _exit(50);
    _exit(over(c));
}

static int handlers;
static void prepare(void) { handlers = handlers * 10 + 1; }
static void parent(void) { handlers = handlers * 10 + 2; }
static void child(void) { handlers = handlers * 10 + 3; }

static void *forks(void *x) {
    for (int i = 0; i < 50; i++) {
        pid_t c = i & 1 ? vfork() : fork();
        if (c == 0) _exit(5);
        CHECK(c > 0 && over(c) == 5);
    }
    return x;
}

static int all_in_order(const char *word) {
    char last[16] = "";
    FILE *f = popen(word, "r");
    CHECK(f && fgets(last, sizeof last, f));
    CHECK(pclose(f) == 0);
    return atoi(last);
}

int main(int argc, char **argv) {
    int p[2], s[2];
    char b[64];
    if (argc > 1) return atoi(argv[argc - 1]);
    CHECK(!pipe(p) && !socketpair(AF_UNIX, SOCK_STREAM, 0, s));
    SAY(by_vfork(0, p[0], p[1], 3));
    SAY(by_vfork(1, p[0], p[1], 3));
    SAY(write(p[1], "still", 5));
    SAY(read(p[0], b, 9));
    pid_t c = fork();
    if (c == 0) _exit(write(s[0], "child", 5) == 5 && read(p[0], b, 4) == 4 ? 3 : 4);
    SAY(read(s[1], b, 9));
    SAY(write(p[1], "data", 4));
    SAY(over(c));
    CHECK(!pthread_atfork(prepare, parent, child));
    if ((c = fork()) == 0) _exit(handlers);
    SAY(over(c));
    SAY(handlers);
    if ((c = _Fork()) == 0) _exit(write(p[1], "f", 1) + 30);
    SAY(over(c));
    SAY(handlers);
    SAY(read(p[0], b, 9));
    /* The arguments of every kind of exec. */
    if ((c = fork()) == 0) execl("/proc/self/exe", "1", "2", "3", "4", "5", "6", "7", "8", "9", "41", (char *)0);
    SAY(over(c));
    if ((c = fork()) == 0) execlp("sh", "sh", "-c", "exit 42", (char *)0);
    SAY(over(c));
    char *with[] = {"CODE=43", 0};
    if ((c = fork()) == 0) execle("/bin/sh", "sh", "-c", "exit $CODE", (char *)0, with);
    SAY(over(c));
    if ((c = fork()) == 0) execvp("sh", (char *[]){"sh", "-c", "exit 44", 0});
    SAY(over(c));
    if ((c = fork()) == 0) execve("/bin/sh", (char *[]){"sh", "-c", "exit $CODE", 0}, with);
    SAY(over(c));
    SAY(execv("/nowhere", (char *[]){"x", 0}));
    /* A spawned program with a session as its standard input. */
    posix_spawn_file_actions_t acts;
    CHECK(!posix_spawn_file_actions_init(&acts) && !posix_spawn_file_actions_adddup2(&acts, s[1], 0));
    CHECK(!posix_spawn_file_actions_adddup2(&acts, p[1], 1) && !posix_spawn_file_actions_addclose(&acts, s[0]));
    CHECK(write(s[0], "spawned\n", 8) == 8);
    CHECK(!posix_spawnp(&c, "head", &acts, 0, (char *[]){"head", "-n1", 0}, environ));
    SAY(over(c));
    SAY(read(p[0], b, 64));
    SAY(posix_spawn(&c, "/nowhere", 0, 0, (char *[]){"x", 0}, environ));
    SAY(system("exit 45"));
    SAY(all_in_order("echo 46"));
    /* Not a thread, but with our memory. */
    char *stack = malloc(1 << 16);
    pthread_t t[3];
    for (int i = 0; i < 3; i++) CHECK(!pthread_create(&t[i], 0, forks, 0));
    for (int i = 0; i < 3; i++) pthread_join(t[i], 0);
    int main_side;
    c = forkpty(&main_side, 0, 0, 0);
    if (c == 0) _exit(isatty(0) && isatty(1) ? 47 : 48);
    SAY(over(c));
    if ((c = fork()) == 0) {
        CHECK(!daemon(1, 0));
        SAY(write(p[1], "daemon", 6));
        _exit(0);
    }
    SAY(over(c));
    SAY(read(p[0], b, 64));
    c = clone(in_child, stack + (1 << 16), CLONE_VM | SIGCHLD, &p[1]);
    SAY(over(c));
    SAY(read(p[0], b, 64));
    c = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (c == 0) _exit(49);
    SAY(over(c));
    if ((c = fork()) == 0) confined();
    SAY(over(c));
    SAY(write(p[1], "last", 4));
    SAY(read(p[0], b, 9));
    return 0;
}
