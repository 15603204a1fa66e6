/* Interface shared by all conformance programs: cases, the peer at the session's other end, and the
 * transcript.
 *
 * A program has named cases. Each case runs in a process of its own for each kind of session and
 * each phase, with a second process, the peer, at the other end of the session. The case gives the
 * peer orders over a separate channel. The output of the case is the transcript. It contains no
 * addresses, process IDs or times, so that a run under Sojourn and a run without must print the
 * same. Not here: the comparison (tests/conform.rs). */
#ifndef CONFORM_H
#define CONFORM_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <execinfo.h>
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

/* Kinds of sessions. With a pipe the case has one end only: with PIN the case reads, with POUT it
 * writes. */
enum { TCP4 = 1, TCP6 = 2, UNIX = 4, PAIR = 8, PIN = 16, POUT = 32 };
#define TCP (TCP4 | TCP6)
#define LOCAL (UNIX | PAIR)
#define SOCK (TCP | LOCAL)
#define IN (SOCK | PIN)
#define OUT (SOCK | POUT)
#define ANY (SOCK | PIN | POUT)

/* Phases: k, the session begins in the kernel (and may move at any call); m, it has moved; r, it
 * has moved and was recalled just before; p, it has moved and is recalled at the case's `point`. */
#define ALL_PHASES "kmrp"

/* The case's end of the session, its kind and its phase. */
extern int S, kind;
extern char phase;
extern const char *kind_name;
/* Process ID of the peer. */
extern pid_t peer_pid;

/* Defines a case. */
#define CASE(name, kinds, phases)                                                  \
    static void case_##name(void);                                                 \
    __attribute__((constructor)) static void enlist_##name(void) {                 \
        enlist(#name, kinds, phases, case_##name);                                 \
    }                                                                              \
    static void case_##name(void)
void enlist(const char *name, int kinds, const char *phases, void (*run)(void));

/* Prints a line of the transcript. */
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Prints the text of a call and its result: a number, or the name of the error. */
#define SAY(call) report(#call, (errno = 0, (long)(call)))
long report(const char *text, long result);
/* Prints "some" for a positive result, for calls of which the kernel may choose the number. */
#define SAY_SOME(call) report_some(#call, (errno = 0, (long)(call)))
long report_some(const char *text, long result);
/* Prints if a condition holds that must hold in every run. */
#define HOLDS(condition) say("%s: %s", #condition, (condition) ? "yes" : "no")
/* Ends the case unless the condition holds, because the case cannot go on. */
#define NEED(condition) ((condition) ? (void)0 : broken(__FILE__, __LINE__, #condition))
void broken(const char *file, int line, const char *what) __attribute__((noreturn));

/* The bytes of each direction are a known sequence. `fill` writes the next bytes to send. `check`
 * prints a line unless the bytes are the next ones to receive. `look` checks likewise, but leaves
 * the position as it is (for peeking). */
char *fill(void *buf, size_t len);
void check(const void *buf, long len);
void look(const void *buf, long len);
/* Takes back the last `len` bytes of `fill`, for a call that sent less than it was given. */
void unfill(size_t len);
/* Advance the position of a sequence of which another process has sent or received a part. */
void skip_sent(long len);
void skip_received(long len);
/* Passes a descriptor of this process to the peer, as the peer's current session. */
int pass_own(int fd);
/* Returns the descriptor of the channel to the peer. */
int conform_channel(void);
/* Send or receive `len` bytes with blocking calls. The result is the number of bytes, which is
 * smaller at end of file, or -1 with errno. */
long put(size_t len);
long get(size_t len);
/* Sends and receives a few bytes in the directions that this end has, and prints the results. */
void works(const char *what);

/* Orders to the peer. */
enum op {
    OP_SEND,     /* sends a bytes with flags b; the count */
    OP_RECV,     /* receives a bytes, or up to the end; the count, or -1 - count after an error */
    OP_RECV_ONE, /* makes one call for a bytes with flags b */
    OP_DRAIN,    /* receives up to the end of file or an error; the count */
    OP_CLOSE, OP_SHUTDOWN, OP_RESET, OP_EXIT, OP_NONBLOCK,
    OP_RAW,      /* FIONREAD of the kernel object, past any library */
    OP_FIONREAD, OP_SIGNAL, /* sends the case's process signal a, b times, c microseconds apart */
    OP_OPTION,   /* setsockopt(a, b, int c) */
    OP_OOB, OP_NOTHING, OP_LISTEN, OP_ACCEPT, OP_CONNECT, OP_PASS, OP_TAKE, OP_FILLUP, OP_HOLD, OP_WARM, OP_ECHO,
    OP_LINES /* receives a bytes that must all be equal; their number, or -1 */
};
/* Gives the peer an order and waits for the answer; `peer_errno` is the peer's errno. */
long peer3(enum op op, long a, long b, long c);
#define peer(op, a) peer3(op, a, 0, 0)
extern int peer_errno;
/* Gives the peer an order and prints the answer. */
#define SAY_PEER(op, a) report_peer(#op, #a, peer(op, a))
long report_peer(const char *op, const char *a, long result);
/* Gives the peer an order to carry out once this process's main thread (or the thread `tid`)
 * sleeps, and returns at once. `peer_done` waits for the answer. */
void later3(enum op op, long a, long b, long c);
#define later(op, a) later3(op, a, 0, 0)
void later_than(pid_t tid, enum op op, long a, long b, long c);
long peer_done(void);
/* Kills the peer and waits until it has ended. */
void kill_peer(void);

/* Marks the point of a case at which the session is recalled in phase p; the recall is complete
 * when the function returns. */
void point(void);
/* Sends small messages both ways until the session has moved, if it can move. */
void warm(void);
void warm_with(void (*before_each)(void));
/* Makes the session move again after something has recalled it, in the phases in which it should be
 * moved. No bytes may be in transit. */
void warm_again(void (*before_each)(void));
/* Recalls the session, and returns when the recall is complete. */
void go_home(void);
/* Kill and start the session server of the sandbox. */
void kill_server(void), start_server(void);
/* Opens another session of the same kind to the same peer and returns its end. The peer's end
 * becomes the peer's current session; `peer_use(0)` selects the first. Only for TCP and UNIX. */
int second_session(void);
void peer_use(int number);

/* Returns the number of bytes in the kernel object, past any library. */
long raw_fionread(int fd);
/* Waits until a thread sleeps. */
void until_asleep(pid_t process, pid_t thread);
pid_t thread_number(void);
/* Starts a thread and waits until it sleeps; `tid` is its thread ID. The lines that the thread
 * gives `note` are printed by `join`. */
pthread_t begin(void *(*run)(void *));
extern pid_t tid;
void note(const char *format, ...) __attribute__((format(printf, 1, 2)));
void join(pthread_t thread);
/* Returns a time in milliseconds, for differences. */
long now_ms(void);
/* Returns 1 if `ms` is at least `wanted` and exceeds it by at most a quarter or 15 ms. */
int about(long ms, long wanted);
void nap(long ms);
/* Path of this program, for exec. */
extern char self_path[PATH_MAX];
/* Path of the statically linked helper (static.c). */
extern const char *static_path;
/* Defines a role, which this program has if it is run as `prog --role NAME words...`. */
void enlist_role(const char *name, int (*run)(int argc, char **argv));
#define ROLE(name)                                                                 \
    static int role_##name(int argc, char **argv);                                 \
    __attribute__((constructor)) static void enlist_role_##name(void) {            \
        enlist_role(#name, role_##name);                                           \
    }                                                                              \
    static int role_##name(int argc, char **argv)
/* Prints the exit status of a child in words. */
void say_status(const char *what, int status);
#endif
