/* sojourn/ipc.h - synchronous calls between address spaces.
 *
 * The C face of the crate sojourn-ipc. How it is used, who owns what for how long:
 * docs/reference/ipc-c.md. A connection is used by one thread at a time; open one per thread. A
 * server handle likewise. No function blocks without a deadline, raises a signal or prints. A null
 * or senseless argument gives SJ_INVALID.
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

/* What a function answers. docs/reference/ipc-c.md says which function gives which. */
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

/* Why a connection ended. */
#define SJ_REASON_PEER_DIED 1
#define SJ_REASON_CLOSED 2
#define SJ_REASON_EXPELLED 3
#define SJ_REASON_BAD_HEADER 4
#define SJ_REASON_BAD_SEQUENCE 5
#define SJ_REASON_BAD_LINE 6
#define SJ_REASON_BAD_LENGTH 7
#define SJ_REASON_BAD_MESSAGE 8
#define SJ_REASON_BAD_GRANT 9
#define SJ_REASON_MISSING_DESCRIPTORS 10
#define SJ_REASON_DESCRIPTOR_FLOOD 11
#define SJ_REASON_DOORBELL_FLOOD 12
#define SJ_REASON_BAD_PACKET 13
#define SJ_REASON_VERSION 14
#define SJ_REASON_TOO_MANY_CLIENTS 15
#define SJ_REASON_NO_RESOURCES 16
#define SJ_REASON_TOO_MANY_OF_USER 17

/* Flags of a grant. */
#define SJ_GRANT_WRITE 1u /* the receiver may write; the memory must have been made so */
#define SJ_GRANT_KEEP 2u  /* the receiver may keep it after the call returns */

/* A message being built. `body` points at body_len writable bytes, aligned to 8, that may be memory
 * the peer can read: write each byte once, never read back. body_len may be lowered before the
 * message is sent, not raised. A handle has one message under construction: the next sj_start() or
 * sj_reply_start() on it, or the sending, ends it. */
typedef struct sj_out {
    unsigned char *body;
    size_t body_len;
    uint16_t op;
    uint8_t n_items, n_fds, n_grants, is_reply, pad_[2];
    struct { const void *data; size_t len; } items[SJ_ITEMS_MAX]; /* must live until the sending function returns */
    int fds[SJ_FDS_MAX];                                           /* duplicated, not consumed */
    struct { uint32_t id; uint32_t flags; uint64_t offset, len; } grants[SJ_GRANTS_MAX];
    uint64_t private_[24];
} sj_out;

/* A received message. `body` is private memory, aligned to 8, valid until the next sj_call(),
 * sj_finish(), sj_recv() or sj_reply_wait() on the same handle, or until that is freed. With both
 * ends in one address space it can be the caller's own memory, which is valid only until the call
 * is answered. Of the arrays, only the first n_items, n_fds, n_grants are written. */
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

/* The right to answer one call once. Copy it to answer later (deferred reply). Using it twice, or
 * after the client is gone, is an error and nothing worse. Who will not answer says so with
 * sj_token_drop(). A call whose token is forgotten is answered with the fault Dropped (6) when the
 * handle that received it is freed; until then its caller waits, or until its deadline. */
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
    uint32_t wait;         /* 0 adaptive, 1 spin, 2 park, 3 spin and yield */
    uint32_t spin_us;      /* with wait = 1: give up spinning after so long and park; 0: never */
    uint64_t area;         /* bytes of one message in the shared region (64 KiB) */
    uint64_t max_message;  /* largest message accepted (16 MiB) */
    uint32_t max_inflight; /* calls outstanding per connection (8) */
    uint32_t max_clients;  /* server: clients at one time (4096) */
    uint64_t max_granted;  /* server: memory one client may register (256 MiB) */
    uint32_t timeout_ms;   /* client: how long the server may take to answer the greeting (5000) */
    uint32_t check_uid;    /* client: 1: connect only to a server that runs as server_uid */
    uid_t server_uid;
} sj_options;

/* What sj_connect() and sj_listen() failed at, as a sentence for people: of this thread's last
 * failure, until its next. */
const char *sj_error(void);

/* ---- client ---- */

/* address: "/path", "@abstract-name" or "fd:N" (an inherited connected socket). */
/* A descriptor is taken over in any case. SJ_REFUSED: errno says more (EPERM: served by another
 * user). */
sj_status sj_connect(const char *address, const sj_options *options, sj_connection **out);
void sj_disconnect(sj_connection *c);
/* Why a connection ended: SJ_REASON_*, or 0; sj_reason_text() names it. */
int sj_reason(const sj_connection *c);
const char *sj_reason_text(int reason);
const char *sj_status_text(sj_status s);
/* Who we are to the server. */
sj_client sj_self(const sj_connection *c);
/* Readable when the server has gone, for poll(). Not to be read or closed. */
int sj_socket(const sj_connection *c);

/* How a connection waits: as the fields of sj_options. */
typedef struct sj_wait { uint32_t wait, spin_us; } sj_wait;
/* Waits as *wait says from now on, and tells in *before how it was; either may be NULL. Messages
 * under construction, received messages and outstanding calls stay as they are. The server waits in
 * its own way. SJ_INVALID: nothing was changed or told. */
sj_status sj_set_wait(sj_connection *c, const sj_wait *wait, sj_wait *before);

/* Begins a request of body_len bytes, without items, descriptors and grants; out->body is where to
 * write them. Cannot fail: a body too large is found at the call. Only for a body beyond
 * max_message for which there is no memory is out->body NULL. */
void sj_start(sj_connection *c, uint16_t op, size_t body_len, sj_out *out);
/* Sends and waits for the answer. deadline_ns: absolute CLOCK_MONOTONIC, or SJ_FOREVER. */
sj_status sj_call(sj_connection *c, sj_out *out, int64_t deadline_ns, sj_in *in);
/* Sends only; sj_finish() waits for the answer. At most max_inflight calls can be outstanding:
 * SJ_BUSY. */
typedef struct sj_pending { uint64_t opaque; } sj_pending;
sj_status sj_submit(sj_connection *c, sj_out *out, int64_t deadline_ns, sj_pending *pending);
/* After SJ_TIMEOUT the call is given up, as by sj_give_up(): its answer is thrown away when it
 * comes. */
sj_status sj_finish(sj_connection *c, sj_pending pending, int64_t deadline_ns, sj_in *in);
sj_status sj_give_up(sj_connection *c, sj_pending pending);
/* One-way. Waits only for room, until the deadline. */
sj_status sj_send(sj_connection *c, sj_out *out, int64_t deadline_ns);
sj_status sj_notify(sj_connection *c, uint64_t bits);
sj_status sj_wait_notify(sj_connection *c, int64_t deadline_ns, uint64_t *bits);

/* ---- received messages, of either side ---- */

/* Copies n bytes of private memory, which do not overlap, the way that the processor is best at,
 * whatever their alignment. */
void sj_copy(void *dst, const void *src, size_t n);

/* Copies string item i of an answer or a request, whose length is in->item_lens[i], straight to its
 * destination. */
sj_status sj_item_copy(sj_in *in, unsigned i, void *dst, size_t len);
/* The item as private memory that lives as long as in->body. */
const void *sj_item(sj_in *in, unsigned i);
/* Copies what grant i refers to, in->grants[i].len bytes, to private memory. */
sj_status sj_grant_copy(sj_in *in, unsigned i, void *dst, size_t len);
/* Copies to the memory grant i refers to, if it has SJ_GRANT_WRITE. */
sj_status sj_grant_write(sj_in *in, unsigned i, size_t offset, const void *src, size_t len);
/* The memory itself, as long as in->body. The client can change it at any moment: copy before you
 * decide by it. Writable only with SJ_GRANT_WRITE. NULL: no such grant. */
void *sj_grant_map(sj_in *in, unsigned i);
/* The same for longer, if it has SJ_GRANT_KEEP: until sj_kept_free(), even if the client
 * unregisters it or is gone. */
typedef struct sj_kept sj_kept;
sj_status sj_grant_keep(sj_in *in, unsigned i, sj_kept **out);
void *sj_kept_map(const sj_kept *k, size_t *len);
void sj_kept_free(sj_kept *k);
/* Descriptor i, once; it is the caller's from then on. -1: there is none, or it was taken. */
int sj_take_fd(sj_in *in, unsigned i);

/* ---- memory to be passed by reference: registered once, then named in out->grants ---- */

/* len zeroed bytes. flags: SJ_GRANT_WRITE if those it is lent to may ever write it. */
sj_status sj_memory_new(size_t len, uint32_t flags, sj_memory **out);
void *sj_memory_map(sj_memory *m, size_t *len);
/* Unmaps it here. Registrations stay until the connection ends. */
void sj_memory_free(sj_memory *m);
/* The number by which out->grants[].id names it on this connection. SJ_TOO_LARGE: the server takes
 * no more. */
sj_status sj_memory_register(sj_connection *c, const sj_memory *m, int64_t deadline_ns, uint32_t *id);
/* What a hostile server has mapped it can still see: free the memory then, do not reuse it. */
sj_status sj_memory_unregister(sj_connection *c, uint32_t id, int64_t deadline_ns);

/* ---- within one address space ---- */

/* Bytes from which a string item is cheaper than the body on this machine (measured once). */
size_t sj_reference_threshold(void);
/* Non-null: the server is in this address space, and this is what it gave to
 * sj_endpoint_set_local(). The object of a server written in Rust is not for C, nor the other way
 * round: this is NULL then, and generated stubs call by messages. */
void *sj_local(sj_connection *c);
/* Whether the server is in this address space. */
int sj_is_local(const sj_connection *c);

/* ---- server ---- */

/* address: as for sj_connect(), but "fd:N" is an inherited listening socket of type SOCK_SEQPACKET.
 * Clients are taken at once and served as soon as there is a server handle. */
sj_status sj_listen(const char *address, const sj_options *options, sj_endpoint **out);
/* No new clients; those there are disconnected, and sj_recv() gives SJ_DISCONNECTED when it has
 * reported that. */
void sj_close(sj_endpoint *e);
/* object: a router of generated stubs (sj_router), or memory of at least 8 bytes that does not
 * begin as one does. */
void sj_endpoint_set_local(sj_endpoint *e, void *object);
/* A connected socket to this endpoint: the right to connect, to be handed to somebody, who says
 * "fd:N". */
sj_status sj_offer(sj_endpoint *e, int *fd);
/* One handle per thread of the server; clients are spread over them. */
sj_status sj_server_new(sj_endpoint *e, sj_server **out);
/* A handle that only answers, for a thread that is handed tokens of calls others received.
 * sj_recv() on it: SJ_INVALID. */
sj_status sj_answerer_new(sj_endpoint *e, sj_server **out);
/* The clients of this handle are disconnected; the callers of calls that it received and nobody
 * answered get the fault Dropped. */
void sj_server_free(sj_server *s);
/* SJ_DISCONNECTED: the endpoint is closed and its last client is gone. */
sj_status sj_recv(sj_server *s, int64_t deadline_ns, sj_event *event);
/* Begins the answer to `token`, which any handle of the endpoint may do. Cannot fail, as
 * sj_start(). */
void sj_reply_start(sj_server *s, const sj_token *token, size_t body_len, sj_out *out);
/* Never waits. SJ_GONE: the client is. SJ_INVALID: answered already, or out is not what
 * sj_reply_start() began. SJ_TOO_LARGE: for the client; the token is still good. */
sj_status sj_reply(sj_server *s, sj_out *out);
sj_status sj_reply_fault(sj_server *s, const sj_token *token, uint32_t fault);
/* Gives up the right to answer: the caller gets the fault Dropped (6). */
sj_status sj_token_drop(sj_server *s, const sj_token *token);
/* sj_reply() and sj_recv() in one operation; out may be NULL. An answer to a client that is gone is
 * dropped; after SJ_INVALID and SJ_TOO_LARGE nothing was sent or received. */
sj_status sj_reply_wait(sj_server *s, sj_out *out, int64_t deadline_ns, sj_event *event);
/* These take a client of any handle of the endpoint; SJ_GONE: there is no such client any more. */
sj_status sj_notify_client(sj_server *s, sj_client client, uint64_t bits);
sj_status sj_set_badge(sj_server *s, sj_client client, uint64_t badge);
sj_status sj_credentials_of(sj_server *s, sj_client client, sj_credentials *out);
/* Disconnects a client, which can read the reason; SJ_EVENT_GONE follows. */
sj_status sj_expel(sj_server *s, sj_client client, int reason);

/* CLOCK_MONOTONIC, for deadlines. */
int64_t sj_now_ns(void);

#ifdef __cplusplus
}
#endif
#endif
