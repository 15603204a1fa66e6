// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * The packet filter's maps. Not here: formats (formats.h), decisions. Read bpf/filter.bpf.c first.
 */
#pragma once

#include "formats.h"

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct flow_key);
	__type(value, struct flow);
} sojourn_flows SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u32);
	__type(value, struct owner);
} sojourn_owners SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct config);
} sojourn_config SEC(".maps");

/*
 * The last element, behind the counters, is the owner of the frame that this processor delivers
 * (`wanted_here`).
 */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, REASONS + 1);
	__type(key, __u32);
	__type(value, __u64);
} sojourn_counts SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, __u32);
} sojourn_xsks SEC(".maps");

INLINE void count(enum reason reason)
{
	__u32 key = reason;
	__u64 *counter = map_lookup(&sojourn_counts, &key);

	if (counter)
		*counter += 1;
}

INLINE struct config *configuration(void)
{
	__u32 key = 0;

	return map_lookup(&sojourn_config, &key);
}
