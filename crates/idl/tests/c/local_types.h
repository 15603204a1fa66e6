/* The user's side of local.acf. */
#ifndef LOCAL_TYPES_H
#define LOCAL_TYPES_H

#include <sojourn/idl.h>

struct local_label {
    char *text; /* malloc()ed */
    long count;
};

#ifdef __cplusplus
extern "C" {
#endif
extern sj_arena test_pool;
void *test_alloc(size_t size);
extern int labels_alive, test_allocations;
#ifdef __cplusplus
}
#endif
#endif
