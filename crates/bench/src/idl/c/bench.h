/* Interface shared by the C rows: the arguments, and the called functions. The values and sums are
 * those of src/idl/cases.rs, which compares the results. */
#ifndef SOJOURN_BENCH_H
#define SOJOURN_BENCH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define PAPER_LEN 20
#define LIST_LEN 32
#define NAME_MAX_LEN 256
#define KEY_LEN 16
#define VALUE_LEN 1024
#define RECORD_LEN 16
#define TREE_DEPTH 4
/* Result of a row whose own message fails the row's checks. */
#define DAMAGED UINT64_MAX

/* Makes the compiler assume that everything reachable from `p` is read and written here. */
static inline void forget(const void *p) { __asm__ volatile("" : : "g"(p) : "memory"); }

struct stat_c {
    uint64_t device, inode, size, blocks;
    int64_t accessed_ns, modified_ns, changed_ns;
    uint32_t mode, links, uid, gid;
};

struct entry_c {
    uint64_t inode;
    uint32_t kind;
    uint32_t name_len;
    const char *name;
};

struct record_c {
    uint32_t sensor, flags;
    uint64_t time_ns;
    uint64_t counters[RECORD_LEN];
    double gauges[RECORD_LEN];
};

struct node_c {
    int32_t value;
    struct node_c *left, *right;
};

/* The called functions. They are not inlined, as behind any interface. */
uint64_t serve_paper(int32_t a, int32_t b, const unsigned char *c);
void serve_stat(const char *path, size_t len, struct stat_c *reply);
const struct entry_c *serve_list(uint64_t directory, uint32_t *count);
uint64_t serve_put(const unsigned char *key, uint32_t key_len, const unsigned char *value, uint32_t value_len,
                   uint32_t flags);
uint64_t serve_record(const struct record_c *record);
uint64_t serve_tree(const struct node_c *root);

/* The caller's use of an answer. */
uint64_t sum_stat(const struct stat_c *reply);
static inline uint64_t sum_entry(uint64_t inode, uint32_t kind, const char *name, uint32_t len)
{
    return inode + kind + len + (unsigned char)name[0] + (unsigned char)name[len - 1];
}

/* The arguments, which bench_prepare() fills in. */
void bench_prepare(void);
extern const char bench_path[];
extern const unsigned char bench_text[PAPER_LEN + 1];
extern unsigned char bench_key[KEY_LEN];
extern unsigned char bench_value[VALUE_LEN];
extern struct record_c bench_record;
extern struct node_c *bench_tree;
extern struct entry_c bench_entries[LIST_LEN];

#endif
