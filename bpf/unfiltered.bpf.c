// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * What becomes of segments that come past the packet filter, by an interface that has none, for
 * sessions that are away: a route has changed, or the peer's packets come by another way than this
 * host's go. Not here: loading and attaching (crates/filter/src/unfiltered.rs), the packet filter
 * (filter.bpf.c).
 *
 * sojourn_unfiltered is the socket filter of such a session's socket: it reports each segment, and
 * lets it pass. sojourn_lookup drops segments while the session has no socket, because that is
 * disconnected and connected again on the way home; a listener, or the kernel itself, would answer
 * such a segment with a reset.
 */
#include "filter/formats.h"

static long (*ringbuf_output)(void *, void *, __u64, __u64) = (void *)BPF_FUNC_ringbuf_output;
static __u64 (*socket_cookie)(void *) = (void *)BPF_FUNC_get_socket_cookie;
static long (*sk_assign)(void *, void *, __u64) = (void *)BPF_FUNC_sk_assign;
static long (*sk_release)(void *) = (void *)BPF_FUNC_sk_release;

#define AF_INET 2
#define SEQUENCE_AT 4 /* in the TCP header, at which a socket filter's data begins */

/* As in crates/filter/src/unfiltered.rs. */
struct arrival {
	__u64 cookie;
	__u32 sequence; /* in network order */
	__u32 zero;
};

/* When it is full further arrivals are not reported: one is enough. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 16384);
} sojourn_arrivals SEC(".maps");

SEC("socket") int sojourn_unfiltered(struct __sk_buff *skb)
{
	struct arrival arrival = { .cookie = socket_cookie(skb) };

	if (!skb_load(skb, SEQUENCE_AT, &arrival.sequence, sizeof(arrival.sequence)))
		ringbuf_output(&sojourn_arrivals, &arrival, sizeof(arrival), 0);
	return WHOLE;
}

/* The sessions without a socket. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct flow_key);
	__type(value, __u8);
} sojourn_absent SEC(".maps");

/*
 * Listening sockets with a filter that drops everything, for IPv4 and IPv6: the lookup cannot drop
 * a segment in silence itself (Documentation/bpf/prog_sk_lookup.rst).
 */
struct {
	__uint(type, BPF_MAP_TYPE_SOCKMAP);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, __u32);
} sojourn_silent SEC(".maps");

SEC("sk_lookup") int sojourn_lookup(struct bpf_sk_lookup *ctx)
{
	struct flow_key key = {
		.protocol = ctx->protocol,
		.local_port = be16((__u16)ctx->local_port),
		.remote_port = ctx->remote_port,
	};
	__u32 index = ctx->family != AF_INET;
	void *silent;

	if (ctx->family == AF_INET) {
		key.family = 4;
		key.local[0] = ctx->local_ip4;
		key.remote[0] = ctx->remote_ip4;
	} else {
		key.family = 6;
#pragma clang loop unroll(full)
		for (int i = 0; i < 4; i++) {
			key.local[i] = ctx->local_ip6[i];
			key.remote[i] = ctx->remote_ip6[i];
		}
	}
	if (!map_lookup(&sojourn_absent, &key))
		return SK_PASS;
	silent = map_lookup(&sojourn_silent, &index);
	if (!silent)
		return SK_PASS;
	sk_assign(ctx, silent, BPF_SK_LOOKUP_F_REPLACE | BPF_SK_LOOKUP_F_NO_REUSEPORT);
	sk_release(silent);
	return SK_PASS;
}

char license_name[] SEC("license") = "Dual MIT/GPL";
