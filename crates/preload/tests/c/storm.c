/* Thousands of signals at any moment of data calls: no signal is lost, duplicated or out of
   order. */
#include "check.h"

enum { ALL = 30000 };
static volatile sig_atomic_t next, wrong, others;
static int loop[2], other[2];

static void counted(int s, siginfo_t *i, void *c) {
    (void)s, (void)c;
    int kept = errno;
    if (i->si_code != SI_QUEUE || i->si_value.sival_int != next) wrong++;
    next++;
    /* A handler may use descriptors as well. */
    if (next % 64 == 0) {
        char b;
        if (write(loop[1], "x", 1) != 1 || read(loop[0], &b, 1) != 1) wrong++;
    }
    errno = kept;
}
static void timer(int s) {
    (void)s;
    int kept = errno;
    char b;
    /* Only now and then, because the next signal may arrive before this handler is done. */
    if (++others % 16 == 0 && (write(other[1], "y", 1) != 1 || read(other[0], &b, 1) != 1)) wrong++;
    errno = kept;
}

static void *send_all(void *to) {
    for (int i = 0; i < ALL; i++)
        while (pthread_sigqueue(*(pthread_t *)to, SIGRTMIN + 3, (union sigval){.sival_int = i})) sched_yield();
    return 0;
}

int main(void) {
    int p[2], bad = 0;
    pthread_t me = pthread_self(), t;
    struct sigaction a = {.sa_sigaction = counted, .sa_flags = SA_SIGINFO | SA_RESTART};
    struct sigaction b = {.sa_handler = timer, .sa_flags = SA_NODEFER | SA_RESTART};
    CHECK(!pipe(loop) && !pipe(other) && !socketpair(AF_UNIX, SOCK_STREAM, 0, p));
    CHECK(!sigaction(SIGRTMIN + 3, &a, 0) && !sigaction(SIGALRM, &b, 0));
    CHECK(!setitimer(ITIMER_REAL, &(struct itimerval){{0, 50}, {0, 50}}, 0));
    CHECK(!pthread_create(&t, 0, send_all, &me));
    for (long i = 0; next < ALL; i++) {
        long w = i;
        errno = 77;
        if (write(p[0], &w, 8) != 8 || read(p[1], &w, 8) != 8 || w != i || errno != 77) bad++;
        if (i % 1000 == 0 && poll(&(struct pollfd){p[0], POLLOUT, 0}, 1, -1) != 1 && errno != EINTR) bad++;
    }
    pthread_join(t, 0);
    /* Neither signal stays blocked. */
    sig_atomic_t before = others;
    for (long i = 0; others == before && i < 2000; i++) usleep(1000);
    CHECK(others != before);
    setitimer(ITIMER_REAL, &(struct itimerval){0}, 0);
    if (wrong || bad) fprintf(stderr, "wrong %d bad %d\n", wrong, bad);
    CHECK(!wrong && !bad && others > 0 && next == ALL);
    return 0;
}
