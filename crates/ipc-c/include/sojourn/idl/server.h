/* sojourn/idl/server.h - the server's half of generated stubs: router, dispatch and the
 * reply-and-wait loop.
 *
 * A router holds the interfaces of one endpoint. A service is one server handle (thread) with its
 * memory and its table of context handles. sj_serve() receives, dispatches to the generated
 * function of the interface, replies and waits for the next.
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
#ifndef SOJOURN_IDL_SERVER_H
#define SOJOURN_IDL_SERVER_H

#include <sojourn/idl/decode.h>
#include <sojourn/idl/encode.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SJ_ROUTER_MAGIC UINT64_C(0x3152455455524A53) /* first word of a router */
#define SJ_INTERFACES_MAX 16u
/* Why a client is expelled that breaks the rules of an interface. */
#ifndef SJ_REASON_BAD_MESSAGE
#define SJ_REASON_BAD_MESSAGE 8
#endif

/* What a dispatch function answers: a reply is ready, a fault code, or one of these. */
typedef uint32_t sj_outcome;
#define SJ_OUTCOME_REPLY 0u
#define SJ_OUTCOME_NOTHING 0xFFFFFFFEu   /* one-way, or answered later */
#define SJ_OUTCOME_VIOLATION 0xFFFFFFFDu /* the client is to be disconnected */

struct sj_service;

/* What every implementation is told besides its parameters. */
typedef struct sj_invocation {
    sj_client client;
    uint64_t badge;
    sj_server *server;          /* NULL: called directly from the same address space */
    struct sj_service *service; /* ditto */
    sj_arena *arena;            /* for what is handed out; given back when the reply is built */
} sj_invocation;

/* The right to answer a call later. */
typedef struct sj_deferred {
    struct sj_service *service;
    sj_token token;
    sj_client client;
    const void *impl;
} sj_deferred;

/* One operation: takes the request in `event` apart, calls the implementation, begins the reply. */
typedef sj_outcome (*sj_serve_fn)(const void *impl, struct sj_service *service, sj_event *event, sj_out *out);

/* A generated interface. */
typedef struct sj_interface {
    const sj_serve_fn *serve;   /* by operation number; NULL: no such operation */
    const sj_interface_id *ids; /* its own name, then those of the interfaces it extends */
    uint16_t operations;
    uint16_t n_ids;
} sj_interface;

typedef struct sj_route {
    uint32_t base, operations;
    const sj_serve_fn *serve; /* the interface's own */
    const void *impl;
    const sj_interface *interface;
} sj_route;

typedef struct sj_router {
    uint64_t magic;
    uint32_t used;
    uint32_t operations;
    sj_route entries[SJ_INTERFACES_MAX];
} sj_router;

/* Stays where it was initialised. */
typedef struct sj_service {
    sj_server *server;
    const sj_router *router;
    sj_invocation invocation; /* of the call that is served: but for the client the same for all */
    sj_arena arena;
    sj_buffer scratch;
    sj_contexts contexts;
    sj_cleanup *cleanup;
    const sj_in *in; /* of the call that is served, if it hands descriptors out: those that came are the message's */
    int fds[SJ_FDS_MAX]; /* handed out with the reply, closed after it */
    uint32_t n_fds;
    int stop; /* set by an implementation: the loop returns after the reply */
} sj_service;

static inline void sj_router_init(sj_router *r)
{
    r->magic = SJ_ROUTER_MAGIC;
    r->used = r->operations = 0;
}

/* Adds an interface and its implementation, which must outlive the router. */
static inline sj_status sj_router_add(sj_router *r, const sj_interface *i, const void *impl)
{
    if (r->used == SJ_INTERFACES_MAX || r->operations + i->operations >= SJ_OP_BIND)
        return SJ_INVALID;
    sj_route *route = &r->entries[r->used++];
    route->base = r->operations;
    route->operations = i->operations;
    route->serve = i->serve;
    route->impl = impl;
    route->interface = i;
    r->operations += i->operations;
    return SJ_OK;
}

static inline void sj_service_init(sj_service *s, sj_server *server, const sj_router *router)
{
    memset(s, 0, sizeof *s);
    s->server = server;
    s->router = router;
    s->invocation.server = server;
    s->invocation.service = s;
    s->invocation.arena = &s->arena;
}

/* Runs all contexts down and frees what the service holds. */
static inline void sj_service_free(sj_service *s)
{
    sj_contexts_free(&s->contexts);
    sj_arena_free(&s->arena);
    sj_buffer_free(&s->scratch);
}

/* Gives up the right to answer a deferred call: the caller gets the fault Dropped. */
static inline sj_status sj_deferred_drop(const sj_deferred *later)
{
    return sj_token_drop(later->service->server, &later->token);
}

/* ---- what generated dispatch functions use ---- */

static inline sj_invocation *sj_service_invocation(sj_service *s, const sj_event *event)
{
    s->invocation.client = event->client;
    s->invocation.badge = event->badge;
    return &s->invocation;
}

/* For requests with context handles or converted values. */
static inline void sj_service_contexts(sj_service *s, const sj_event *event, sj_dec *d)
{
    d->contexts = &s->contexts;
    d->cleanup = &s->cleanup;
    d->client = event->client;
}

static inline void sj_service_enc(sj_service *s, sj_client client, const void *impl, sj_rundown_fn rundown, sj_enc *e)
{
    e->contexts = &s->contexts;
    e->cleanup = &s->cleanup;
    e->client = client;
    e->impl = impl;
    e->rundown = rundown;
}

/* Why a request was not accepted. */
static inline sj_outcome sj_service_refuse(const sj_dec *d, sj_outcome violation)
{
    return d->fault ? d->fault : violation;
}

static SJ_COLD void sj_service_hand_over(sj_service *s, const sj_enc *e)
{
    s->n_fds = 0;
    for (uint32_t i = 0; i < e->n_fds; i++) {
        bool is_borrowed = false;
        for (uint32_t k = 0; s->in && k < s->in->n_fds; k++)
            is_borrowed = is_borrowed || s->in->fds[k] == e->fds[i];
        for (uint32_t k = 0; k < s->n_fds; k++)
            is_borrowed = is_borrowed || s->fds[k] == e->fds[i];
        if (!is_borrowed)
            s->fds[s->n_fds++] = e->fds[i];
    }
}

/* Descriptors of a reply are handed over: closed once it is sent, unless they came with the
 * request. */
static inline void sj_service_attach(sj_service *s, const sj_enc *e, sj_out *out)
{
    sj_enc_attach(e, out);
    if (SJ_UNLIKELY(e->n_fds != 0))
        sj_service_hand_over(s, e);
}

/* A body that was built in the scratch buffer becomes a reply. */
static inline sj_outcome sj_service_start(sj_service *s, const sj_token *token, const sj_enc *e, sj_out *out)
{
    sj_reply_start(s->server, token, e->pos, out);
    if (SJ_UNLIKELY(!out->body))
        return SJ_FAULT_TOO_LARGE;
    sj_copy_any(out->body, e->body, e->pos);
    sj_service_attach(s, e, out);
    return SJ_OUTCOME_REPLY;
}

/* A reply that could not be built. */
static inline sj_outcome sj_service_failed(const sj_enc *e)
{
    return e->fault ? e->fault : SJ_FAULT_NO_RESOURCES;
}

/* Whether a request is larger than the interface allows. */
static inline bool sj_request_exceeds(const sj_in *in, uint64_t max)
{
    uint64_t total = in->body_len;
    for (uint32_t i = 0; i < in->n_items; i++)
        total += in->item_lens[i];
    return total > max;
}

/* ---- the loop ---- */

/* After a reply is sent: its memory and descriptors. */
static inline void sj_service_clean(sj_service *s)
{
    if (SJ_UNLIKELY(s->n_fds != 0)) {
        for (uint32_t i = 0; i < s->n_fds; i++)
            (void)close(s->fds[i]);
        s->n_fds = 0;
    }
    sj_arena_reset(&s->arena);
}

/* Whether a client that wants (uuid, major, minor) is served by what is offered. */
static inline bool sj_interface_serves(const sj_interface *i, const unsigned char *uuid, uint16_t major, uint16_t minor)
{
    for (uint16_t k = 0; k < i->n_ids; k++)
        if (memcmp(i->ids[k].uuid, uuid, 16) == 0)
            return i->ids[k].major == major && i->ids[k].minor >= minor;
    return false;
}

static SJ_COLD sj_outcome sj_service_bind(sj_service *s, sj_event *event, sj_out *out)
{
    const unsigned char *p = event->in.body;
    if (event->kind != SJ_EVENT_CALL || !sj_dec_is_exactly(&event->in, 24) || sj_ld32(p + 20) != 0)
        return SJ_OUTCOME_VIOLATION;
    for (uint32_t i = 0; i < s->router->used; i++) {
        const sj_route *r = &s->router->entries[i];
        if (!sj_interface_serves(r->interface, p, sj_ld16(p + 16), sj_ld16(p + 18)))
            continue;
        sj_reply_start(s->server, &event->token, 8, out);
        if (!out->body)
            return SJ_FAULT_NO_RESOURCES;
        sj_st64(out->body, r->base);
        return SJ_OUTCOME_REPLY;
    }
    return SJ_FAULT_UNKNOWN_INTERFACE;
}

/* One call or one-way message: to the interface whose operation it names. */
static inline sj_outcome sj_service_dispatch(sj_service *s, sj_event *event, sj_out *out)
{
    uint32_t op = event->in.op;
    const sj_route *end = s->router->entries + s->router->used;
    for (const sj_route *r = s->router->entries; SJ_LIKELY(r != end); r++) {
        uint32_t number = op - r->base;
        if (SJ_LIKELY(number < r->operations)) {
            sj_serve_fn serve = r->serve[number];
            return SJ_LIKELY(serve != NULL) ? serve(r->impl, s, event, out) : SJ_FAULT_UNKNOWN_OPERATION;
        }
    }
    if (op == SJ_OP_BIND)
        return sj_service_bind(s, event, out);
    return event->kind == SJ_EVENT_CALL ? SJ_FAULT_UNKNOWN_OPERATION : SJ_OUTCOME_VIOLATION;
}

/* What is done with an outcome other than a reply. */
static SJ_COLD void sj_service_settle(sj_service *s, sj_event *event, sj_outcome outcome)
{
    if (outcome == SJ_OUTCOME_VIOLATION)
        (void)sj_expel(s->server, event->client, SJ_REASON_BAD_MESSAGE);
    else if (outcome != SJ_OUTCOME_NOTHING && event->kind == SJ_EVENT_CALL)
        (void)sj_reply_fault(s->server, &event->token, outcome);
    sj_service_clean(s);
}

/* What a dispatch came to. True: there is a reply to be sent. */
static inline bool sj_service_outcome(sj_service *s, sj_event *event, sj_outcome outcome)
{
    if (SJ_LIKELY(outcome == SJ_OUTCOME_REPLY))
        return true;
    sj_service_settle(s, event, outcome);
    return false;
}

/* Handles one event. True: `out` is a reply to be sent by sj_reply() or sj_reply_wait(), then call
 * sj_service_clean(). */
static inline bool sj_service_handle(sj_service *s, sj_event *event, sj_out *out)
{
    if (SJ_UNLIKELY(event->kind > SJ_EVENT_SEND)) {
        if (event->kind == SJ_EVENT_GONE)
            sj_contexts_rundown(&s->contexts, event->client);
        return false;
    }
    return sj_service_outcome(s, event, sj_service_dispatch(s, event, out));
}

/* What handles an event in a loop: sj_service_handle() or the generated function of one
 * interface. */
typedef bool (*sj_handle_fn)(const void *impl, sj_service *s, sj_event *event, sj_out *out);

/* Receives, handles, replies, until the deadline, an error of the transport or `stop`. */
SJ_INLINE sj_status sj_service_run_by(sj_service *s, sj_handle_fn handle, const void *impl, int64_t deadline_ns)
{
    sj_out out;
    sj_event event;
    sj_token token;
    bool ready = false;
    memset(&token, 0, sizeof token);
    while (!s->stop) {
        sj_status status = sj_reply_wait(s->server, ready ? &out : NULL, deadline_ns, &event);
        if (ready)
            sj_service_clean(s);
        if (SJ_UNLIKELY(ready && status == SJ_TOO_LARGE))
            (void)sj_reply_fault(s->server, &token, SJ_FAULT_TOO_LARGE);
        ready = false;
        if (SJ_LIKELY(status == SJ_OK)) {
            ready = handle(impl, s, &event, &out);
            token = event.token;
        } else if (status != SJ_GONE && status != SJ_TOO_LARGE) {
            return status;
        }
    }
    sj_status status = ready ? sj_reply(s->server, &out) : SJ_OK;
    sj_service_clean(s);
    return status == SJ_GONE ? SJ_OK : status;
}

static inline bool sj_service_handle_any(const void *impl, sj_service *s, sj_event *event, sj_out *out)
{
    (void)impl;
    return sj_service_handle(s, event, out);
}

/* The same by the router. */
static inline sj_status sj_service_run(sj_service *s, int64_t deadline_ns)
{
    return sj_service_run_by(s, sj_service_handle_any, NULL, deadline_ns);
}

/* The whole of a server thread: serves the router's interfaces on one handle. */
static inline sj_status sj_serve(const sj_router *router, sj_server *server, int64_t deadline_ns)
{
    sj_service s;
    sj_service_init(&s, server, router);
    sj_status status = sj_service_run(&s, deadline_ns);
    sj_service_free(&s);
    return status;
}

#ifdef __cplusplus
}
#endif
#endif
