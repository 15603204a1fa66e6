/* One end of a Unix or TCP connection, for the tests of the reasons that `sojourn ss` shows. See
 * tests/why.rs.
 *
 * why [WORD...] serve|call PLACE COUNT        PLACE: a path, or ADDRESS:PORT
 * why forbid PROGRAM ARGUMENTS...             runs PROGRAM with close_range and unshare forbidden
 *
 * `call` asks COUNT times, and `serve` answers. Then both write their process IDs to the files
 * call.pid and serve.pid of the current folder, and wait to be killed, for two minutes at most.
 * Each WORD is done first:
 *
 *   chroot=DIR  changes the root folder to DIR
 *   limit=N     limits the number of processes to N (RLIMIT_NPROC)
 *   memory=N    limits the address space to N bytes
 *   data=N      limits the data to N bytes
 *   user=N      becomes user N of group N
 *   sandbox     installs a system call filter that allows everything
 *   slow=N      (call) leaves 10 ms before each of the last N questions
 *   clone       makes a child with a stack of its own (clone)
 *   numbers     (after half of the questions) opens and closes every descriptor number */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static void need(int is_fine, const char *what)
{
    if (!is_fine) {
        perror(what);
        exit(1);
    }
}

static void filter(struct sock_filter *code, unsigned short length)
{
    struct sock_fprog program = { .len = length, .filter = code };
    need(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0, "no_new_privs");
    need(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) == 0, "seccomp");
}

static void allow_all(void)
{
    struct sock_filter code[] = { BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW) };
    filter(code, 1);
}

static void forbid(char **words)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_close_range, 2, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_unshare, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
    };
    filter(code, 5);
    execv(words[0], words);
    need(0, words[0]);
}

static void confine(const char *word, int number, const char *folder)
{
    struct rlimit limit = { (rlim_t)number, (rlim_t)number };
    if (strncmp(word, "chroot", 6) == 0)
        need(chroot(folder) == 0, word);
    else if (strncmp(word, "limit", 5) == 0)
        need(setrlimit(RLIMIT_NPROC, &limit) == 0, word);
    else if (strncmp(word, "memory", 6) == 0)
        need(setrlimit(RLIMIT_AS, &limit) == 0, word);
    else if (strncmp(word, "data", 4) == 0)
        need(setrlimit(RLIMIT_DATA, &limit) == 0, word);
    else
        need(setgid((gid_t)number) == 0 && setuid((uid_t)number) == 0, word);
}

static int at_once(void *nothing)
{
    (void)nothing;
    return 0;
}

static void clone_with_stack(void)
{
    static _Alignas(16) char stack[1 << 16];
    int child = clone(at_once, stack + sizeof stack, SIGCHLD, NULL);
    need(child >= 0, "clone");
    need(waitpid(child, NULL, 0) == child, "waitpid");
}

/* Makes a socket, and returns it with the address that PLACE means. */
static int made(const char *place, struct sockaddr_storage *name, socklen_t *length)
{
    const char *colon = strchr(place, ':');
    memset(name, 0, sizeof *name);
    if (colon == NULL) {
        struct sockaddr_un *path = (struct sockaddr_un *)name;
        path->sun_family = AF_UNIX;
        strncpy(path->sun_path, place, sizeof path->sun_path - 1);
        *length = sizeof *path;
        return socket(AF_UNIX, SOCK_STREAM, 0);
    }
    struct sockaddr_in *internet = (struct sockaddr_in *)name;
    char address[32] = "";
    strncat(address, place, (size_t)(colon - place));
    internet->sin_family = AF_INET;
    internet->sin_port = htons((unsigned short)atoi(colon + 1));
    need(inet_pton(AF_INET, address, &internet->sin_addr) == 1, place);
    *length = sizeof *internet;
    return socket(AF_INET, SOCK_STREAM, 0);
}

static int opened(int is_server, const char *place)
{
    struct sockaddr_storage name;
    socklen_t length;
    int fd = made(place, &name, &length), one = 1;
    if (!is_server) {
        for (;;) {
            if (connect(fd, (struct sockaddr *)&name, length) == 0)
                return fd;
            close(fd);
            usleep(2000);
            fd = made(place, &name, &length);
        }
    }
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    need(bind(fd, (struct sockaddr *)&name, length) == 0, "bind");
    need(listen(fd, 1) == 0, "listen");
    int end = accept(fd, NULL, NULL);
    need(end >= 0, "accept");
    close(fd);
    return end;
}

enum { NUMBERS = 1024 };

static int limit_numbers(void)
{
    struct rlimit limit = { NUMBERS, NUMBERS };
    need(setrlimit(RLIMIT_NOFILE, &limit) == 0, "setrlimit");
    return 1;
}

static void take_numbers(int but)
{
    for (int fd = 3; fd < NUMBERS; fd++)
        if (fd != but)
            dup2(1, fd);
    for (int fd = 3; fd < NUMBERS; fd++)
        if (fd != but)
            close(fd);
}

static void say(const char *role)
{
    char path[64], text[32];
    snprintf(path, sizeof path, "%s.new", role);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    need(fd >= 0, path);
    int length = snprintf(text, sizeof text, "%d\n", (int)getpid());
    need(write(fd, text, (size_t)length) == length, "write");
    close(fd);
    need(rename(path, role) == 0, role);
}

int main(int count, char **words)
{
    int numbers = 0, slow = 0;
    alarm(120);
    if (count > 2 && strcmp(words[1], "forbid") == 0)
        forbid(words + 2);
    int at = 1;
    for (; at < count && strcmp(words[at], "serve") != 0 && strcmp(words[at], "call") != 0; at++) {
        const char *value = strchr(words[at], '=');
        if (strncmp(words[at], "slow=", 5) == 0)
            slow = atoi(words[at] + 5);
        else if (value != NULL)
            confine(words[at], atoi(value + 1), value + 1);
        else if (strcmp(words[at], "sandbox") == 0)
            allow_all();
        else if (strcmp(words[at], "clone") == 0)
            clone_with_stack();
        else if (strcmp(words[at], "numbers") == 0)
            numbers = limit_numbers();
    }
    need(at + 2 < count, "arguments");
    int is_server = strcmp(words[at], "serve") == 0, questions = atoi(words[at + 2]);
    int end = opened(is_server, words[at + 1]);
    char text[16];
    for (int i = 0; i < questions; i++) {
        if (numbers && i == questions / 2)
            take_numbers(end);
        if (is_server) {
            need(read(end, text, sizeof text) == sizeof text, "read");
            need(write(end, text, sizeof text) == sizeof text, "write");
        } else {
            if (i >= questions - slow)
                usleep(10 * 1000);
            memset(text, i, sizeof text);
            need(write(end, text, sizeof text) == sizeof text, "write");
            need(read(end, text, sizeof text) == sizeof text, "read");
            for (size_t j = 0; j < sizeof text; j++)
                need(text[j] == (char)i, "other bytes");
        }
    }
    say(is_server ? "serve.pid" : "call.pid");
    for (;;)
        pause();
}
