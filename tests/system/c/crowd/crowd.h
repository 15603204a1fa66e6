/* What the two files of the crowd share: the session's ends, and the table in which every byte is found again.
 *
 * Several threads, and children of theirs, write to one session and read from it at once. Pipes and Unix sockets carry records, each
 * written by one call and read by one: none may be torn, lost or doubled. TCP promises nothing of that: there every byte is its
 * writer's number, and they are counted. Not here: whether the session moves meanwhile (tests/crowd.rs). */
#ifndef CROWD_H
#define CROWD_H
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>

/* RECORD: no power of two, so that records come to lie across the end of a ring. CHILDREN: the writer that stands for all children. */
enum { WRITERS = 3, READERS = 3, CHILDREN = WRITERS, RECORD = 700, RECORDS_MAX = 2000000 };

struct record { unsigned writer, number; unsigned char filling[RECORD - 8]; };

/* One direction, in memory that all processes share. */
struct table {
    atomic_long written[WRITERS + 1], found[WRITERS + 1];
    atomic_uchar seen[WRITERS + 1][RECORDS_MAX];
};

/* A process's end: -1 where the direction is not there. */
struct end { int in, out; struct table *to_us, *from_us; };

extern int is_tcp, is_pipe;
/* How many records each writer writes; and the file whose appearance ends the writing before that. */
extern long records;
extern const char *until;

void fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
/* Threads and children use the end until the other side's writing has ended. `forks`: one thread forks meanwhile. */
void use_end(struct end *end, int forks);
/* What was written was found, each record once; the number of bytes. */
long balance(const struct table *table, const char *what);
#endif
