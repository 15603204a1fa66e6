/* What every conformance program shares: cases, the peer at the session's other end, and the transcript.
 *
 * A program has named cases. Each case runs in a process of its own for each kind of session and each phase, with a
 * second process, the peer, at the other end. The peer does what it is told over a channel of its own. What
 * the case prints is the transcript; it has no addresses, process numbers or times, so that a run under Sojourn and one
 * without must print the same. Not here: the comparison (tests/conform.rs). */
#ifndef CONFORM_H
#define CONFORM_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <linux/sockios.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>

/* Kinds of sessions. With a pipe the case has one end only: PIN it reads, POUT it writes. */
enum { TCP4 = 1, TCP6 = 2, UNIX = 4, PAIR = 8, PIN = 16, POUT = 32 };
#define TCP (TCP4 | TCP6)
#define LOCAL (UNIX | PAIR)
#define SOCK (TCP | LOCAL)
#define IN (SOCK | PIN)
#define OUT (SOCK | POUT)
#define ANY (SOCK | PIN | POUT)

/* Phases: k, in the kernel at first (it may move at any call); m, moved; r, moved and returned just before; p, moved,
 * and returned at the case's `point`. */
#define ALL_PHASES "kmrp"

/* The case's end of the session, its kind and phase. */
extern int S, kind;
extern char phase;
extern const char *kind_name;
/* The peer's process. */
extern pid_t peer_pid;

/* Defines a case. */
#define CASE(name, kinds, phases)                                                  \
    static void case_##name(void);                                                 \
    __attribute__((constructor)) static void enlist_##name(void) {                 \
        enlist(#name, kinds, phases, case_##name);                                 \
    }                                                                              \
    static void case_##name(void)
void enlist(const char *name, int kinds, const char *phases, void (*run)(void));

/* A line of the transcript. */
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* The text of a call and what it gave: a number, or the name of the error. */
#define SAY(call) report(#call, (errno = 0, (long)(call)))
long report(const char *text, long result);
/* "some" for a positive number: where the kernel may choose how many. */
#define SAY_SOME(call) report_some(#call, (errno = 0, (long)(call)))
long report_some(const char *text, long result);
/* A condition that must hold in every run; said either way. */
#define HOLDS(condition) say("%s: %s", #condition, (condition) ? "yes" : "no")
/* The case cannot go on. */
#define NEED(condition) ((condition) ? (void)0 : broken(__FILE__, __LINE__, #condition))
void broken(const char *file, int line, const char *what) __attribute__((noreturn));

/* The bytes of both directions are a known sequence. `fill` makes the next ones to send, `check` says
 * nothing if these are the next ones received, else a line. `look` checks without moving on (peeking). */
char *fill(void *buf, size_t len);
void check(const void *buf, long len);
void look(const void *buf, long len);
/* `fill` gave more than was sent: the sequence goes on where sending stopped. */
void unfill(size_t len);
/* Another process sent or received some of the sequence. */
void skip_sent(long len);
void skip_received(long len);
/* Gives the peer a descriptor of this process; it becomes the peer's current one. */
int pass_own(int fd);
/* The descriptor of the channel to the peer. */
int conform_channel(void);
/* Whole amounts, with blocking calls; -1 and errno, or the count up to the end of file. */
long put(size_t len);
long get(size_t len);
/* Sends and receives a little, whichever this end can, and says so. */
void works(const char *what);

/* What the peer can do with its end. */
enum op {
    OP_SEND,     /* a bytes, flags b; the count */
    OP_RECV,     /* a bytes, or to the end; the count, or -1 - count after an error */
    OP_RECV_ONE, /* one call for a bytes, flags b */
    OP_DRAIN,    /* to the end of file or an error; the count */
    OP_CLOSE, OP_SHUTDOWN, OP_RESET, OP_EXIT, OP_NONBLOCK,
    OP_RAW,      /* FIONREAD of the kernel object, whatever a library says */
    OP_FIONREAD, OP_SIGNAL, /* signal a, b times, c microseconds apart, to the case's process */
    OP_OPTION,   /* setsockopt(a, b, int c) */
    OP_OOB, OP_NOTHING, OP_LISTEN, OP_ACCEPT, OP_CONNECT, OP_PASS, OP_TAKE, OP_FILLUP, OP_HOLD, OP_WARM, OP_ECHO,
    OP_LINES /* a bytes that must all be the same; their number, or -1 */
};
/* Tells the peer to do it and waits for the answer; its errno is `peer_errno`. */
long peer3(enum op op, long a, long b, long c);
#define peer(op, a) peer3(op, a, 0, 0)
extern int peer_errno;
/* The same, said. */
#define SAY_PEER(op, a) report_peer(#op, #a, peer(op, a))
long report_peer(const char *op, const char *a, long result);
/* Tells the peer to do it when this process's main thread (or `tid`) sleeps, and goes on. Answer: `peer_done`. */
void later3(enum op op, long a, long b, long c);
#define later(op, a) later3(op, a, 0, 0)
void later_than(pid_t tid, enum op op, long a, long b, long c);
long peer_done(void);
/* The peer is killed, and is gone when this returns. */
void kill_peer(void);

/* The point in a case at which the session goes home in phase p; it is there when this returns. */
void point(void);
/* Sends small messages both ways until the session has moved, if it can. */
void warm(void);
void warm_with(void (*before_each)(void));
/* The same in the phases in which it is away, after something that has sent it home. Nothing may be on its way. */
void warm_again(void (*before_each)(void));
/* Sends the session home; returns when it is there. */
void go_home(void);
/* The server of the sandbox is killed, or started again. */
void kill_server(void), start_server(void);
/* Another session of the same kind to the same peer: its end here. The peer's becomes its current one;
 * `peer_use(0)` is the first. TCP and UNIX only. */
int second_session(void);
void peer_use(int number);

/* Whether the kernel object has bytes, past any library. */
long raw_fionread(int fd);
/* Waits until a thread sleeps. */
void until_asleep(pid_t process, pid_t thread);
pid_t thread_number(void);
/* A thread that has come to sleep in what it does, its number in `tid`; what it notes is said when it is joined. */
pthread_t begin(void *(*run)(void *));
extern pid_t tid;
void note(const char *format, ...) __attribute__((format(printf, 1, 2)));
void join(pthread_t thread);
/* Milliseconds since some time. */
long now_ms(void);
/* Within a quarter, or 15 ms, of what was asked for, and not less. */
int about(long ms, long wanted);
void nap(long ms);
/* The program's own path, for exec. */
extern char self_path[PATH_MAX];
/* Where the static helper is. */
extern const char *static_path;
/* Programs that run another role in a fresh process: `prog --role NAME words...`. */
void enlist_role(const char *name, int (*run)(int argc, char **argv));
#define ROLE(name)                                                                 \
    static int role_##name(int argc, char **argv);                                 \
    __attribute__((constructor)) static void enlist_role_##name(void) {            \
        enlist_role(#name, role_##name);                                           \
    }                                                                              \
    static int role_##name(int argc, char **argv)
/* What a child's status says. */
void say_status(const char *what, int status);
#endif
