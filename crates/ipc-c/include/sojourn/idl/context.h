/* sojourn/idl/context.h - a server's table of context handles.
 *
 * A handle on the wire is generation << 32 | slot + 1. It belongs to one client and one kind; any
 * other use is the fault BadContext. When the client is gone its contexts are run down. One table
 * per server handle (thread).
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
#ifndef SOJOURN_IDL_CONTEXT_H
#define SOJOURN_IDL_CONTEXT_H

#include <sojourn/idl.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SJ_CONTEXT_BUCKETS 64u
/* Contexts one client may have at a time, if the table says nothing else. */
#define SJ_CONTEXTS_PER_CLIENT 1024u

/* Ends a context whose client is gone: kind is the name of its type. */
typedef void (*sj_rundown_fn)(const void *impl, const char *kind, void *context);

typedef struct sj_context_entry {
    void *context; /* NULL: free */
    const char *kind;
    const void *impl;
    sj_rundown_fn rundown;
    sj_client client;
    uint32_t generation;
    uint32_t next; /* slot + 1 in the bucket or the free list; 0 ends */
} sj_context_entry;

typedef struct sj_contexts {
    sj_context_entry *entries;
    uint32_t size, used, free_list;
    uint32_t per_client; /* 0: SJ_CONTEXTS_PER_CLIENT */
    uint32_t buckets[SJ_CONTEXT_BUCKETS];
} sj_contexts;

static inline bool sj_same_client(sj_client a, sj_client b)
{
    return a.index == b.index && a.generation == b.generation;
}

static inline sj_context_entry *sj_context_entry_of(sj_contexts *t, sj_client client, const char *kind, uint64_t id)
{
    uint32_t slot = (uint32_t)id;
    if (slot == 0 || slot > t->used)
        return NULL;
    sj_context_entry *x = &t->entries[slot - 1];
    if (!x->context || x->generation != (uint32_t)(id >> 32) || !sj_same_client(x->client, client))
        return NULL;
    return strcmp(x->kind, kind) == 0 ? x : NULL;
}

static inline uint32_t sj_context_slot(sj_contexts *t)
{
    if (t->free_list) {
        uint32_t slot = t->free_list;
        t->free_list = t->entries[slot - 1].next;
        return slot;
    }
    if (t->used == t->size) {
        uint32_t size = t->size ? t->size * 2 : 16;
        if (size < t->size)
            return 0;
        sj_context_entry *p = (sj_context_entry *)realloc(t->entries, size * sizeof *p);
        if (!p)
            return 0;
        t->entries = p;
        t->size = size;
    }
    t->entries[t->used].generation = 0;
    return ++t->used;
}

/* A handle for `context`; 0: no room. */
static inline uint64_t sj_context_open(sj_contexts *t, sj_client client, const char *kind, void *context,
                                       const void *impl, sj_rundown_fn rundown)
{
    uint32_t *bucket = &t->buckets[client.index % SJ_CONTEXT_BUCKETS];
    uint32_t held = 0, limit = t->per_client ? t->per_client : SJ_CONTEXTS_PER_CLIENT;
    for (uint32_t i = *bucket; i; i = t->entries[i - 1].next)
        held += sj_same_client(t->entries[i - 1].client, client);
    uint32_t slot = held < limit ? sj_context_slot(t) : 0;
    if (slot == 0)
        return 0;
    sj_context_entry *x = &t->entries[slot - 1];
    x->context = context;
    x->kind = kind;
    x->impl = impl;
    x->rundown = rundown;
    x->client = client;
    x->generation++;
    x->next = *bucket;
    *bucket = slot;
    return (uint64_t)x->generation << 32 | slot;
}

/* Forgets a handle without running it down. */
static inline void sj_context_close(sj_contexts *t, uint64_t id)
{
    uint32_t slot = (uint32_t)id;
    if (slot == 0 || slot > t->used || !t->entries[slot - 1].context)
        return;
    sj_context_entry *x = &t->entries[slot - 1];
    uint32_t *link = &t->buckets[x->client.index % SJ_CONTEXT_BUCKETS];
    while (*link && *link != slot)
        link = &t->entries[*link - 1].next;
    if (*link)
        *link = x->next;
    x->context = NULL;
    x->next = t->free_list;
    t->free_list = slot;
}

/* The client is gone: ends all its contexts. */
static inline void sj_contexts_rundown(sj_contexts *t, sj_client client)
{
    uint32_t i = t->buckets[client.index % SJ_CONTEXT_BUCKETS];
    while (i) {
        sj_context_entry x = t->entries[i - 1];
        if (sj_same_client(x.client, client)) {
            sj_context_close(t, i);
            if (x.rundown)
                x.rundown(x.impl, x.kind, x.context);
        }
        i = x.next;
    }
}

/* The server ends: runs everything down. */
static inline void sj_contexts_free(sj_contexts *t)
{
    for (uint32_t i = 0; i < t->used; i++) {
        sj_context_entry x = t->entries[i];
        t->entries[i].context = NULL;
        if (x.context && x.rundown)
            x.rundown(x.impl, x.kind, x.context);
    }
    free(t->entries);
    memset(t, 0, sizeof *t);
}

#ifdef __cplusplus
}
#endif
#endif
