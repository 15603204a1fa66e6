/* `cost PROGRAM [WORD...]`: prints how many system calls and page faults a program has from `exec`
 * to its end. See tests/abi_small.rs. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static void fails(const char *what) {
    perror(what);
    exit(1);
}

static pid_t started(char **words, int is_traced) {
    pid_t child = fork();
    if (child == 0) {
        if (is_traced && ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0) fails("ptrace");
        execv(words[0], words);
        fails(words[0]);
    }
    return child;
}

/* A traced process stops before and after each call. */
static long calls(char **words) {
    pid_t child = started(words, 1);
    long stops = 0;
    for (int status; waitpid(child, &status, 0) == child && WIFSTOPPED(status); stops++)
        if (ptrace(PTRACE_SYSCALL, child, NULL, NULL) != 0) fails("ptrace");
    return stops / 2;
}

int main(int count, char **words) {
    if (count < 2) return 2;
    /* Pages that were not in memory yet cost more once. */
    long least = -1;
    for (int round = 0; round < 5; round++) {
        int status;
        struct rusage usage;
        if (wait4(started(words + 1, 0), &status, 0, &usage) < 0 || status != 0) fails("wait4");
        if (least < 0 || usage.ru_minflt < least) least = usage.ru_minflt;
    }
    printf("%ld %ld\n", calls(words + 1), least);
    return 0;
}
