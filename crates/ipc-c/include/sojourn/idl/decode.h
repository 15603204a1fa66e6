/* sojourn/idl/decode.h - taking a message apart.
 *
 * Works on the private copy of the body only, checks everything docs/reference/idl-wire.md lists,
 * and cannot be told not to. Functions answer false for a message that breaks the rules;
 * sj_dec.fault says if it was something else.
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
#ifndef SOJOURN_IDL_DECODE_H
#define SOJOURN_IDL_DECODE_H

#include <sojourn/idl/context.h>

#ifdef __cplusplus
extern "C" {
#endif

/* An object of the class `ptr`: memory is there from its first reference on, contents later. */
typedef struct sj_dec_node {
    void *object;
    uint32_t tag;
    const unsigned char *first;
} sj_dec_node;

typedef struct sj_dec {
    const unsigned char *body;
    size_t pos, end;
    sj_in *in;
    sj_arena *arena;
    void *(*provider)(size_t size); /* where values go instead of the arena */
    uint32_t depth;
    uint32_t fault;
    uint32_t item, fd, grant; /* next to be taken */
    bool in_place;            /* values may point into the body */
    sj_contexts *contexts;    /* NULL in a client */
    sj_client client;
    sj_cleanup **cleanup; /* NULL in a client */
    sj_dec_node *nodes;
    uint32_t nodes_size, nodes_used;
} sj_dec;

static inline void sj_dec_init(sj_dec *d, sj_in *in, sj_arena *arena, bool in_place)
{
    d->body = in->body;
    d->pos = 0;
    d->end = in->body_len;
    d->in = in;
    d->arena = arena;
    d->provider = NULL;
    d->depth = d->fault = d->item = d->fd = d->grant = 0;
    d->in_place = in_place;
    d->contexts = NULL;
    d->cleanup = NULL;
    d->nodes = NULL;
    d->nodes_size = d->nodes_used = 0;
}

/* Where values go, while it is something else than what the decoder began with. */
typedef struct sj_dec_memory {
    sj_arena *arena;
    void *(*provider)(size_t size);
    bool in_place;
} sj_dec_memory;

static inline sj_dec_memory sj_dec_use(sj_dec *d, sj_arena *arena, void *(*provider)(size_t size))
{
    sj_dec_memory before = {d->arena, d->provider, d->in_place};
    d->arena = arena;
    d->provider = provider;
    d->in_place = false;
    return before;
}

static inline void sj_dec_return(sj_dec *d, const sj_dec_memory *before)
{
    d->arena = before->arena;
    d->provider = before->provider;
    d->in_place = before->in_place;
}

/* A body that has nothing but its primary block. */
static inline bool sj_dec_is_exactly(const sj_in *in, size_t size)
{
    return in->body_len == size && (in->n_items | in->n_fds | in->n_grants) == 0;
}

/* The primary block. */
static inline bool sj_dec_primary(sj_dec *d, size_t size)
{
    d->pos = size;
    return d->end >= size;
}

/* Nothing may be left over. */
static inline bool sj_dec_done(const sj_dec *d)
{
    return d->pos == d->end && d->item == d->in->n_items && d->fd == d->in->n_fds && d->grant == d->in->n_grants;
}

static inline void *sj_dec_alloc(sj_dec *d, size_t size)
{
    void *p = SJ_UNLIKELY(d->provider != NULL) ? d->provider(size ? size : 1) : sj_arena_alloc(d->arena, size);
    if (SJ_UNLIKELY(!p))
        d->fault = SJ_FAULT_NO_RESOURCES;
    return p;
}

static inline void *sj_dec_zeroed(sj_dec *d, size_t size)
{
    void *p = sj_dec_alloc(d, size);
    if (p)
        memset(p, 0, size);
    return p;
}

/* n values of `size` bytes each in memory. */
static inline void *sj_dec_array(sj_dec *d, size_t n, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(n, size, &bytes)) {
        d->fault = SJ_FAULT_NO_RESOURCES;
        return NULL;
    }
    return sj_dec_alloc(d, bytes);
}

static inline void *sj_dec_array_zeroed(sj_dec *d, size_t n, size_t size)
{
    void *p = sj_dec_array(d, n, size);
    if (p)
        memset(p, 0, n * size);
    return p;
}

/* The next object: n elements of `size` bytes. The gap behind it must be zero. */
static inline bool sj_dec_object(sj_dec *d, size_t n, size_t size, const unsigned char **at)
{
    size_t bytes;
    if (SJ_UNLIKELY(__builtin_mul_overflow(n, size, &bytes) || bytes > d->end - d->pos))
        return false;
    size_t room = sj_pad8(bytes);
    if (SJ_UNLIKELY(room > d->end - d->pos))
        return false;
    *at = d->body + d->pos;
    d->pos += room;
    size_t gap = room - bytes;
    return gap == 0 || (sj_ld64(*at + room - 8) >> (8 * (8 - gap))) == 0;
}

/* The same without a decoder: the object of `bytes` (less than 2^62) that begins `pos` bytes into
 * the body. */
static inline bool sj_short_object(const sj_in *in, size_t bytes, size_t *pos, const unsigned char **at)
{
    size_t room = sj_pad8(bytes), gap = room - bytes;
    if (SJ_UNLIKELY(room > in->body_len - *pos))
        return false;
    *at = in->body + *pos;
    *pos += room;
    return gap == 0 || (sj_ld64(*at + room - 8) >> (8 * (8 - gap))) == 0;
}

static inline bool sj_dec_begin(sj_dec *d, size_t n, size_t size, const unsigned char **at)
{
    return ++d->depth <= SJ_DEPTH_MAX && sj_dec_object(d, n, size, at);
}

static inline bool sj_dec_end(sj_dec *d)
{
    d->depth--;
    return true;
}

/* Bytes at `at` as the value: where they are, if that is allowed, or a copy. */
static inline void *sj_dec_keep(sj_dec *d, const unsigned char *at, size_t size, bool copy)
{
    if (d->in_place && !copy)
        return (void *)(uintptr_t)at;
    void *p = sj_dec_alloc(d, size);
    if (p && size)
        sj_copy_any(p, at, size);
    return p;
}

/* ---- arrays and strings ---- */

/* What a header may say: form 0 only for null pointers, 2 and 3 only for flat elements. */
static inline bool sj_header_is_valid(const unsigned char *p, bool nullable, bool flat)
{
    uint32_t form = sj_ld32(p + 4);
    if (form == 1)
        return true;
    if (form == 0)
        return nullable && sj_ld32(p) == 0;
    return flat && form <= 3 && sj_ld32(p) != 0;
}

static inline bool sj_varying_is_valid(const unsigned char *p, bool nullable, bool flat)
{
    uint32_t n = sj_ld32(p), whole = sj_ld32(p + 8), first = sj_ld32(p + 12);
    if (sj_ld32(p + 4) == 0)
        return nullable && n == 0 && whole == 0 && first == 0;
    return sj_header_is_valid(p, nullable, flat) && first <= whole && n <= whole - first;
}

/* Length in bytes of the item or grant that is next. */
static inline bool sj_next_length(sj_dec *d, uint32_t form, size_t bytes)
{
    if (form == 2)
        return d->item < d->in->n_items && d->in->item_lens[d->item] == bytes;
    return d->grant < d->in->n_grants && d->in->grants[d->grant].len == bytes;
}

/* Takes the next item or grant, copied straight to `to`. */
static inline bool sj_dec_take_into(sj_dec *d, uint32_t form, void *to, size_t bytes)
{
    if (!sj_next_length(d, form, bytes))
        return false;
    if (form == 2)
        return sj_item_copy(d->in, d->item++, to, bytes) == SJ_OK;
    return sj_grant_copy(d->in, d->grant++, to, bytes) == SJ_OK;
}

/* Takes the next item or grant as private memory. */
static inline void *sj_dec_take(sj_dec *d, uint32_t form, size_t bytes, bool copy)
{
    if (!sj_next_length(d, form, bytes))
        return NULL;
    if (form == 2 && d->in_place && !copy) {
        const void *p = sj_item(d->in, d->item);
        if (p && ((uintptr_t)p & 7u) == 0) {
            d->item++;
            return (void *)(uintptr_t)p;
        }
    }
    void *p = sj_dec_alloc(d, bytes);
    return p && sj_dec_take_into(d, form, p, bytes) ? p : NULL;
}

/* The elements of an array in form 2 or 3; *out stays as it is in form 1, becomes null in form
 * 0. */
static inline bool sj_get_flat(sj_dec *d, const unsigned char *p, size_t size, bool copy, void **out)
{
    uint32_t form = sj_ld32(p + 4);
    *out = NULL;
    if (SJ_LIKELY(form < 2))
        return true;
    size_t bytes;
    if (__builtin_mul_overflow((size_t)sj_ld32(p), size, &bytes))
        return false;
    *out = sj_dec_take(d, form, bytes, copy);
    return *out != NULL;
}

/* The same for a varying array: memory for the whole of it, zero where nothing was transmitted. */
static inline bool sj_get_varying(sj_dec *d, const unsigned char *p, size_t size, bool copy, void **out)
{
    uint32_t form = sj_ld32(p + 4), n = sj_ld32(p), whole = sj_ld32(p + 8), first = sj_ld32(p + 12);
    if (form < 2 || n == whole)
        return sj_get_flat(d, p, size, copy, out);
    *out = sj_dec_array_zeroed(d, whole, size);
    return *out && sj_dec_take_into(d, form, (unsigned char *)*out + first * size, n * size);
}

/* The elements of an array in form 1, of a type that lies in memory as on the wire. */
static inline bool sj_get_elements(sj_dec *d, uint32_t n, size_t size, bool copy, const unsigned char **at, void **out)
{
    if (d->depth >= SJ_DEPTH_MAX || !sj_dec_object(d, n, size, at))
        return false;
    *out = sj_dec_keep(d, *at, n * size, copy);
    return *out != NULL;
}

/* The same for elements that go to memory there is: *to is where the first transmitted one
 * belongs. */
static inline bool sj_fill_flat(sj_dec *d, const unsigned char *p, size_t size, void *to)
{
    uint32_t form = sj_ld32(p + 4);
    return form < 2 || sj_dec_take_into(d, form, to, sj_ld32(p) * size);
}

static inline bool sj_fill_elements(sj_dec *d, uint32_t n, size_t size, const unsigned char **at, void *to)
{
    if (d->depth >= SJ_DEPTH_MAX || !sj_dec_object(d, n, size, at))
        return false;
    if (n)
        sj_copy_any(to, *at, n * size);
    return true;
}

/* n characters and a terminator, none of the characters zero. */
static inline bool sj_is_string(const void *s, size_t n)
{
    return ((const char *)s)[n] == 0 && memchr(s, 0, n) == NULL;
}

static inline bool sj_is_wide(const void *s, size_t n)
{
    const unsigned char *p = (const unsigned char *)s;
    for (size_t i = 0; i < n; i++)
        if (sj_ld16(p + 2 * i) == 0)
            return false;
    return sj_ld16(p + 2 * n) == 0;
}

static inline bool sj_check_string(const void *s, size_t n, size_t width)
{
    return width == 1 ? sj_is_string(s, n) : sj_is_wide(s, n);
}

/* A string's header: takes it at once in form 2 or 3. */
static inline bool sj_get_string(sj_dec *d, const unsigned char *p, size_t width, bool nullable, bool copy, void **out)
{
    uint32_t form = sj_ld32(p + 4);
    size_t n = sj_ld32(p);
    *out = NULL;
    if (SJ_LIKELY(form < 2))
        return form == 1 || (nullable && n == 0);
    if (form > 3)
        return false;
    *out = sj_dec_take(d, form, (n + 1) * width, copy);
    return *out != NULL && sj_check_string(*out, n, width);
}

/* A string's object, in form 1. */
static inline bool sj_get_string_more(sj_dec *d, const unsigned char *p, size_t width, bool copy, void **out)
{
    if (sj_ld32(p + 4) != 1)
        return true;
    size_t n = sj_ld32(p);
    const unsigned char *at;
    if (d->depth >= SJ_DEPTH_MAX || !sj_dec_object(d, n + 1, width, &at) || !sj_check_string(at, n, width))
        return false;
    *out = sj_dec_keep(d, at, (n + 1) * width, copy);
    return *out != NULL;
}

/* A string's header and object, where nothing comes between them. */
static SJ_OUT_OF_LINE bool sj_get_string_slowly(sj_dec *d, const unsigned char *p, bool nullable, bool copy, void **out)
{
    return sj_get_string(d, p, 1, nullable, copy, out) && sj_get_string_more(d, p, 1, copy, out);
}

static inline bool sj_get_string_whole(sj_dec *d, const unsigned char *p, bool nullable, bool copy, void **out)
{
    uint64_t header = sj_ld64(p);
    size_t n = (uint32_t)header, room = sj_pad8(n + 1);
    if (SJ_UNLIKELY(header >> 32 != 1 || d->depth >= SJ_DEPTH_MAX || copy || !d->in_place))
        return sj_get_string_slowly(d, p, nullable, copy, out);
    if (SJ_UNLIKELY(room > d->end - d->pos))
        return false;
    const unsigned char *s = d->body + d->pos;
    d->pos += room;
    *out = (void *)(uintptr_t)s;
    /* The terminator and the gap behind it are the rest of the last word. */
    return (sj_ld64(s + room - 8) >> (8 * (n & 7))) == 0 && memchr(s, 0, n) == NULL;
}

/* A string into the caller's buffer of `room` characters. */
static inline bool sj_fill_string(sj_dec *d, const unsigned char *p, size_t width, size_t room, void *to)
{
    uint32_t form = sj_ld32(p + 4);
    size_t n = sj_ld32(p);
    if (form == 0 || form > 3 || n >= room)
        return false;
    if (form == 1)
        return true;
    return sj_dec_take_into(d, form, to, (n + 1) * width) && sj_check_string(to, n, width);
}

static inline bool sj_fill_string_more(sj_dec *d, const unsigned char *p, size_t width, void *to)
{
    if (sj_ld32(p + 4) != 1)
        return true;
    size_t n = sj_ld32(p);
    const unsigned char *at;
    if (d->depth >= SJ_DEPTH_MAX || !sj_dec_object(d, n + 1, width, &at) || !sj_check_string(at, n, width))
        return false;
    sj_copy_any(to, at, (n + 1) * width);
    return true;
}

/* ---- descriptors, contexts, references ---- */

static inline bool sj_get_fd(sj_dec *d, const unsigned char *p, int *fd)
{
    uint32_t present = sj_ld32(p);
    *fd = -1;
    if (present == 0)
        return true;
    if (present != 1 || d->fd >= d->in->n_fds)
        return false;
    *fd = d->in->fds[d->fd++];
    return true;
}

static inline bool sj_get_interface(sj_dec *d, const unsigned char *p, sj_interface_ref *r)
{
    memcpy(r->uuid, p + 8, 16);
    if (!sj_get_fd(d, p, &r->fd) || sj_ld32(p + 4) != 0)
        return false;
    return sj_ld32(p) == 1 || sj_is_zero(p + 8, 16);
}

static inline bool sj_get_context(sj_dec *d, const unsigned char *p, const char *kind, void **context, uint64_t *id)
{
    *id = sj_ld64(p);
    *context = (void *)(uintptr_t)*id;
    if (!d->contexts || *id == 0)
        return true;
    sj_context_entry *x = sj_context_entry_of(d->contexts, d->client, kind, *id);
    if (!x) {
        d->fault = SJ_FAULT_BAD_CONTEXT;
        return false;
    }
    *context = x->context;
    return true;
}

/* ---- pointers ---- */

/* The word of a unique pointer. */
static inline bool sj_unique_is_valid(const unsigned char *p) { return sj_ld64(p) <= 1; }

static SJ_COLD bool sj_dec_more_nodes(sj_dec *d)
{
    uint32_t size = d->nodes_size ? d->nodes_size * 2 : 16;
    sj_dec_node *nodes = (sj_dec_node *)sj_arena_alloc(d->arena, size * sizeof *nodes);
    if (!nodes) {
        d->fault = SJ_FAULT_NO_RESOURCES;
        return false;
    }
    if (d->nodes_used)
        memcpy(nodes, d->nodes, d->nodes_used * sizeof *nodes);
    d->nodes = nodes;
    d->nodes_size = size;
    return true;
}

/* The word of a pointer of the class ptr: an object known already or `size` bytes for a new one. */
static inline bool sj_get_ptr(sj_dec *d, const unsigned char *p, uint32_t tag, size_t size, void **out)
{
    uint64_t number = sj_ld64(p);
    *out = NULL;
    if (number == 0)
        return true;
    if (number <= d->nodes_used) {
        *out = d->nodes[number - 1].object;
        return d->nodes[number - 1].tag == tag;
    }
    if (number != (uint64_t)d->nodes_used + 1)
        return false;
    if (d->nodes_used == d->nodes_size && !sj_dec_more_nodes(d))
        return false;
    *out = sj_dec_zeroed(d, size);
    if (!*out)
        return false;
    d->nodes[d->nodes_used].object = *out;
    d->nodes[d->nodes_used].tag = tag;
    d->nodes[d->nodes_used++].first = p;
    return true;
}

/* Whether the object belongs to the reference at `p`. */
static inline bool sj_get_ptr_is_first(const sj_dec *d, const unsigned char *p)
{
    uint64_t number = sj_ld64(p);
    return number != 0 && d->nodes[number - 1].first == p;
}

#ifdef __cplusplus
}
#endif
#endif
