/* Stubs as one would write them by hand in C: each argument moved once, one check of the size for each fixed part,
 * nothing generic. Requests and replies are laid out for this one interface. */
#include "bench.h"

#define BODY_MAX 8192

/* What is written, and what the receiver has copied of it, once, before it looks: nobody may change that any more. */
static unsigned char request_wire[BODY_MAX] __attribute__((aligned(64))), request[BODY_MAX] __attribute__((aligned(64)));
static unsigned char reply_wire[BODY_MAX] __attribute__((aligned(64))), reply[BODY_MAX] __attribute__((aligned(64)));

/* The one copy. */
static inline void pass(unsigned char *own, const unsigned char *wire, size_t len)
{
    forget(wire);
    if (len <= 48)
        memcpy(own, wire, 48);
    else if (len <= 112)
        memcpy(own, wire, 112);
    else
        memcpy(own, wire, len);
}

static inline size_t pad8(size_t n) { return (n + 7) & ~(size_t)7; }
static inline void put32(unsigned char *p, uint32_t v) { memcpy(p, &v, 4); }
static inline void put64(unsigned char *p, uint64_t v) { memcpy(p, &v, 8); }
static inline uint32_t load32(const unsigned char *p) { uint32_t v; memcpy(&v, p, 4); return v; }
static inline uint64_t load64(const unsigned char *p) { uint64_t v; memcpy(&v, p, 8); return v; }

static inline uint64_t paper(void)
{
    size_t len = 32;
    forget(bench_text);
    put32(request_wire, 7);
    put32(request_wire + 4, (uint32_t)-9);
    memcpy(request_wire + 8, bench_text, PAPER_LEN);
    put32(request_wire + 28, 0);
    forget(&len);
    pass(request, request_wire, len);
    if (len != 32 || load32(request + 28) != 0)
        return DAMAGED;
    uint64_t sum = serve_paper((int32_t)load32(request), (int32_t)load32(request + 4), request + 8);
    len = 0;
    forget(&len);
    return len == 0 ? sum : DAMAGED;
}

static inline uint64_t stat_path(void)
{
    const char *path = bench_path;
    forget(&path);
    size_t n = strlen(path), len = pad8(8 + n + 1);
    put64(request_wire + len - 8, 0);
    put64(request_wire, n);
    memcpy(request_wire + 8, path, n + 1);
    forget(&len);
    pass(request, request_wire, len);
    size_t got = load64(request);
    if (len < 16 || got > len - 9 || pad8(8 + got + 1) != len || memchr(request + 8, 0, got + 1) != request + 8 + got)
        return DAMAGED;
    struct stat_c out, back;
    serve_stat((const char *)request + 8, got, &out);
    memcpy(reply_wire, &out, sizeof out);
    len = sizeof out;
    forget(&len);
    pass(reply, reply_wire, len);
    if (len != sizeof back)
        return DAMAGED;
    memcpy(&back, reply, sizeof back);
    return sum_stat(&back);
}

static inline size_t write_list(const struct entry_c *entries, uint32_t count)
{
    unsigned char *at = reply_wire + 8;
    put64(reply_wire, count);
    for (uint32_t i = 0; i < count; i++) {
        const struct entry_c *e = &entries[i];
        size_t padded = pad8((size_t)e->name_len + 1);
        put64(at, e->inode);
        put32(at + 8, e->kind);
        put32(at + 12, e->name_len);
        put64(at + 16 + padded - 8, 0);
        memcpy(at + 16, e->name, (size_t)e->name_len + 1);
        at += 16 + padded;
    }
    return (size_t)(at - reply_wire);
}

static inline uint64_t list(void)
{
    uint64_t directory = 77;
    size_t len = 8;
    forget(&directory);
    put64(request_wire, directory);
    forget(&len);
    pass(request, request_wire, len);
    if (len != 8)
        return DAMAGED;
    uint32_t count;
    const struct entry_c *entries = serve_list(load64(request), &count);
    len = write_list(entries, count);
    forget(&len);
    pass(reply, reply_wire, len);
    struct entry_c got[LIST_LEN];
    if (len < 8 || load64(reply) > LIST_LEN)
        return DAMAGED;
    uint32_t n = (uint32_t)load64(reply);
    size_t at = 8;
    for (uint32_t i = 0; i < n; i++) {
        if (len - at < 24)
            return DAMAGED;
        const unsigned char *p = reply + at;
        uint32_t name_len = load32(p + 12);
        if (name_len >= NAME_MAX_LEN || pad8((size_t)name_len + 1) > len - at - 16 ||
            memchr(p + 16, 0, (size_t)name_len + 1) != p + 16 + name_len)
            return DAMAGED;
        got[i] = (struct entry_c){load64(p), load32(p + 8), name_len, (const char *)p + 16};
        at += 16 + pad8((size_t)name_len + 1);
    }
    if (at != len)
        return DAMAGED;
    forget(got);
    uint64_t sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += sum_entry(got[i].inode, got[i].kind, got[i].name, got[i].name_len);
    return sum;
}

static inline uint64_t put(void)
{
    forget(bench_key);
    forget(bench_value);
    uint32_t key_len = KEY_LEN, value_len = VALUE_LEN;
    forget(&key_len);
    forget(&value_len);
    size_t padded = pad8(key_len), len = 16 + padded + pad8(value_len);
    put32(request_wire, key_len);
    put32(request_wire + 4, value_len);
    put64(request_wire + 8, 5);
    put64(request_wire + 16 + padded - 8, 0);
    memcpy(request_wire + 16, bench_key, key_len);
    put64(request_wire + len - 8, 0);
    memcpy(request_wire + 16 + padded, bench_value, value_len);
    forget(&len);
    pass(request, request_wire, len);
    if (len < 16)
        return DAMAGED;
    size_t k = load32(request), v = load32(request + 4);
    if (16 + pad8(k) + pad8(v) != len || load32(request + 12) != 0)
        return DAMAGED;
    uint64_t revision = serve_put(request + 16, (uint32_t)k, request + 16 + pad8(k), (uint32_t)v, load32(request + 8));
    put64(reply_wire, revision);
    len = 8;
    forget(&len);
    pass(reply, reply_wire, len);
    return len == 8 ? load64(reply) : DAMAGED;
}

static inline uint64_t record(void)
{
    size_t len = sizeof bench_record;
    forget(&bench_record);
    memcpy(request_wire, &bench_record, sizeof bench_record);
    forget(&len);
    pass(request, request_wire, len);
    if (len != sizeof bench_record)
        return DAMAGED;
    uint64_t sum = serve_record((const struct record_c *)(const void *)request);
    len = 0;
    forget(&len);
    return len == 0 ? sum : DAMAGED;
}

/* A node: value and which children follow, depth first. */
static unsigned char *write_node(unsigned char *at, const struct node_c *n)
{
    put32(at, (uint32_t)n->value);
    put32(at + 4, (n->left ? 1u : 0u) | (n->right ? 2u : 0u));
    at += 8;
    if (n->left)
        at = write_node(at, n->left);
    if (n->right)
        at = write_node(at, n->right);
    return at;
}

struct reader { const unsigned char *at, *end; struct node_c *free, *free_end; };

static struct node_c *read_node(struct reader *r, int depth)
{
    if (r->end - r->at < 8 || r->free == r->free_end || depth == 0)
        return NULL;
    struct node_c *n = r->free++;
    uint32_t children = load32(r->at + 4);
    n->value = (int32_t)load32(r->at);
    n->left = n->right = NULL;
    r->at += 8;
    if (children > 3)
        return NULL;
    if ((children & 1) && !(n->left = read_node(r, depth - 1)))
        return NULL;
    if ((children & 2) && !(n->right = read_node(r, depth - 1)))
        return NULL;
    return n;
}

static inline uint64_t tree(void)
{
    const struct node_c *root = bench_tree;
    struct node_c nodes[64];
    forget(&root);
    size_t len = (size_t)(write_node(request_wire, root) - request_wire);
    forget(&len);
    pass(request, request_wire, len);
    struct reader r = {request, request + len, nodes, nodes + 64};
    struct node_c *got = read_node(&r, 32);
    if (!got || r.at != r.end)
        return DAMAGED;
    uint64_t sum = serve_tree(got);
    len = 0;
    forget(&len);
    return len == 0 ? sum : DAMAGED;
}

#define ROW(name, body)                    \
    uint64_t name(uint64_t count);         \
    uint64_t name(uint64_t count)          \
    {                                      \
        uint64_t sum = 0;                  \
        for (uint64_t i = 0; i < count; i++) \
            sum = body();                  \
        return sum;                        \
    }

ROW(bench_hand_paper, paper)
ROW(bench_hand_stat, stat_path)
ROW(bench_hand_list, list)
ROW(bench_hand_put, put)
ROW(bench_hand_record, record)
ROW(bench_hand_tree, tree)
