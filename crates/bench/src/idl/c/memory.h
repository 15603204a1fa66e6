/* Transport in memory for the C rows of sojourn-idl and for the hand-written rows.
 *
 * It replaces libsojourn_ipc so that only the stubs are timed. A request is written to one buffer,
 * copied once to another (as every receiver of shared memory must), and handled. The names of
 * <sojourn/ipc.h> are redirected to functions of this file, so include it before any generated
 * file. Define memory_handle() after it: the function handles a request as a server's loop does,
 * and returns true if there is a reply. */
#ifndef SOJOURN_BENCH_MEMORY_H
#define SOJOURN_BENCH_MEMORY_H

#define sj_start MEMORY_NAME(start)
#define sj_call MEMORY_NAME(call)
#define sj_send MEMORY_NAME(send)
#define sj_copy MEMORY_NAME(copy)
#define sj_item_copy MEMORY_NAME(item_copy)
#define sj_item MEMORY_NAME(item)
#define sj_take_fd MEMORY_NAME(take_fd)
#define sj_reference_threshold MEMORY_NAME(reference_threshold)
#define sj_local MEMORY_NAME(local)
#define sj_reply_start MEMORY_NAME(reply_start)
#define sj_reply MEMORY_NAME(reply)
#define sj_reply_fault MEMORY_NAME(reply_fault)
#define sj_reply_wait MEMORY_NAME(reply_wait)
#define sj_expel MEMORY_NAME(expel)
#define sj_now_ns MEMORY_NAME(now_ns)
#define sj_grant_copy MEMORY_NAME(grant_copy)

#include <sojourn/idl/client.h>
#include <sojourn/idl/server.h>

#define BODY_MAX 8192

struct memory_buffer { unsigned char wire[BODY_MAX], own[BODY_MAX]; } __attribute__((aligned(64)));

/* The library's functions are not inlined either, so the compiler cannot see across them. */
#define MEMORY_CALL __attribute__((noinline))

static struct memory_buffer memory_request, memory_answer;
static sj_event memory_event;
static inline bool memory_handle(sj_event *event, sj_out *out);
static sj_out memory_out;

/* The one copy. Short bodies are copied in whole lines of the message, as the real transport does.
 */
static inline void memory_pass(struct memory_buffer *b, size_t len)
{
    forget(b);
    if (len == 0)
        return;
    if (len <= 48)
        memcpy(b->own, b->wire, 48);
    else if (len <= 112)
        memcpy(b->own, b->wire, 112);
    else
        memcpy(b->own, b->wire, len);
}

static inline void memory_receive(sj_in *in, struct memory_buffer *b, const sj_out *out)
{
    memory_pass(b, out->body_len);
    in->body = b->own;
    in->body_len = out->body_len;
    in->op = out->op;
    in->n_items = out->n_items;
    in->n_fds = in->n_grants = 0;
    in->fault = 0;
    for (unsigned i = 0; i < out->n_items; i++) {
        in->item_lens[i] = out->items[i].len;
        in->private_[i] = (uint64_t)(uintptr_t)out->items[i].data;
    }
    /* Keeps the compiler from removing the receiver's look-up of the operation and its checks of
     * sizes. */
    forget(in);
}

static inline void memory_begin(struct memory_buffer *b, uint16_t op, size_t len, sj_out *out)
{
    out->body = len <= BODY_MAX ? b->wire : NULL;
    out->body_len = len;
    out->op = op;
    out->n_items = out->n_fds = out->n_grants = 0;
}

void MEMORY_CALL sj_start(sj_connection *c, uint16_t op, size_t body_len, sj_out *out)
{
    (void)c;
    memory_begin(&memory_request, op, body_len, out);
}

void MEMORY_CALL sj_reply_start(sj_server *s, const sj_token *token, size_t body_len, sj_out *out)
{
    (void)s, (void)token;
    memory_begin(&memory_answer, 0, body_len, out);
}

sj_status MEMORY_CALL sj_call(sj_connection *c, sj_out *out, int64_t deadline_ns, sj_in *in)
{
    (void)c, (void)deadline_ns;
    memory_event.kind = SJ_EVENT_CALL;
    memory_receive(&memory_event.in, &memory_request, out);
    if (!memory_handle(&memory_event, &memory_out))
        return SJ_DISCONNECTED;
    memory_receive(in, &memory_answer, &memory_out);
    return SJ_OK;
}

void sj_copy(void *to, const void *from, size_t n) { memcpy(to, from, n); }

sj_status sj_item_copy(sj_in *in, unsigned i, void *to, size_t len)
{
    memcpy(to, (const void *)(uintptr_t)in->private_[i], len);
    return SJ_OK;
}

const void *sj_item(sj_in *in, unsigned i) { return (const void *)(uintptr_t)in->private_[i]; }

/* The following functions are needed for linking; these rows never call them. */
sj_status sj_send(sj_connection *c, sj_out *out, int64_t deadline_ns)
{
    (void)c, (void)out, (void)deadline_ns;
    return SJ_INVALID;
}
int sj_take_fd(sj_in *in, unsigned i) { (void)in, (void)i; return -1; }
size_t sj_reference_threshold(void) { return SIZE_MAX; }
void *sj_local(sj_connection *c) { (void)c; return NULL; }
sj_status sj_reply(sj_server *s, sj_out *out) { (void)s, (void)out; return SJ_INVALID; }
sj_status sj_reply_fault(sj_server *s, const sj_token *token, uint32_t fault)
{
    (void)s, (void)token, (void)fault;
    return SJ_OK;
}
sj_status sj_reply_wait(sj_server *s, sj_out *out, int64_t deadline_ns, sj_event *event)
{
    (void)s, (void)out, (void)deadline_ns, (void)event;
    return SJ_INVALID;
}
sj_status sj_expel(sj_server *s, sj_client client, int reason) { (void)s, (void)client, (void)reason; return SJ_OK; }
sj_status sj_grant_copy(sj_in *in, unsigned i, void *dst, size_t len)
{
    (void)in, (void)i, (void)dst, (void)len;
    return SJ_INVALID;
}
int64_t sj_now_ns(void) { return 0; }

#endif
