/* sojourn/idl/client.h - the client's half of generated stubs.
 *
 * A stub is one interface of one server seen over one connection. Results that need memory live in
 * the stub's own arena or in the received message: until the next call on the same connection. Set
 * `results` to an arena of yours to keep them longer.
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
#ifndef SOJOURN_IDL_CLIENT_H
#define SOJOURN_IDL_CLIENT_H

#include <sojourn/idl/decode.h>
#include <sojourn/idl/encode.h>
#include <sojourn/idl/server.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SJ_STUB_STACK 512u

typedef struct sj_stub {
    sj_connection *connection;
    sj_arena *results;   /* NULL: results live until the next call on the connection */
    int64_t timeout_ns;  /* for every call; 0: none but the interface's own */
    int64_t deadline_ns; /* absolute; SJ_FOREVER: none */
    size_t threshold;    /* reference_above(auto) */
    uint32_t fault;      /* of the last call that answered SJ_FAULT */
    uint16_t base;
    const void *local; /* the implementation, if it is in this address space and may be called directly */
    sj_arena own;
    sj_buffer scratch;
    sj_in in;
} sj_stub;

/* Binds to an interface: must be called before any other use, once per connection and interface. */
static inline sj_status sj_stub_bind(sj_stub *s, sj_connection *c, const sj_interface_id *wanted)
{
    memset(s, 0, offsetof(sj_stub, in));
    s->connection = c;
    s->deadline_ns = SJ_FOREVER;
    s->threshold = sj_reference_threshold();
    sj_out out;
    sj_start(c, SJ_OP_BIND, 24, &out);
    memcpy(out.body, wanted->uuid, 16);
    sj_st16(out.body + 16, wanted->major);
    sj_st16(out.body + 18, wanted->minor);
    sj_st32(out.body + 20, 0);
    sj_status status = sj_call(c, &out, s->deadline_ns, &s->in);
    s->fault = status == SJ_FAULT ? s->in.fault : 0;
    if (status != SJ_OK)
        return status;
    if (!sj_dec_is_exactly(&s->in, 8) || sj_ld32(s->in.body + 4) != 0 || sj_ld32(s->in.body) >= SJ_OP_BIND)
        return SJ_BAD_MESSAGE;
    s->base = (uint16_t)sj_ld32(s->in.body);
    return SJ_OK;
}

/* Frees what the stub holds; not the connection. */
static inline void sj_stub_free(sj_stub *s)
{
    sj_arena_free(&s->own);
    sj_buffer_free(&s->scratch);
    s->connection = NULL;
    s->local = NULL;
}

/* Absolute deadline of a call that begins now. */
static inline int64_t sj_stub_deadline(const sj_stub *s, int64_t timeout_ns)
{
    if (s->timeout_ns)
        timeout_ns = s->timeout_ns;
    if (SJ_LIKELY(timeout_ns == 0))
        return s->deadline_ns;
    int64_t now = sj_now_ns();
    int64_t deadline = timeout_ns > SJ_FOREVER - now ? SJ_FOREVER : now + timeout_ns;
    return deadline < s->deadline_ns ? deadline : s->deadline_ns;
}

/* Where the results of the call just made go. */
static inline sj_arena *sj_stub_arena(sj_stub *s)
{
    if (s->results)
        return s->results;
    sj_arena_reset(&s->own);
    return &s->own;
}

/* Whether a message is larger than the interface's max_message. */
static inline bool sj_exceeds(const sj_enc *e, size_t body, uint64_t max)
{
    uint64_t total = body;
    for (uint32_t i = 0; i < e->n_items; i++)
        total += e->items[i].len;
    return total > max;
}

/* Sends what is in out and waits for the answer. */
static inline sj_status sj_stub_call(sj_stub *s, sj_out *out, int64_t timeout_ns)
{
    return sj_call(s->connection, out, sj_stub_deadline(s, timeout_ns), &s->in);
}

static inline sj_status sj_stub_failed(sj_stub *s, sj_status status)
{
    if (status == SJ_FAULT)
        s->fault = s->in.fault;
    return status;
}

static inline sj_status sj_stub_send(sj_stub *s, sj_out *out, int64_t timeout_ns)
{
    return sj_send(s->connection, out, sj_stub_deadline(s, timeout_ns));
}

/* The same for operations that wait in their own way, as in sj_wait; whatever comes of it, the
 * connection waits as before then. */
static inline sj_status sj_stub_call_waiting(sj_stub *s, sj_out *out, int64_t timeout_ns, uint32_t wait, uint32_t spin_us)
{
    const sj_wait own = {wait, spin_us};
    sj_wait before = {0, 0};
    const sj_status set = sj_set_wait(s->connection, &own, &before);
    const sj_status status = sj_stub_call(s, out, timeout_ns);
    if (SJ_LIKELY(set == SJ_OK))
        (void)sj_set_wait(s->connection, &before, NULL);
    return status;
}

static inline sj_status sj_stub_send_waiting(sj_stub *s, sj_out *out, int64_t timeout_ns, uint32_t wait, uint32_t spin_us)
{
    const sj_wait own = {wait, spin_us};
    sj_wait before = {0, 0};
    const sj_status set = sj_set_wait(s->connection, &own, &before);
    const sj_status status = sj_stub_send(s, out, timeout_ns);
    if (SJ_LIKELY(set == SJ_OK))
        (void)sj_set_wait(s->connection, &before, NULL);
    return status;
}

/* A body that was built in the scratch buffer becomes a message. */
static inline bool sj_stub_start(sj_stub *s, uint16_t op, sj_enc *e, sj_out *out)
{
    sj_start(s->connection, op, e->pos, out);
    if (SJ_UNLIKELY(!out->body))
        return false;
    sj_copy_any(out->body, e->body, e->pos);
    sj_enc_attach(e, out);
    return true;
}

/* A reply without descriptors, of which nothing had to be allocated. */
static inline sj_status sj_stub_finish_plain(bool ok) { return SJ_LIKELY(ok) ? SJ_OK : SJ_BAD_MESSAGE; }

/* The reply was taken apart: descriptors in it are the caller's from now on. */
static inline sj_status sj_stub_finish(sj_stub *s, const sj_dec *d, bool ok)
{
    if (SJ_UNLIKELY(!ok)) {
        if (d->fault == 0)
            return SJ_BAD_MESSAGE;
        s->fault = d->fault;
        return SJ_FAULT;
    }
    for (uint32_t i = 0; i < s->in.n_fds; i++)
        (void)sj_take_fd(&s->in, i);
    return SJ_OK;
}

/* What an implementation called directly answered. */
static inline sj_status sj_stub_local(sj_stub *s, sj_outcome outcome)
{
    if (outcome == 0)
        return SJ_OK;
    s->fault = outcome;
    return SJ_FAULT;
}

/* comm_status and fault_status: the code goes where the interface says, the call itself
 * succeeds. */
static inline sj_status sj_stub_report(sj_stub *s, sj_status status, uint32_t *comm, uint32_t *fault)
{
    if (status == SJ_FAULT && fault) {
        *fault = s->fault;
        return SJ_OK;
    }
    if (status != SJ_OK && status != SJ_FAULT && comm) {
        *comm = (uint32_t)status;
        return SJ_OK;
    }
    return status;
}

/* The implementation at an endpoint of this process, if it is C's and of this interface. */
static inline const void *sj_stub_find_local(sj_connection *c, const sj_interface_id *wanted)
{
    const sj_router *r = (const sj_router *)sj_local(c);
    if (!r || r->magic != SJ_ROUTER_MAGIC)
        return NULL;
    for (uint32_t i = 0; i < r->used; i++)
        if (memcmp(r->entries[i].interface->ids[0].uuid, wanted->uuid, 16) == 0)
            return r->entries[i].impl;
    return NULL;
}

#ifdef __cplusplus
}
#endif
#endif
