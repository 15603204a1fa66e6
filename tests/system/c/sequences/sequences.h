/* Interface of the files of the sequences program: steps of a script, which processes ("actors")
 * carry out one at a time, and what they share.
 *
 * A script (see the driver, src/sequences) first names sessions, then steps: `A read s0 100` has
 * actor A read 100 bytes from the descriptor in its slot 0. Slots stand for descriptors, so that a
 * script still means something without some of its steps. `A& read s0 100` goes on in the
 * background once A sleeps in the call, until A's next turn interrupts it. All actors map one file,
 * which has whose turn it is, their slots, and the transcript: one line for each step, without
 * addresses and process numbers. Not here: the comparison of transcripts (tests/sequences.rs). */
#ifndef SEQUENCES_H
#define SEQUENCES_H
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <linux/close_range.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>

enum { ACTORS = 6, SLOTS = 64, SESSIONS = 8, STEPS_MAX = 1000, ARGS_MAX = 20, LOG_MAX = 1 << 20 };
/* Descriptors of the program's own, out of the way of the actors'. */
enum { CHANNEL = 300 };
/* The actor of steps that the watching process carries out. */
enum { HARNESS = ACTORS };
/* Largest amount of one call. */
enum { AMOUNT_MAX = 1 << 20 };

/* A descriptor, and the end of a session that it is, if it is one: side 0 is A's. */
struct slot { int fd, session, side; };

struct shared {
    /* Index of the step whose turn it is. */
    atomic_int turn;
    atomic_int is_alive[ACTORS];
    /* One more than the step that the actor carries out in the background, or 0. */
    atomic_int busy[ACTORS];
    /* One more than the last step that the actor has carried out. */
    atomic_int done[ACTORS];
    pid_t pids[ACTORS];
    struct slot slots[ACTORS][SLOTS];
    /* Bytes written and read of each session, by the side that writes. */
    unsigned long written[SESSIONS][2], taken[SESSIONS][2];
    /* True if bytes came into that direction of which the position is not known. */
    int is_mixed[SESSIONS][2];
    /* True since a direction was filled, until it has been found empty. How much is in it, and how
     * much fits, is the kernel's or the library's choice, so amounts are not told meanwhile. */
    int is_full[SESSIONS][2], was_full[SESSIONS][2];
    /* The slots of descriptors on their way from one actor to another. */
    struct slot passing[16];
    unsigned passed, received;
    atomic_int log_len;
    char log[LOG_MAX];
};

struct step { int actor, is_background; const struct call *call; int count; long args[ARGS_MAX]; };
struct call { const char *name; void (*run)(const long *args, int count); };

extern struct shared *shared;
extern struct step steps[STEPS_MAX];
extern int steps_count, sessions_count;
extern const char *session_kinds[SESSIONS];
void read_script(void);
extern int actor;
/* A buffer for the amounts of all calls, with a margin behind it. */
extern unsigned char bytes[AMOUNT_MAX + 64];
/* The calls of each file, each list ended by a null name. */
extern const struct call data_calls[], descriptor_calls[], option_calls[], wait_calls[], process_calls[], extra_calls[];
/* What the program does that the step `spawn` starts. Returns its status. */
int be_child(void);

/* True while a step is carried out in the background. */
extern int is_background;
/* Adds to the line of this step. */
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Adds a call's result, with the name of its error. Returns it. */
long result(long value);
void fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

/* The descriptor of a slot, or -1. */
int fd_of(long slot);
struct slot *slot_of(long slot);
/* Puts the descriptor into a slot, as a duplicate of another slot's if that is not -1. */
void put_slot(long slot, int fd, long like);

/* Interrupts the calls in between if they take long: each returns EINTR then. In the background
 * only the actor's next turn interrupts them. */
void guard(void);
void unguard(void);

/* Fills `bytes` with what comes next in the slot's direction, and tells how much was sent. */
void fill(long slot, long amount);
void sent(long slot, long amount);
/* Fills `bytes` with a pattern; `check` says if what was received is not what comes next in the
 * slot's direction, or if bytes behind it were written to. */
void blank(long amount);
void check(long slot, long amount, int is_peek, int has_no_bytes);
/* Tells the result of a call that sends from the slot or receives there. */
long sending(long slot, long n);
long receiving(long slot, long n);
int is_full_out(long slot);
void set_full(long slot, int is_out, int is_full);
/* Makes later checks of the slot's outgoing direction compare nothing. */
void mix(long slot);
/* The same where the bytes come from another session. Where they stand there depends on how much
 * was taken by a session that was full, so then they are not compared at all. */
void mix_from(long slot, long source);

/* Carries out the actor's steps. Returns when the script is over. */
void act(void);
extern const char *own_path, *out_path, *script_path;
#endif
