/* Interface of the two files of the crowd test: the session's ends, and the table that accounts for
 * every byte.
 *
 * Several threads and their children write to one session and read from it at the same time. Pipes
 * and Unix sockets carry records. Each record is written by one call and read by one call, and no
 * record may be torn, lost or doubled. TCP does not keep concurrent writes apart, so on TCP every
 * byte is its writer's number, and the bytes of each writer are counted. Not here: moving the
 * session meanwhile (tests/crowd.rs). */
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

/* RECORD is no power of two, so that records come to lie across the end of a ring. CHILDREN is the
 * writer number that all children share. */
enum { WRITERS = 3, READERS = 3, CHILDREN = WRITERS, RECORD = 700, RECORDS_MAX = 2000000 };

struct record { unsigned writer, number; unsigned char filling[RECORD - 8]; };

/* Account of one direction, in memory that all processes share. */
struct table {
    atomic_long written[WRITERS + 1], found[WRITERS + 1];
    atomic_uchar seen[WRITERS + 1][RECORDS_MAX];
};

/* A process's end of the session; -1 for a direction that the process lacks. */
struct end { int in, out; struct table *to_us, *from_us; };

extern int is_tcp, is_pipe;
/* Number of records for each writer, and the file whose appearance ends the writing earlier. */
extern long records;
extern const char *until;

void fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
/* Lets threads and children use the end until the other side has stopped writing. With `forks` one
 * thread forks meanwhile. */
void use_end(struct end *end, int forks);
/* Checks that everything written was received, each record once; returns the number of bytes. */
long balance(const struct table *table, const char *what);
#endif
