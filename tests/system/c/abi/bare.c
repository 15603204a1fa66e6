/* `bare`: makes threads by clone(2) as Go does, with nothing written to memory at their begin, and
 * which end at once. Each has the number that its maker was told. */
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { FUTEX_WAIT = 0, THREADS = 3000, TOGETHER = 30, STACK = 64 << 10 };

static int numbers[TOGETHER], begun[TOGETHER];
static char stacks[TOGETHER][STACK] __attribute__((aligned(64)));

static int thread(void *at) {
    *(int *)at = syscall(SYS_gettid);
    return 0;
}

int main(void) {
    const int flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM |
                      CLONE_CHILD_CLEARTID;
    for (int round = 0; round < THREADS / TOGETHER; round++) {
        int told[TOGETHER];
        for (int i = 0; i < TOGETHER; i++) {
            begun[i] = 1;
            told[i] = clone(thread, stacks[i] + STACK, flags, &numbers[i], NULL, NULL, &begun[i]);
            if (told[i] <= 0) return 1;
        }
        for (int i = 0; i < TOGETHER; i++) {
            while (__atomic_load_n(&begun[i], __ATOMIC_ACQUIRE) != 0)
                syscall(SYS_futex, &begun[i], FUTEX_WAIT, 1, NULL, NULL, 0);
            if (numbers[i] != told[i]) {
                printf("%d, told %d\n", numbers[i], told[i]);
                return 2;
            }
        }
    }
    return 0;
}
