/* What the C tests share: a server that does as each operation says, and a client that checks what
 * comes back. */
#ifndef CHECKS_H
#define CHECKS_H

#include <sojourn/ipc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHECK(condition)                                                                     \
    do {                                                                                     \
        if (!(condition)) {                                                                  \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);          \
            _exit(1);                                                                        \
        }                                                                                    \
    } while (0)

#define CHECK_STATUS(expected, call)                                                         \
    do {                                                                                     \
        sj_status status_ = (call);                                                          \
        if (status_ != (expected)) {                                                         \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, sj_status_text(status_)); \
            _exit(1);                                                                        \
        }                                                                                    \
    } while (0)

enum {
    OP_ECHO = 1,     /* body and items come back */
    OP_KEEP = 2,     /* answered when OP_RELEASE comes */
    OP_RELEASE = 3,  /* echo, after all that was kept is answered with "late" */
    OP_FAULT = 4,    /* fault 0x1234 */
    OP_FDS = 5,      /* "hello" is written to each descriptor; the answer brings a pipe that gives "back" */
    OP_NOTIFY = 6,   /* the client is notified of the 8 bytes of the body, shifted by one */
    OP_WHO = 7,      /* pid, uid, gid as 4 bytes each, badge as 8 */
    OP_DIE = 8,      /* the server kills itself with SIGKILL */
    OP_GRANT = 9,    /* sum of grant 0; written to grant 1, if there is one */
    OP_LARGE = 10,   /* an answer of as many bytes as the 8 bytes of the body say, as pattern() has them */
    OP_MISUSE = 11,  /* the server misuses tokens and messages in every way, and answers in the end */
    OP_NEVER = 12,   /* no answer */
    OP_EXPEL = 13,   /* the client is disconnected for SJ_REASON_BAD_MESSAGE */
    OP_ELSEWHERE = 14, /* echo, answered by another thread */
    OP_KEPT = 15,    /* grant 0 is kept; the next call of it answers the first byte of what was kept */
    OP_COUNT = 16,   /* how many one-way messages have come, as 8 bytes */
    OP_ITEM = 17,    /* an item of as many bytes as the 8 bytes of the body say */
    OP_STOP = 18     /* the server ends after its answer */
};

#define BADGE 77u

static inline unsigned char pattern(size_t at) { return (unsigned char)(at * 31u % 251u); }

static inline uint64_t load64(const void *p)
{
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline int64_t within_ms(int64_t ms) { return sj_now_ns() + ms * 1000000; }

/* Serves until OP_STOP. */
void serve(sj_endpoint *endpoint, sj_server *server);
/* Everything but what ends the server. */
void check_all(sj_connection *connection, const char *address);
void check_stop(sj_connection *connection);

#endif
