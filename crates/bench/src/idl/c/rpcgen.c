/* Work of rpcgen's client and server stubs on the arguments of a call, in memory: encode, decode,
 * call, encode the result, decode the result, free the memory that decoding allocated. Buffers and
 * streams are reused. */
#include "bench.h"
#include "schemas/bench.h"

#include <rpc/rpc.h>

#define BODY_MAX 65536

static char request[BODY_MAX] __attribute__((aligned(8)));
static char reply[BODY_MAX] __attribute__((aligned(8)));

/* One direction: encodes `from` and decodes into `to`, which is zero at first, as in rpcgen's
 * stubs. */
static inline bool_t pass(char *wire, xdrproc_t proc, void *from, void *to, size_t to_size)
{
    XDR out, in;
    xdrmem_create(&out, wire, BODY_MAX, XDR_ENCODE);
    if (!((bool_t(*)(XDR *, void *))proc)(&out, from))
        return FALSE;
    u_int len = xdr_getpos(&out);
    forget(&len);
    forget(wire);
    memset(to, 0, to_size);
    xdrmem_create(&in, wire, len, XDR_DECODE);
    return ((bool_t(*)(XDR *, void *))proc)(&in, to);
}

#define PASS(wire, proc, from, to) pass(wire, (xdrproc_t)(void (*)(void))proc, from, to, sizeof *(to))
#define FREE(proc, what) xdr_free((xdrproc_t)(void (*)(void))proc, (void *)(what))

static inline uint64_t paper(void)
{
    paper_args args, got;
    args.a = 7;
    args.b = -9;
    forget(bench_text);
    memcpy(args.c, bench_text, PAPER_LEN);
    if (!PASS(request, xdr_paper_args, &args, &got))
        return DAMAGED;
    return serve_paper(got.a, got.b, (const unsigned char *)got.c);
}

static inline uint64_t stat_path(void)
{
    stat_args args = {(char *)(uintptr_t)bench_path}, got;
    forget(&args);
    if (!PASS(request, xdr_stat_args, &args, &got))
        return DAMAGED;
    struct stat_c s;
    serve_stat(got.path, strlen(got.path), &s);
    FREE(xdr_stat_args, &got);
    stat_reply out = {s.device,     s.inode, s.size,  s.blocks, s.accessed_ns, s.modified_ns,
                      s.changed_ns, s.mode,  s.links, s.uid,    s.gid};
    stat_reply back;
    if (!PASS(reply, xdr_stat_reply, &out, &back))
        return DAMAGED;
    return back.device + back.inode + back.size + back.blocks + (uint64_t)back.accessed_ns +
           (uint64_t)back.modified_ns + (uint64_t)back.changed_ns + back.mode + back.links + back.uid + back.gid;
}

static inline uint64_t list(void)
{
    list_args args = {77}, got;
    forget(&args);
    if (!PASS(request, xdr_list_args, &args, &got))
        return DAMAGED;
    uint32_t count;
    const struct entry_c *entries = serve_list(got.directory, &count);
    entry items[LIST_LEN];
    for (uint32_t i = 0; i < count; i++)
        items[i] = (entry){entries[i].inode, entries[i].kind, (char *)(uintptr_t)entries[i].name};
    list_reply out = {{count, items}}, back;
    if (!PASS(reply, xdr_list_reply, &out, &back))
        return DAMAGED;
    uint64_t sum = 0;
    for (u_int i = 0; i < back.entries.entries_len; i++) {
        const entry *e = &back.entries.entries_val[i];
        sum += sum_entry(e->inode, e->kind, e->name, (uint32_t)strlen(e->name));
    }
    FREE(xdr_list_reply, &back);
    return sum;
}

static inline uint64_t put(void)
{
    put_args args = {{KEY_LEN, (char *)bench_key}, {VALUE_LEN, (char *)bench_value}, 5}, got;
    forget(&args);
    if (!PASS(request, xdr_put_args, &args, &got))
        return DAMAGED;
    put_reply out, back;
    out.revision = serve_put((unsigned char *)got.key.key_val, got.key.key_len, (unsigned char *)got.value.value_val,
                             got.value.value_len, got.flags);
    FREE(xdr_put_args, &got);
    return PASS(reply, xdr_put_reply, &out, &back) ? back.revision : DAMAGED;
}

static inline uint64_t record(void)
{
    record_args args, got;
    forget(&bench_record);
    args.sensor = bench_record.sensor;
    args.flags = bench_record.flags;
    args.time_ns = bench_record.time_ns;
    memcpy(args.counters, bench_record.counters, sizeof args.counters);
    memcpy(args.gauges, bench_record.gauges, sizeof args.gauges);
    if (!PASS(request, xdr_record_args, &args, &got))
        return DAMAGED;
    uint64_t sum = (uint64_t)got.sensor + got.flags + got.time_ns;
    for (int i = 0; i < RECORD_LEN; i++)
        sum += got.counters[i] + (uint64_t)(int64_t)got.gauges[i];
    return sum;
}

static node tree_nodes[1 << TREE_DEPTH];
static int tree_used;

static node *copy_tree(const struct node_c *from)
{
    if (!from)
        return NULL;
    node *n = &tree_nodes[tree_used++];
    n->value = from->value;
    n->left = copy_tree(from->left);
    n->right = copy_tree(from->right);
    return n;
}

static uint64_t sum_tree(const node *n)
{
    return n ? (uint64_t)(uint32_t)n->value + sum_tree(n->left) + sum_tree(n->right) : 0;
}

static inline uint64_t tree(void)
{
    if (tree_used == 0)
        copy_tree(bench_tree);
    tree_args args = {tree_nodes}, got;
    forget(&args);
    if (!PASS(request, xdr_tree_args, &args, &got))
        return DAMAGED;
    uint64_t sum = sum_tree(got.root);
    FREE(xdr_tree_args, &got);
    return sum;
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

ROW(bench_rpcgen_paper, paper)
ROW(bench_rpcgen_stat, stat_path)
ROW(bench_rpcgen_list, list)
ROW(bench_rpcgen_put, put)
ROW(bench_rpcgen_record, record)
ROW(bench_rpcgen_tree, tree)
