/* sojourn/ipc.h - synchronous calls between address spaces.
 *
 * The C face of the crate sojourn-ipc. Semantics, limits and memory layout: docs/ipc.md.
 * A connection is used by one thread at a time; open one per thread. A server handle likewise.
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
#ifndef SOJOURN_IPC_H
#define SOJOURN_IPC_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SJ_ITEMS_MAX 16
#define SJ_FDS_MAX 16
#define SJ_GRANTS_MAX 8
#define SJ_INLINE_MAX 112 /* bytes of a body that travel in the message's own cache lines */
#define SJ_FOREVER INT64_MAX

/* What a function answers. Every operation lists those it can give in docs/ipc.md. */
typedef enum sj_status {
    SJ_OK = 0,
    SJ_TIMEOUT = 1,      /* the deadline passed */
    SJ_DISCONNECTED = 2, /* the peer is gone or has disconnected us: sj_reason() says why */
    SJ_FAULT = 3,        /* the server answered with a fault: in->fault */
    SJ_INVALID = 4,      /* an argument is not acceptable */
    SJ_TOO_LARGE = 5,    /* larger than the peer's max_message */
    SJ_SYSTEM = 6,       /* errno says why */
    SJ_BAD_MESSAGE = 7,  /* the peer's message breaks the rules of the interface */
    SJ_GONE = 8,         /* the client to be answered is gone */
    SJ_BUSY = 9,         /* all calls of this connection are outstanding */
    SJ_REFUSED = 10      /* the endpoint does not take us */
} sj_status;

typedef struct sj_connection sj_connection;
typedef struct sj_endpoint sj_endpoint;
typedef struct sj_server sj_server;
typedef struct sj_memory sj_memory;

/* A message being built. `body` points at body_len writable bytes, aligned to 8, that may be memory the
 * peer can read: write each byte once, never read back. */
typedef struct sj_out {
    unsigned char *body;
    size_t body_len;
    uint16_t op;
    uint8_t n_items, n_fds, n_grants, is_reply, pad_[2];
    struct { const void *data; size_t len; } items[SJ_ITEMS_MAX]; /* must live until the call returns */
    int fds[SJ_FDS_MAX];                                           /* duplicated, not consumed */
    struct { uint32_t id; uint32_t flags; uint64_t offset, len; } grants[SJ_GRANTS_MAX];
    uint64_t private_[24];
} sj_out;

/* A received message. `body` is private memory, aligned to 8, valid until the next sj_call(), sj_recv() or sj_reply_wait() on the same handle. */
typedef struct sj_in {
    const unsigned char *body;
    size_t body_len;
    uint16_t op;
    uint8_t n_items, n_fds, n_grants, pad_[3];
    uint32_t fault;
    uint32_t pad2_;
    size_t item_lens[SJ_ITEMS_MAX];
    int fds[SJ_FDS_MAX]; /* sj_take_fd() hands one over; the rest is closed with the message */
    struct { uint32_t id; uint32_t flags; uint64_t offset, len; } grants[SJ_GRANTS_MAX];
    uint64_t private_[24];
} sj_in;

typedef struct sj_credentials { pid_t pid; uid_t uid; gid_t gid; } sj_credentials;

/* Names a client of an endpoint for ever: a recycled index has another generation. */
typedef struct sj_client { uint32_t index, generation; } sj_client;

/* The right to answer one call once. Copy it to answer later (deferred reply). */
typedef struct sj_token { uint64_t opaque[4]; } sj_token;

typedef enum sj_event_kind {
    SJ_EVENT_CALL = 1,      /* in, token */
    SJ_EVENT_SEND = 2,      /* in: one-way, nothing to answer */
    SJ_EVENT_NOTIFY = 3,    /* bits */
    SJ_EVENT_CONNECTED = 4, /* credentials; sj_set_badge() if wanted */
    SJ_EVENT_GONE = 5       /* reason */
} sj_event_kind;

typedef struct sj_event {
    sj_event_kind kind;
    int reason;
    sj_client client;
    uint64_t badge;
    uint64_t bits;
    sj_token token;
    sj_in in;
} sj_event;

/* All sizes in bytes; 0 means the default. */
typedef struct sj_options {
    uint32_t wait;         /* 0 adaptive, 1 spin, 2 park */
    uint32_t spin_us;      /* with wait = 1: give up spinning after so long and park; 0: never */
    uint64_t area;         /* bytes of one message in the shared region (64 KiB) */
    uint64_t max_message;  /* largest message accepted (16 MiB) */
    uint32_t max_inflight; /* calls outstanding per connection (8) */
    uint32_t max_clients;  /* server: clients at one time (4096) */
} sj_options;

/* ---- client ---- */

/* address: "/path", "@abstract-name" or "fd:N" (an inherited connected socket). */
sj_status sj_connect(const char *address, const sj_options *options, sj_connection **out);
void sj_disconnect(sj_connection *c);
/* Why a connection ended: one of the SJ_REASON_* of docs/ipc.md; sj_reason_text() names it. */
int sj_reason(const sj_connection *c);
const char *sj_reason_text(int reason);
const char *sj_status_text(sj_status s);

/* Begins a request of body_len bytes; out->body is where to write them. Cannot fail: a body too large is found at the call. */
void sj_start(sj_connection *c, uint16_t op, size_t body_len, sj_out *out);
/* Sends and waits for the answer. deadline_ns: absolute CLOCK_MONOTONIC, or SJ_FOREVER. */
sj_status sj_call(sj_connection *c, sj_out *out, int64_t deadline_ns, sj_in *in);
/* One-way. Waits only for room, until the deadline. */
sj_status sj_send(sj_connection *c, sj_out *out, int64_t deadline_ns);
sj_status sj_notify(sj_connection *c, uint64_t bits);
sj_status sj_wait_notify(sj_connection *c, int64_t deadline_ns, uint64_t *bits);
/* Copies string item i of an answer or a request, whose length is in->item_lens[i], straight to its destination. */
sj_status sj_item_copy(sj_in *in, unsigned i, void *dst, size_t len);
/* The item as private memory that lives as long as in->body. */
const void *sj_item(sj_in *in, unsigned i);
/* Copies what grant i refers to, in->grants[i].len bytes, to private memory. */
sj_status sj_grant_copy(sj_in *in, unsigned i, void *dst, size_t len);
int sj_take_fd(sj_in *in, unsigned i);
/* Bytes from which a string item is cheaper than the body on this machine (measured once). */
size_t sj_reference_threshold(void);
/* Non-null: the server is in this address space, and this is what it gave to sj_endpoint_set_local(). */
void *sj_local(sj_connection *c);

/* ---- server ---- */

sj_status sj_listen(const char *address, const sj_options *options, sj_endpoint **out);
void sj_close(sj_endpoint *e);
void sj_endpoint_set_local(sj_endpoint *e, void *object);
/* One handle per thread of the server; clients are spread over them. */
sj_status sj_server_new(sj_endpoint *e, sj_server **out);
void sj_server_free(sj_server *s);
sj_status sj_recv(sj_server *s, int64_t deadline_ns, sj_event *event);
/* Begins the answer to `token`. */
void sj_reply_start(sj_server *s, const sj_token *token, size_t body_len, sj_out *out);
sj_status sj_reply(sj_server *s, sj_out *out);
sj_status sj_reply_fault(sj_server *s, const sj_token *token, uint32_t fault);
/* sj_reply() and sj_recv() in one operation; out may be NULL. */
sj_status sj_reply_wait(sj_server *s, sj_out *out, int64_t deadline_ns, sj_event *event);
sj_status sj_notify_client(sj_server *s, sj_client client, uint64_t bits);
sj_status sj_set_badge(sj_server *s, sj_client client, uint64_t badge);
sj_status sj_credentials_of(sj_server *s, sj_client client, sj_credentials *out);
sj_status sj_expel(sj_server *s, sj_client client, int reason);

int64_t sj_now_ns(void);

#ifdef __cplusplus
}
#endif
#endif
