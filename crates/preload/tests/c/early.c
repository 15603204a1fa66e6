// What programs of a shell script do, each in a process of its own as the first calls of functions
// that the preload library replaces, with arguments that work. `early NAME` does one, `early` all,
// each in a new process. Prints what the calls answer. `first.c` calls all functions, with
// arguments that they refuse.

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;
static char *self;
static char text[4096];

static void say(const char *what, long result) { dprintf(2, "%s: %ld\n", what, result); }

static int file(void) {
    char name[] = "/tmp/earlyXXXXXX";
    int fd = mkstemp(name);
    unlink(name);
    return fd;
}

// Reads and writes of a file and of a pipe that the parent has made (descriptors 10 and 11).
static void data(void) {
    int fd = file();
    struct iovec two[2] = {{"ab", 2}, {"cd", 2}};
    say("write", write(fd, "12345", 5));
    say("writev", writev(fd, two, 2));
    say("lseek", lseek(fd, 0, SEEK_SET));
    say("read", read(fd, text, 3));
    say("readv", readv(fd, two, 0));
    for (int i = 0; i < 200; i++)
        if (pwrite(fd, "x", 1, i) != 1 || read(fd, text, 1) != 1) say("round", i);
    for (int i = 0; i < 40; i++) {
        say("pipe write", write(11, text, i));
        if (i) say("pipe read", read(10, text, sizeof text));
    }
    fcntl(10, F_SETFL, O_NONBLOCK);
    say("empty", read(10, text, 1));
    say("errno", errno);
    say("close", close(11));
    say("end", read(10, text, 1));
    say("bad", read(99, text, 1));
    say("errno", errno);
}

static void numbers(void) {
    int fd = file(), other;
    say("dup", dup(fd) >= 0);
    say("dup2", dup2(fd, 40));
    say("dup3", dup3(fd, 41, O_CLOEXEC));
    say("F_DUPFD", fcntl(fd, F_DUPFD, 50));
    say("F_GETFD", fcntl(41, F_GETFD));
    say("F_SETFL", fcntl(fd, F_SETFL, O_APPEND));
    say("dup2 of a pipe", dup2(10, 42));
    say("F_DUPFD of a pipe", fcntl(11, F_DUPFD, 60));
    say("FIONREAD", ioctl(10, FIONREAD, &other));
    say("TIOCGWINSZ", ioctl(fd, TIOCGWINSZ, text));
    say("close", close(40));
    say("close_range", close_range(41, 60, 0));
    closefrom(30);
    say("closed", write(50, "x", 1));
}

static volatile int handled;
static sigjmp_buf back;

static void handler(int number) {
    handled += number;
    if (write(11, "h", 1) != 1) abort();
}

static void out(int number) {
    (void)number;
    siglongjmp(back, 1);
}

static void signals(void) {
    struct sigaction action = {.sa_handler = handler}, old;
    say("sigaction", sigaction(SIGUSR1, &action, NULL));
    say("raise", raise(SIGUSR1));
    say("old", sigaction(SIGUSR1, NULL, &old));
    say("same", old.sa_handler == handler && !(old.sa_flags & SA_SIGINFO));
    say("signal", signal(SIGUSR2, out) == SIG_DFL);
    if (!sigsetjmp(back, 1)) raise(SIGUSR2);
    for (int i = 0; i < 40; i++) raise(SIGUSR1);
    say("read", read(10, text, sizeof text));
    say("siginterrupt", siginterrupt(SIGUSR2, 1));
    if (!sigsetjmp(back, 1)) raise(SIGUSR2);
    say("sigset", sigset(SIGUSR1, SIG_HOLD) == handler);
    say("handled", handled);
}

// A handler for the end of a child, as shells have one.
static void children(void) {
    signal(SIGCHLD, handler);
    for (int i = 0; i < 3; i++) {
        if (fork() == 0) _exit(i);
        int status = 0;
        while (wait(&status) < 0 && errno == EINTR) {
        }
        say("status", WEXITSTATUS(status));
    }
    say("handled", handled);
    pid_t child = vfork();
    if (child == 0) {
        if (write(11, "v", 1) != 1) _exit(9);
        execl(self, "early", "nothing", NULL);
        _exit(8);
    }
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    say("status", status);
    say("read", read(10, text, sizeof text));
}

// Waits in a read while another thread makes enough calls to initialize the library, then gets all.
static void *reader(void *unused) {
    long all = 0, got;
    while ((got = read(10, text, 7)) > 0) all += got;
    (void)unused;
    return (void *)all;
}

static void threads(void) {
    pthread_t thread;
    void *all;
    pthread_create(&thread, NULL, reader, NULL);
    // Not an event that could be awaited: the thread is inside a system call. Too short a time
    // makes the case weaker, and never wrong.
    usleep(1000);
    int ends[2];
    socketpair(AF_UNIX, SOCK_STREAM, 0, ends);
    for (int i = 0; i < 500; i++)
        if (write(11, text, 3) != 3) say("write", i);
    close(11);
    pthread_join(thread, &all);
    say("all", (long)all);
}

static void nothing(void) {}

static char *words[] = {"early", "nothing", NULL};

static void execs(const char *how) {
    static char bare[] = "A=1";
    char *empty[] = {bare, NULL};
    if (!strcmp(how, "execv")) execv(self, words);
    if (!strcmp(how, "execve")) execve(self, words, environ);
    if (!strcmp(how, "execve-empty")) execve(self, words, empty);
    if (!strcmp(how, "execve-null")) execve(self, words, NULL);
    if (!strcmp(how, "execvp")) execvp(self, words);
    if (!strcmp(how, "execvp-found")) execvp("true", words);
    if (!strcmp(how, "execvpe")) execvpe(self, words, environ);
    if (!strcmp(how, "execl")) execl(self, "early", "nothing", NULL);
    if (!strcmp(how, "execlp")) execlp(self, "early", "nothing", NULL);
    if (!strcmp(how, "execle")) execle(self, "early", "nothing", NULL, environ);
    if (!strcmp(how, "fexecve")) fexecve(open(self, O_RDONLY), words, environ);
    if (!strcmp(how, "execv-missing")) execv("/nonexistent", words);
    if (!strcmp(how, "execv-load")) {
        setenv("SOJOURN_LOAD", "true", 1);
        execv(self, words);
    }
    pid_t child = 0;
    int status = -1;
    if (!strcmp(how, "posix_spawn")) posix_spawn(&child, self, NULL, NULL, words, environ);
    if (!strcmp(how, "posix_spawnp")) posix_spawnp(&child, self, NULL, NULL, words, environ);
    if (!strcmp(how, "posix_spawn-empty")) posix_spawn(&child, self, NULL, NULL, words, empty);
    if (!strcmp(how, "system")) say("system", system("true"));
    if (child > 0) waitpid(child, &status, 0);
    say(how, status);
}

static const struct {
    const char *name;
    void (*act)(void);
} ACTS[] = {{"data", data},         {"numbers", numbers}, {"signals", signals},
            {"children", children}, {"threads", threads}, {"nothing", nothing}};
static const char *EXECS[] = {
    "execv",  "execve", "execve-empty", "execve-null",   "execvp",     "execvp-found", "execvpe",
    "execl",  "execlp", "execle",       "fexecve",       "execv-load", "execv-missing",
    "system", "posix_spawn", "posix_spawnp", "posix_spawn-empty"};

static void in_process(const char *name) {
    int ends[2];
    if (pipe(ends)) abort();
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[0], 10);
        dup2(ends[1], 11);
        closefrom(12);
        close(ends[0]);
        close(ends[1]);
        alarm(60);
        execl(self, "early", name, NULL);
        _exit(7);
    }
    close(ends[0]);
    close(ends[1]);
    int status;
    waitpid(child, &status, 0);
    dprintf(2, "%s ended with %d\n", name, status);
}

int main(int count, char **given) {
    static char place[4096];
    ssize_t len = readlink("/proc/self/exe", place, sizeof place - 1);
    self = place;
    if (len < 0) return 9;
    if (count < 2) {
        for (size_t i = 0; i < sizeof ACTS / sizeof *ACTS; i++) in_process(ACTS[i].name);
        for (size_t i = 0; i < sizeof EXECS / sizeof *EXECS; i++) in_process(EXECS[i]);
        return 0;
    }
    for (size_t i = 0; i < sizeof ACTS / sizeof *ACTS; i++)
        if (!strcmp(given[1], ACTS[i].name)) {
            ACTS[i].act();
            return 0;
        }
    execs(given[1]);
    return 0;
}
