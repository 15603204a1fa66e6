/* sojourn/idl/encode.h - building the body of a message.
 *
 * Two ways. Where the size is known beforehand (a plan), the body is written straight into the
 * message; else it grows in a private buffer that is copied into the message once. A body that the
 * peer can read is written and never read back.
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
#ifndef SOJOURN_IDL_ENCODE_H
#define SOJOURN_IDL_ENCODE_H

#include <sojourn/idl/context.h>

#ifdef __cplusplus
extern "C" {
#endif

/* An object of the class `ptr` and the number it has. */
typedef struct sj_enc_node {
    const void *object;
    uint32_t tag; /* its type */
    uint32_t number;
    size_t at; /* where it was first referred to */
} sj_enc_node;

typedef struct sj_enc_item {
    const void *data;
    size_t len;
} sj_enc_item;

typedef struct sj_enc {
    unsigned char *body;
    size_t pos, end;
    sj_buffer *grow; /* NULL: the body is the message's own */
    sj_arena *arena; /* for what lives until the message is sent */
    size_t limit;    /* bytes above which flat arrays become string items */
    uint32_t depth;
    uint32_t fault; /* why it failed, if that has a code */
    uint32_t n_items, n_fds;
    sj_contexts *contexts; /* NULL in a client */
    const void *impl;
    sj_rundown_fn rundown;
    sj_client client;
    sj_cleanup **cleanup; /* NULL in a client */
    sj_enc_node *nodes;   /* hash table, nodes_size a power of two */
    uint32_t nodes_size, nodes_used;
    sj_enc_item items[SJ_ITEMS_MAX];
    int fds[SJ_FDS_MAX];
} sj_enc;

/* A threshold set by the ACF, unless nothing is to go by reference. */
static inline size_t sj_limit(size_t set, size_t wanted) { return set == SIZE_MAX ? set : wanted; }

/* For a planned body: what only graphs and context handles need is left alone. */
static inline void sj_enc_init(sj_enc *e, sj_arena *arena, size_t limit)
{
    e->body = NULL;
    e->pos = e->end = 0;
    e->grow = NULL;
    e->arena = arena;
    e->limit = limit;
    e->depth = e->fault = e->n_items = e->n_fds = 0;
    e->contexts = NULL;
    e->cleanup = NULL;
}

static inline void sj_enc_init_grow(sj_enc *e, sj_arena *arena, size_t limit, sj_buffer *buffer)
{
    sj_enc_init(e, arena, limit);
    e->grow = buffer;
    e->body = buffer->bytes;
    e->end = buffer->size;
    e->nodes = NULL;
    e->nodes_size = e->nodes_used = 0;
}

/* The message was begun: write into it. `primary` bytes belong to the primary block. */
static inline void sj_enc_into(sj_enc *e, sj_out *out, size_t primary)
{
    e->body = out->body;
    e->end = out->body_len;
    e->pos = primary;
}

/* Items and descriptors go along; a message just begun has none. */
static inline void sj_enc_attach(const sj_enc *e, sj_out *out)
{
    if (SJ_LIKELY((e->n_items | e->n_fds) == 0))
        return;
    out->n_items = (uint8_t)e->n_items;
    out->n_fds = (uint8_t)e->n_fds;
    for (uint32_t i = 0; i < e->n_items; i++) {
        out->items[i].data = e->items[i].data;
        out->items[i].len = e->items[i].len;
    }
    for (uint32_t i = 0; i < e->n_fds; i++)
        out->fds[i] = e->fds[i];
}

static SJ_COLD bool sj_enc_more_room(sj_enc *e, size_t end)
{
    if (!e->grow || end > UINT32_MAX || !sj_buffer_grow(e->grow, end))
        return false;
    e->body = e->grow->bytes;
    e->end = e->grow->size;
    return true;
}

/* Room for an object of `size` bytes; the gap behind it becomes zero. */
static inline bool sj_enc_object(sj_enc *e, size_t size, size_t *at)
{
    size_t room = sj_pad8(size);
    *at = e->pos;
    if (SJ_UNLIKELY(room < size || room > e->end - e->pos)) {
        if (room < size || e->pos > SIZE_MAX - room || !sj_enc_more_room(e, e->pos + room))
            return false;
    }
    if (room != size)
        sj_st64(e->body + e->pos + room - 8, 0);
    e->pos += room;
    return true;
}

/* An object one level down. */
static inline bool sj_enc_begin(sj_enc *e, size_t size, size_t *at)
{
    return ++e->depth <= SJ_DEPTH_MAX && sj_enc_object(e, size, at);
}

static inline bool sj_enc_end(sj_enc *e)
{
    e->depth--;
    return true;
}

/* Bytes that need no look inside, as an object. */
static inline bool sj_enc_bytes(sj_enc *e, const void *from, size_t size)
{
    size_t at;
    if (SJ_UNLIKELY(e->depth >= SJ_DEPTH_MAX || !sj_enc_object(e, size, &at)))
        return false;
    if (size)
        sj_copy_any(e->body + at, from, size);
    return true;
}

/* The same in a planned body, which has room: where the object is. */
static inline size_t sj_planned_object(sj_enc *e, size_t size)
{
    size_t room = sj_pad8(size), at = e->pos;
    if (room != size)
        sj_st64(e->body + at + room - 8, 0);
    e->pos = at + room;
    return at;
}

static inline void sj_planned_bytes(sj_enc *e, const void *from, size_t size)
{
    size_t at = sj_planned_object(e, size);
    if (SJ_LIKELY(size != 0))
        sj_copy_any(e->body + at, from, size);
}

/* ---- headers of arrays and strings ---- */

/* Length and form of a string; false: null where it may not be, or too long for its bound. */
static inline bool sj_plan_string(const char *s, bool nullable, int64_t bound, size_t limit, uint32_t *n, uint32_t *form)
{
    *n = *form = 0;
    if (!s)
        return nullable;
    size_t len = strlen(s);
    if (SJ_UNLIKELY(len >= UINT32_MAX || (int64_t)len >= bound))
        return false;
    *n = (uint32_t)len;
    *form = len + 1 > limit ? 2 : 1;
    return true;
}

static inline bool sj_plan_wide(const uint16_t *s, bool nullable, int64_t bound, size_t limit, uint32_t *n, uint32_t *form)
{
    *n = *form = 0;
    if (!s)
        return nullable;
    size_t len = sj_wide_length(s);
    if (SJ_UNLIKELY(len >= UINT32_MAX || (int64_t)len >= bound))
        return false;
    *n = (uint32_t)len;
    *form = (len + 1) * 2 > limit ? 2 : 1;
    return true;
}

/* Form of an array of n elements of `size` bytes. */
static inline bool sj_plan_array(const void *p, bool nullable, int64_t count, size_t size, size_t limit, uint32_t *n,
                                 uint32_t *form)
{
    *n = *form = 0;
    if (!p && nullable)
        return true;
    if (SJ_UNLIKELY(count < 0 || count > (int64_t)UINT32_MAX || (!p && count != 0)))
        return false;
    *n = (uint32_t)count;
    *form = (size_t)count * size > limit ? 2 : 1;
    return true;
}

/* The same for the part of an array that is transmitted. */
static inline bool sj_plan_varying(const void *p, bool nullable, int64_t whole, int64_t first, int64_t count, size_t size,
                                   size_t limit, uint32_t *n, uint32_t *form)
{
    *n = *form = 0;
    if (!p && nullable)
        return true;
    if (SJ_UNLIKELY(whole < 0 || whole > (int64_t)UINT32_MAX || first < 0 || count < 0 || first > whole || count > whole - first))
        return false;
    return sj_plan_array(p, nullable, count, size, limit, n, form);
}

static inline void sj_put_header(unsigned char *p, uint32_t n, uint32_t form)
{
    sj_st64(p, (uint64_t)form << 32 | n);
}

/* The same straight into a planned body, whose items are known to fit. */
static inline void sj_put_planned(sj_enc *e, unsigned char *p, const void *data, uint32_t n, uint32_t form, size_t size)
{
    if (SJ_UNLIKELY(form == 2)) {
        e->items[e->n_items].data = data;
        e->items[e->n_items++].len = size;
    }
    sj_put_header(p, n, form);
}

/* The header of what is no item unless there is room for one more; n elements of `size` bytes. */
static inline void sj_put_flat(sj_enc *e, unsigned char *p, const void *data, uint32_t n, uint32_t form, size_t size)
{
    if (SJ_UNLIKELY(form == 2)) {
        if (e->n_items == SJ_ITEMS_MAX) {
            form = 1;
        } else {
            e->items[e->n_items].data = data;
            e->items[e->n_items++].len = size;
        }
    }
    sj_put_header(p, n, form);
}

/* A string whose object follows at once: header and characters. */
static SJ_OUT_OF_LINE bool sj_put_string_slowly(sj_enc *e, size_t at, const char *s, bool nullable, int64_t bound)
{
    uint32_t n, form;
    if (!sj_plan_string(s, nullable, bound, e->limit, &n, &form))
        return false;
    sj_put_flat(e, e->body + at, s, n, form, (size_t)n + 1);
    return sj_ld32(e->body + at + 4) != 1 || sj_enc_bytes(e, s, (size_t)n + 1);
}

static inline bool sj_put_string_whole(sj_enc *e, size_t at, const char *s, bool nullable, int64_t bound)
{
    if (SJ_UNLIKELY(!s || e->depth >= SJ_DEPTH_MAX))
        return sj_put_string_slowly(e, at, s, nullable, bound);
    size_t n = strlen(s), room = sj_pad8(n + 1);
    if (SJ_UNLIKELY(room > e->end - e->pos || n >= e->limit || n >= UINT32_MAX || (int64_t)n >= bound))
        return sj_put_string_slowly(e, at, s, nullable, bound);
    unsigned char *p = e->body + e->pos;
    sj_st64(e->body + at, (uint64_t)1 << 32 | n);
    e->pos += room;
    sj_st64(p + room - 8, 0);
    sj_copy_any(p, s, n + 1);
    return true;
}

/* ---- descriptors, contexts, references ---- */

static inline bool sj_put_fd(sj_enc *e, unsigned char *p, int fd)
{
    if (fd >= 0 && e->n_fds == SJ_FDS_MAX)
        return false;
    sj_st32(p, fd >= 0);
    if (fd >= 0)
        e->fds[e->n_fds++] = fd;
    return true;
}

static inline bool sj_put_interface(sj_enc *e, unsigned char *p, const sj_interface_ref *r)
{
    if (!sj_put_fd(e, p, r->fd))
        return false;
    sj_st32(p + 4, 0);
    if (r->fd >= 0)
        memcpy(p + 8, r->uuid, 16);
    else
        memset(p + 8, 0, 16);
    return true;
}

/* A context handle. `id` is the handle it came with, for `in, out`. */
static inline bool sj_put_context(sj_enc *e, unsigned char *p, void *context, const char *kind, uint64_t id)
{
    if (!e->contexts) {
        sj_st64(p, (uint64_t)(uintptr_t)context);
        return true;
    }
    if (id) {
        sj_context_entry *x = sj_context_entry_of(e->contexts, e->client, kind, id);
        if (x && x->context == context) {
            sj_st64(p, id);
            return true;
        }
        sj_context_close(e->contexts, id);
    }
    uint64_t opened = 0;
    if (context) {
        opened = sj_context_open(e->contexts, e->client, kind, context, e->impl, e->rundown);
        if (!opened) {
            e->fault = SJ_FAULT_NO_RESOURCES;
            return false;
        }
    }
    sj_st64(p, opened);
    return true;
}

/* ---- objects of the class ptr ---- */

static inline sj_enc_node *sj_enc_find(sj_enc_node *nodes, uint32_t size, const void *object, uint32_t tag)
{
    uint64_t h = ((uint64_t)(uintptr_t)object + tag) * UINT64_C(0x9E3779B97F4A7C15);
    for (uint32_t i = (uint32_t)(h >> 32);; i++) {
        sj_enc_node *n = &nodes[i & (size - 1)];
        if (!n->object || (n->object == object && n->tag == tag))
            return n;
    }
}

static SJ_COLD bool sj_enc_rehash(sj_enc *e)
{
    uint32_t size = e->nodes_size ? e->nodes_size * 2 : 16;
    sj_enc_node *nodes = (sj_enc_node *)sj_arena_zeroed(e->arena, size * sizeof *nodes);
    if (!nodes)
        return false;
    for (uint32_t i = 0; i < e->nodes_size; i++)
        if (e->nodes[i].object)
            *sj_enc_find(nodes, size, e->nodes[i].object, e->nodes[i].tag) = e->nodes[i];
    e->nodes = nodes;
    e->nodes_size = size;
    return true;
}

/* Refers to an object; the first reference gives it its number. */
static inline bool sj_put_ptr(sj_enc *e, size_t at, const void *object, uint32_t tag)
{
    uint32_t number = 0;
    if (object) {
        if (e->nodes_used * 2 >= e->nodes_size && !sj_enc_rehash(e))
            return false;
        sj_enc_node *n = sj_enc_find(e->nodes, e->nodes_size, object, tag);
        if (!n->object) {
            n->object = object;
            n->tag = tag;
            n->at = at;
            n->number = ++e->nodes_used;
        }
        number = n->number;
    }
    sj_st64(e->body + at, number);
    return true;
}

/* Whether the object belongs to the reference at `at`. */
static inline bool sj_ptr_is_first(sj_enc *e, size_t at, const void *object, uint32_t tag)
{
    return object && sj_enc_find(e->nodes, e->nodes_size, object, tag)->at == at;
}

#ifdef __cplusplus
}
#endif
#endif
