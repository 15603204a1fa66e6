/* Questions and answers with an echo, while a signal handler leaves the waits by siglongjmp.
 *
 * jumps ADDRESS PORT FILE: rounds until FILE is there, then 2,000 in which it jumps, more if it has
 * not jumped by then. Each answer must be the question. Says `done` at the end. */

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

enum { LONGEST = 200, NOTHING = 0xff };

static sigjmp_buf back;
static volatile sig_atomic_t may_jump, jumps;
static volatile unsigned char answer[LONGEST];
static volatile int got;

/* Leaves the call only if that has received nothing: otherwise its bytes would be lost, as they
 * would be without the library. */
static void jump(int signal) {
    (void)signal;
    if (!may_jump || answer[got] != NOTHING) return;
    may_jump = 0;
    jumps++;
    siglongjmp(back, 1);
}

static void need(int is_so, const char *what) {
    if (is_so) return;
    perror(what);
    exit(1);
}

static void ask(int end, int round) {
    unsigned char question[LONGEST];
    volatile int size = 1 + round % LONGEST;
    for (int at = 0; at < size; at++) question[at] = (unsigned char)((round + at) % 251);
    for (int at = 0; at < LONGEST; at++) answer[at] = NOTHING;
    got = 0;
    need(send(end, question, size, 0) == size, "send");
    while (got < size) {
        sigsetjmp(back, 1);
        may_jump = 1;
        ssize_t len = recv(end, (void *)(answer + got), size - got, 0);
        may_jump = 0;
        need(len > 0, "recv");
        got += (int)len;
    }
    need(memcmp(question, (void *)answer, size) == 0, "another answer");
}

int main(int count, char **words) {
    need(count == 4, "words");
    struct sockaddr_in to = {.sin_family = AF_INET};
    to.sin_port = htons((unsigned short)atoi(words[2]));
    need(inet_pton(AF_INET, words[1], &to.sin_addr) == 1, "address");
    int end = socket(AF_INET, SOCK_STREAM, 0), yes = 1;
    need(connect(end, (struct sockaddr *)&to, sizeof to) == 0, "connect");
    need(setsockopt(end, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes) == 0, "TCP_NODELAY");
    struct sigaction action = {.sa_handler = jump, .sa_flags = SA_RESTART};
    need(sigaction(SIGALRM, &action, NULL) == 0, "sigaction");
    while (access(words[3], F_OK) != 0) ask(end, LONGEST);
    struct itimerval often = {{0, 300}, {0, 300}};
    need(setitimer(ITIMER_REAL, &often, NULL) == 0, "setitimer");
    for (int round = 0; round < 2000 || !jumps; round++) {
        ask(end, round);
    }
    need(setitimer(ITIMER_REAL, &(struct itimerval){{0, 0}, {0, 0}}, NULL) == 0, "setitimer");
    need(shutdown(end, SHUT_WR) == 0 && recv(end, (void *)answer, 1, 0) == 0, "the end");
    puts("done");
    return 0;
}
