/* What local.acf says the user provides. */
#define _GNU_SOURCE
#include "local.h"

sj_arena test_pool;
int labels_alive, test_allocations;

void *test_alloc(size_t size)
{
    test_allocations++;
    return sj_arena_alloc(&test_pool, size);
}

void kelvin_to_wire(const double *local, celsius *wire, sj_arena *arena)
{
    (void)arena;
    *wire = (celsius)(int64_t)(*local - 273.0);
}

bool kelvin_from_wire(const celsius *wire, double *local, sj_arena *arena)
{
    (void)arena;
    *local = (double)*(const int32_t *)wire + 273.0;
    return true;
}

void kelvin_free(double *local) { (void)local; }

void label_to_wire(const struct local_label *local, label *wire, sj_arena *arena)
{
    wire->text = local->text ? sj_arena_string(arena, local->text) : NULL;
    wire->count = (int32_t)local->count;
}

bool label_from_wire(const label *wire, struct local_label *local, sj_arena *arena)
{
    (void)arena;
    local->text = wire->text ? strdup(wire->text) : NULL;
    local->count = wire->count;
    if (local->text)
        __atomic_add_fetch(&labels_alive, 1, __ATOMIC_RELAXED);
    return !wire->text || local->text;
}

void label_free(struct local_label *local)
{
    if (local->text)
        __atomic_sub_fetch(&labels_alive, 1, __ATOMIC_RELAXED);
    free(local->text);
    local->text = NULL;
}

sj_status cached_client(local_things_client *c, int32_t a, int32_t *result)
{
    if (a == 1234) {
        *result = 4321;
        return SJ_OK;
    }
    return local_things_cached_stub(c, a, result);
}
