/* Hand-written stubs in C against <sojourn/ipc.h>. Each argument is moved once, each fixed part has
 * one check of its size, and nothing is generic. Requests and replies have a layout for this
 * interface alone. The transport is that of ours.c. */
#include "bench.h"

#define MEMORY_NAME(name) hand_##name
#include "memory.h"

enum { OP_PAPER, OP_STAT, OP_LIST, OP_PUT, OP_RECORD, OP_TREE };

static uint64_t arrived;

static inline size_t pad8(size_t n) { return (n + 7) & ~(size_t)7; }
static inline void put32(unsigned char *p, uint32_t v) { memcpy(p, &v, 4); }
static inline void put64(unsigned char *p, uint64_t v) { memcpy(p, &v, 8); }
static inline uint32_t load32(const unsigned char *p) { uint32_t v; memcpy(&v, p, 4); return v; }
static inline uint64_t load64(const unsigned char *p) { uint64_t v; memcpy(&v, p, 8); return v; }

/* Begins a request of `len` bytes without attachments. */
static inline unsigned char *begin(sj_connection *c, uint16_t op, size_t len, sj_out *out)
{
    sj_start(c, op, len, out);
    return out->body;
}

/* Begins a reply of `len` bytes without attachments. */
static inline unsigned char *answer(sj_event *event, size_t len, sj_out *out)
{
    sj_reply_start(NULL, &event->token, len, out);
    return out->body;
}

static inline sj_status call(sj_connection *c, sj_out *out, sj_in *in) { return sj_call(c, out, SJ_FOREVER, in); }

/* The stubs have the signatures of the generated ones, and are not inlined either. */
#define STUB __attribute__((noinline))

/* ---- the function of the paper ---- */

sj_status hand_paper(sj_connection *connection, int32_t a, int32_t b, const char *c);
STUB sj_status hand_paper(sj_connection *connection, int32_t a, int32_t b, const char *c)
{
    sj_out out;
    sj_in in;
    unsigned char *body = begin(connection, OP_PAPER, 32, &out);
    put32(body, (uint32_t)a);
    put32(body + 4, (uint32_t)b);
    memcpy(body + 8, c, PAPER_LEN);
    put32(body + 28, 0);
    sj_status status = call(connection, &out, &in);
    return status == SJ_OK && in.body_len != 0 ? SJ_BAD_MESSAGE : status;
}

static inline uint64_t paper(void)
{
    forget(bench_text);
    return hand_paper(NULL, 7, -9, (const char *)bench_text) == SJ_OK ? arrived : DAMAGED;
}

static inline bool on_paper(sj_event *event, sj_out *out)
{
    const unsigned char *body = event->in.body;
    if (event->in.body_len != 32 || load32(body + 28) != 0)
        return false;
    arrived = serve_paper((int32_t)load32(body), (int32_t)load32(body + 4), body + 8);
    answer(event, 0, out);
    return true;
}

/* ---- stat ---- */

sj_status hand_stat(sj_connection *connection, const char *path, struct stat_c *reply);
STUB sj_status hand_stat(sj_connection *connection, const char *path, struct stat_c *reply)
{
    sj_out out;
    sj_in in;
    size_t n = strlen(path), len = pad8(8 + n + 1);
    unsigned char *body = begin(connection, OP_STAT, len, &out);
    put64(body + len - 8, 0);
    put64(body, n);
    memcpy(body + 8, path, n + 1);
    sj_status status = call(connection, &out, &in);
    if (status != SJ_OK || in.body_len != sizeof *reply)
        return status == SJ_OK ? SJ_BAD_MESSAGE : status;
    memcpy(reply, in.body, sizeof *reply);
    return SJ_OK;
}

static inline uint64_t stat_path(void)
{
    const char *path = bench_path;
    struct stat_c reply;
    forget(&path);
    return hand_stat(NULL, path, &reply) == SJ_OK ? sum_stat(&reply) : DAMAGED;
}

static inline bool on_stat(sj_event *event, sj_out *out)
{
    const unsigned char *body = event->in.body;
    size_t len = event->in.body_len;
    if (len < 16)
        return false;
    size_t n = load64(body);
    if (n > len - 9 || pad8(8 + n + 1) != len || memchr(body + 8, 0, n + 1) != body + 8 + n)
        return false;
    struct stat_c reply;
    serve_stat((const char *)body + 8, n, &reply);
    memcpy(answer(event, sizeof reply, out), &reply, sizeof reply);
    return true;
}

/* ---- list ---- */

/* The entries point into the message and are valid until the next call. */
sj_status hand_list(sj_connection *connection, uint64_t directory, struct entry_c *entries, uint32_t *count);
STUB sj_status hand_list(sj_connection *connection, uint64_t directory, struct entry_c *entries, uint32_t *count)
{
    static sj_in in;
    sj_out out;
    put64(begin(connection, OP_LIST, 8, &out), directory);
    sj_status status = call(connection, &out, &in);
    if (status != SJ_OK)
        return status;
    if (in.body_len < 8 || load64(in.body) > LIST_LEN)
        return SJ_BAD_MESSAGE;
    uint32_t n = (uint32_t)load64(in.body);
    size_t at = 8;
    for (uint32_t i = 0; i < n; i++) {
        if (in.body_len - at < 24)
            return SJ_BAD_MESSAGE;
        const unsigned char *p = in.body + at;
        uint32_t name_len = load32(p + 12);
        if (name_len >= NAME_MAX_LEN || pad8((size_t)name_len + 1) > in.body_len - at - 16 ||
            memchr(p + 16, 0, (size_t)name_len + 1) != p + 16 + name_len)
            return SJ_BAD_MESSAGE;
        entries[i] = (struct entry_c){load64(p), load32(p + 8), name_len, (const char *)p + 16};
        at += 16 + pad8((size_t)name_len + 1);
    }
    *count = n;
    return at == in.body_len ? SJ_OK : SJ_BAD_MESSAGE;
}

static inline uint64_t list(void)
{
    struct entry_c got[LIST_LEN];
    uint32_t n;
    if (hand_list(NULL, 77, got, &n) != SJ_OK)
        return DAMAGED;
    uint64_t sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += sum_entry(got[i].inode, got[i].kind, got[i].name, (uint32_t)strlen(got[i].name));
    return sum;
}

static inline bool on_list(sj_event *event, sj_out *out)
{
    if (event->in.body_len != 8)
        return false;
    uint32_t count;
    const struct entry_c *entries = serve_list(load64(event->in.body), &count);
    uint32_t lens[LIST_LEN];
    size_t len = 8;
    for (uint32_t i = 0; i < count; i++) {
        lens[i] = (uint32_t)strlen(entries[i].name);
        len += 16 + pad8((size_t)lens[i] + 1);
    }
    unsigned char *at = answer(event, len, out);
    put64(at, count);
    at += 8;
    for (uint32_t i = 0; i < count; i++) {
        size_t padded = pad8((size_t)lens[i] + 1);
        put64(at, entries[i].inode);
        put32(at + 8, entries[i].kind);
        put32(at + 12, lens[i]);
        put64(at + 16 + padded - 8, 0);
        memcpy(at + 16, entries[i].name, (size_t)lens[i] + 1);
        at += 16 + padded;
    }
    return true;
}

/* ---- put ---- */

sj_status hand_put(sj_connection *connection, uint32_t key_len, const uint8_t *key, uint32_t value_len,
                   const uint8_t *value, uint32_t flags, uint64_t *revision);
STUB sj_status hand_put(sj_connection *connection, uint32_t key_len, const uint8_t *key, uint32_t value_len,
                        const uint8_t *value, uint32_t flags, uint64_t *revision)
{
    sj_out out;
    sj_in in;
    size_t padded = pad8(key_len), len = 16 + padded + pad8(value_len);
    unsigned char *body = begin(connection, OP_PUT, len, &out);
    put32(body, key_len);
    put32(body + 4, value_len);
    put64(body + 8, flags);
    put64(body + 16 + padded - 8, 0);
    memcpy(body + 16, key, key_len);
    put64(body + len - 8, 0);
    memcpy(body + 16 + padded, value, value_len);
    sj_status status = call(connection, &out, &in);
    if (status != SJ_OK || in.body_len != 8)
        return status == SJ_OK ? SJ_BAD_MESSAGE : status;
    *revision = load64(in.body);
    return SJ_OK;
}

static inline uint64_t put(void)
{
    uint32_t key_len = KEY_LEN, value_len = VALUE_LEN;
    uint64_t revision;
    forget(&key_len);
    forget(&value_len);
    return hand_put(NULL, key_len, bench_key, value_len, bench_value, 5, &revision) == SJ_OK ? revision : DAMAGED;
}

static inline bool on_put(sj_event *event, sj_out *out)
{
    const unsigned char *body = event->in.body;
    if (event->in.body_len < 16)
        return false;
    size_t key = load32(body), value = load32(body + 4);
    if (16 + pad8(key) + pad8(value) != event->in.body_len || load32(body + 12) != 0)
        return false;
    uint64_t revision =
        serve_put(body + 16, (uint32_t)key, body + 16 + pad8(key), (uint32_t)value, load32(body + 8));
    put64(answer(event, 8, out), revision);
    return true;
}

/* ---- record ---- */

sj_status hand_record(sj_connection *connection, const struct record_c *what);
STUB sj_status hand_record(sj_connection *connection, const struct record_c *what)
{
    sj_out out;
    sj_in in;
    memcpy(begin(connection, OP_RECORD, sizeof *what, &out), what, sizeof *what);
    sj_status status = call(connection, &out, &in);
    return status == SJ_OK && in.body_len != 0 ? SJ_BAD_MESSAGE : status;
}

static inline uint64_t record(void)
{
    forget(&bench_record);
    return hand_record(NULL, &bench_record) == SJ_OK ? arrived : DAMAGED;
}

static inline bool on_record(sj_event *event, sj_out *out)
{
    if (event->in.body_len != sizeof bench_record)
        return false;
    arrived = serve_record((const struct record_c *)(const void *)event->in.body);
    answer(event, 0, out);
    return true;
}

/* ---- tree: depth first, each node as its value and a bit for each child ---- */

static size_t count_nodes(const struct node_c *n)
{
    return 1 + (n->left ? count_nodes(n->left) : 0) + (n->right ? count_nodes(n->right) : 0);
}

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

sj_status hand_tree(sj_connection *connection, const struct node_c *root);
STUB sj_status hand_tree(sj_connection *connection, const struct node_c *root)
{
    sj_out out;
    sj_in in;
    write_node(begin(connection, OP_TREE, 8 * count_nodes(root), &out), root);
    sj_status status = call(connection, &out, &in);
    return status == SJ_OK && in.body_len != 0 ? SJ_BAD_MESSAGE : status;
}

static inline uint64_t tree(void)
{
    const struct node_c *root = bench_tree;
    forget(&root);
    return hand_tree(NULL, root) == SJ_OK ? arrived : DAMAGED;
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

static inline bool on_tree(sj_event *event, sj_out *out)
{
    struct node_c nodes[64];
    struct reader r = {event->in.body, event->in.body + event->in.body_len, nodes, nodes + 64};
    struct node_c *root = read_node(&r, 32);
    if (!root || r.at != r.end)
        return false;
    arrived = serve_tree(root);
    answer(event, 0, out);
    return true;
}

static inline bool memory_handle(sj_event *event, sj_out *out)
{
    if (event->kind != SJ_EVENT_CALL)
        return false;
    switch (event->in.op) {
    case OP_PAPER: return on_paper(event, out);
    case OP_STAT: return on_stat(event, out);
    case OP_LIST: return on_list(event, out);
    case OP_PUT: return on_put(event, out);
    case OP_RECORD: return on_record(event, out);
    case OP_TREE: return on_tree(event, out);
    default: return false;
    }
}

#define ROW(name, body)                      \
    uint64_t name(uint64_t count);           \
    uint64_t name(uint64_t count)            \
    {                                        \
        uint64_t sum = 0;                    \
        for (uint64_t i = 0; i < count; i++) \
            sum = body();                    \
        return sum;                          \
    }

ROW(bench_hand_paper, paper)
ROW(bench_hand_stat, stat_path)
ROW(bench_hand_list, list)
ROW(bench_hand_put, put)
ROW(bench_hand_record, record)
ROW(bench_hand_tree, tree)
