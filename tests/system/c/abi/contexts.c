/* `contexts switches|copies`: several contexts in one thread, preempted by SIGALRM at any
 * instruction: each asks a child that echoes, over a socket or two pipes, and checks the answers;
 * two more exchange bytes by a pipe of their own. See tests/abi_contexts.rs.
 *
 * switches: the handler goes on in another context, and returns once that has come back to it, as
 *           with swapcontext(3).
 * copies:   the handler puts another context's registers into its own frame.
 *
 * The exit status is 0, or 1 with a line on the failed check. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

enum { ASKING = 6, ALL = ASKING + 2, ROUNDS = 2000, LONGEST = 3000, LIMIT_S = 100, STACK = 128 << 10, EXTENDED = 16384 };

#define NEED(condition) need(condition, #condition, __LINE__)
static void need(int is_fine, const char *what, int line) {
    if (is_fine) return;
    fprintf(stderr, "contexts: line %d: %s (%s)\n", line, what, strerror(errno));
    _exit(1);
}

struct context {
    void *rsp;
    int is_begun, is_done, in, out;
    unsigned seed;
    mcontext_t registers;
    sigset_t mask;
    char extended[EXTENDED];
    size_t extended_len;
    char stack[STACK] __attribute__((aligned(64)));
};
static struct context all[ALL];
static int now, copies;
static volatile int running;
static long preempted;
static unsigned chance = 1;

static unsigned any(unsigned *seed) {
    *seed = *seed * 1103515245u + 12345u;
    return *seed >> 8;
}

/* change(from, to): keeps what a function must keep, and goes on where the other has left. */
void change(void **from, void *to);
__asm__(".text\n.globl change\nchange:\n push %rbp\n push %rbx\n push %r12\n push %r13\n push %r14\n push %r15\n"
        " mov %rsp, (%rdi)\n mov %rsi, %rsp\n"
        " pop %r15\n pop %r14\n pop %r13\n pop %r12\n pop %rbx\n pop %rbp\n ret\n");

static void body(int which);

static void timer(int is_on) {
    struct itimerval when = { { 0, is_on ? 170 : 0 }, { 0, is_on ? 130 : 0 } };
    NEED(setitimer(ITIMER_REAL, &when, NULL) == 0);
}

static int next_of(int from) {
    for (int turn = any(&chance) % ALL, tries = 0; tries < ALL; turn++, tries++)
        if (!all[turn % ALL].is_done && turn % ALL != from) return turn % ALL;
    return from;
}

/* A context begins with the signal blocked, in the handler of another. */
static void begin(void) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGALRM);
    sigprocmask(SIG_UNBLOCK, &set, NULL);
    body(now);
    sigprocmask(SIG_BLOCK, &set, NULL);
    all[now].is_done = 1;
    running--;
    if (!running) {
        timer(0);
        printf("%ld\n", preempted);
        fflush(stdout);
        _exit(0);
    }
    if (copies) {
        /* The next signal takes another context. */
        sigprocmask(SIG_UNBLOCK, &set, NULL);
        for (;;) pause();
    }
    int next = next_of(now), last = now;
    now = next;
    change(&all[last].rsp, all[next].rsp);
}

static size_t extended_len(const void *state) {
    uint32_t words[2];
    memcpy(words, (const char *)state + 464, sizeof words);
    return words[0] == 0x46505853 ? words[1] : 512;
}

static void copy(ucontext_t *context, int next) {
    struct context *mine = &all[now], *other = &all[next];
    mine->extended_len = extended_len(context->uc_mcontext.fpregs);
    NEED(mine->extended_len <= EXTENDED);
    memcpy(mine->extended, context->uc_mcontext.fpregs, mine->extended_len);
    mine->registers = context->uc_mcontext;
    mine->mask = context->uc_sigmask;
    mine->is_begun = 1;
    now = next;
    void *place = context->uc_mcontext.fpregs;
    if (other->is_begun) {
        context->uc_mcontext = other->registers;
        context->uc_mcontext.fpregs = place;
        memcpy(place, other->extended, other->extended_len);
        return;
    }
    context->uc_mcontext.gregs[REG_RIP] = (greg_t)begin;
    context->uc_mcontext.gregs[REG_RSP] = (greg_t)(other->stack + STACK - 64 - 8);
}

static void preempts(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)info;
    int kept = errno, next = next_of(now), last = now;
    preempted++;
    if (next == last) return;
    if (copies) {
        copy(context, next);
    } else {
        now = next;
        change(&all[last].rsp, all[next].rsp);
    }
    errno = kept;
}

static ssize_t got(int fd, char *at, size_t len, unsigned how) {
    struct pollfd one = { fd, POLLIN, 0 };
    struct iovec part = { at, len };
    if (how % 3 == 0) {
        int found = poll(&one, 1, -1);
        if (found < 0) { NEED(errno == EINTR); return 0; }
    }
    ssize_t result = how % 2 ? read(fd, at, len) : readv(fd, &part, 1);
    NEED(result > 0 || (result < 0 && errno == EINTR));
    return result < 0 ? 0 : result;
}

static void put(int fd, const char *at, size_t len) {
    while (len) {
        ssize_t result = write(fd, at, len);
        NEED(result > 0 || (result < 0 && errno == EINTR));
        if (result > 0) at += result, len -= result;
    }
}

static void body(int which) {
    struct context *me = &all[which];
    char question[LONGEST], answer[LONGEST];
    for (int round = 0; round < ROUNDS; round++) {
        size_t len = which < ASKING ? 1 + any(&me->seed) % LONGEST : 1 + round * 7 % 900;
        for (size_t at = 0; at < len; at++) question[at] = (char)(round * 31 + at * 7 + (which < ASKING ? which : 0));
        if (which != ASKING + 1) put(me->out, question, len);
        if (which == ASKING) continue;
        size_t have = 0;
        memset(answer, 0, len);
        while (have < len) have += got(me->in, answer + have, len - have, any(&me->seed));
        NEED(memcmp(question, answer, len) == 0);
    }
}

static void echo(int in, int out) {
    char bytes[LONGEST];
    signal(SIGALRM, SIG_DFL);
    for (ssize_t len; (len = read(in, bytes, sizeof bytes)) > 0;) put(out, bytes, len);
    _exit(0);
}

static void connect_all(void) {
    for (int which = 0; which < ASKING; which++) {
        int there[2], back[2];
        if (which % 2) {
            NEED(socketpair(AF_UNIX, SOCK_STREAM, 0, there) == 0);
            back[0] = there[0], back[1] = there[1];
            int swap = there[0];
            there[0] = there[1], there[1] = swap;
        } else {
            NEED(pipe(there) == 0 && pipe(back) == 0);
        }
        pid_t child = fork();
        NEED(child >= 0);
        if (child == 0) {
            for (int other = 0; other < which; other++) close(all[other].in), close(all[other].out);
            if (which % 2 == 0) close(there[1]), close(back[0]);
            else close(back[0]);
            echo(there[0], back[1]);
        }
        close(there[0]);
        if (which % 2 == 0) close(back[1]);
        all[which].in = back[0], all[which].out = there[1];
    }
    int own[2];
    NEED(pipe(own) == 0);
    all[ASKING].out = own[1], all[ASKING + 1].in = own[0];
}

static void hangs(int signal) {
    (void)signal;
    static const char text[] = "contexts: hangs\n";
    if (write(2, text, sizeof text - 1)) {}
    _exit(2);
}

int main(int count, char **words) {
    NEED(count == 2);
    copies = !strcmp(words[1], "copies");
    signal(SIGPROF, hangs);
    connect_all();
    for (int which = 0; which < ALL; which++) {
        struct context *one = &all[which];
        void **top = (void **)(one->stack + STACK - 64);
        *--top = 0;
        *--top = (void *)begin;
        for (int kept = 0; kept < 6; kept++) *--top = 0;
        one->rsp = top;
        one->seed = which + 1;
    }
    running = ALL;
    struct sigaction action = { .sa_sigaction = preempts, .sa_flags = SA_SIGINFO | SA_RESTART };
    NEED(sigaction(SIGALRM, &action, NULL) == 0);
    /* The time limit is in processor time and real time of this process. */
    struct itimerval limit = { { 0, 0 }, { LIMIT_S, 0 } };
    NEED(setitimer(ITIMER_PROF, &limit, NULL) == 0);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGALRM);
    sigprocmask(SIG_BLOCK, &set, NULL);
    timer(1);
    void *unused;
    now = 0;
    if (copies) {
        /* The first context begins as the others do, from the first signal on. */
        static struct context first;
        (void)first;
    }
    change(&unused, all[0].rsp);
    return 1;
}
