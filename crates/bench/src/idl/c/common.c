/* Arguments and called functions of the C rows; see bench.h. */
#include "bench.h"

#include <stdio.h>

const char bench_path[] = "/var/lib/sojourn/sessions/active";
const unsigned char bench_text[PAPER_LEN + 1] = "twenty bytes of text";
unsigned char bench_key[KEY_LEN];
unsigned char bench_value[VALUE_LEN];
struct record_c bench_record;
struct node_c *bench_tree;
struct entry_c bench_entries[LIST_LEN];

static struct node_c nodes[1 << TREE_DEPTH];
static char names[LIST_LEN][64];
static int nodes_used;

static struct node_c *grow(int depth)
{
    if (depth == 0)
        return NULL;
    struct node_c *n = &nodes[nodes_used++];
    n->value = nodes_used;
    n->left = grow(depth - 1);
    n->right = grow(depth - 1);
    return n;
}

void bench_prepare(void)
{
    for (int i = 0; i < KEY_LEN; i++)
        bench_key[i] = (unsigned char)(i * 3);
    for (int i = 0; i < VALUE_LEN; i++)
        bench_value[i] = (unsigned char)(i * 7);
    bench_record.sensor = 42;
    bench_record.flags = 3;
    bench_record.time_ns = 1700000000000000000u;
    for (int i = 0; i < RECORD_LEN; i++) {
        bench_record.counters[i] = (uint64_t)i * 1000003u;
        bench_record.gauges[i] = i * 2.0;
    }
    for (int i = 0; i < LIST_LEN; i++) {
        int n = snprintf(names[i], sizeof names[i], "entry-%02d-%.*s", i, i % 17, "xxxxxxxxxxxxxxxxx");
        bench_entries[i] = (struct entry_c){1000u + (uint64_t)i, (uint32_t)i % 3, (uint32_t)n, names[i]};
    }
    nodes_used = 0;
    bench_tree = grow(TREE_DEPTH);
}

uint64_t __attribute__((noinline)) serve_paper(int32_t a, int32_t b, const unsigned char *c)
{
    return (uint64_t)(uint32_t)a + (uint32_t)b + c[0] + c[PAPER_LEN - 1];
}

void __attribute__((noinline)) serve_stat(const char *path, size_t len, struct stat_c *reply)
{
    *reply = (struct stat_c){.device = 66,
                             .inode = 1234567,
                             .size = len + (unsigned char)path[0] + (unsigned char)path[len - 1],
                             .blocks = 16,
                             .accessed_ns = 1700000000000000001,
                             .modified_ns = 1600000000000000002,
                             .changed_ns = 1600000000000000003,
                             .mode = 0100644,
                             .links = 1,
                             .uid = 1000,
                             .gid = 100};
}

const struct entry_c *__attribute__((noinline)) serve_list(uint64_t directory, uint32_t *count)
{
    *count = directory == 77 ? LIST_LEN : 0;
    return bench_entries;
}

uint64_t __attribute__((noinline)) serve_put(const unsigned char *key, uint32_t key_len, const unsigned char *value,
                                             uint32_t value_len, uint32_t flags)
{
    return (uint64_t)key_len + key[key_len - 1] + value_len + value[0] + value[value_len - 1] + flags;
}

uint64_t __attribute__((noinline)) serve_record(const struct record_c *r)
{
    uint64_t sum = (uint64_t)r->sensor + r->flags + r->time_ns;
    for (int i = 0; i < RECORD_LEN; i++)
        sum += r->counters[i] + (uint64_t)(int64_t)r->gauges[i];
    return sum;
}

uint64_t __attribute__((noinline)) serve_tree(const struct node_c *n)
{
    return n ? (uint64_t)(uint32_t)n->value + serve_tree(n->left) + serve_tree(n->right) : 0;
}

uint64_t sum_stat(const struct stat_c *r)
{
    return r->device + r->inode + r->size + r->blocks + (uint64_t)r->accessed_ns + (uint64_t)r->modified_ns +
           (uint64_t)r->changed_ns + r->mode + r->links + r->uid + r->gid;
}
