// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Short cut for TCP connections within one host: what is sent on one end goes straight into the other end's
 * receive queue. A rival in `cargo xtask bench local`, and no part of Sojourn.
 *
 * Not here: connections to other hosts (they find no partner in the map and take the ordinary way), closing
 * (the kernel takes closed sockets out of the map). Read docs/understand/benchmarks.md, "local".
 */
#include <linux/bpf.h>

#define SEC(name) __attribute__((section(name), used))
#define __uint(name, value) int(*name)[value]
#define __type(name, type) typeof(type) *name

/* Helpers of the kernel are called by number. */
static long (*sock_hash_update)(struct bpf_sock_ops *, void *, void *, __u64) =
	(void *)BPF_FUNC_sock_hash_update;
static long (*msg_redirect_hash)(struct sk_msg_md *, void *, void *, __u64) =
	(void *)BPF_FUNC_msg_redirect_hash;

/* A connection as one end sees it. IPv4 addresses have their last word only. Ports in host order. */
struct key {
	__u32 local_address[4];
	__u32 remote_address[4];
	__u32 local_port;
	__u32 remote_port;
};

struct {
	__uint(type, BPF_MAP_TYPE_SOCKHASH);
	__uint(max_entries, 65536);
	__type(key, struct key);
	__type(value, __u32);
} sockets SEC(".maps");

#define AF_INET 2

/*
 * Fields of a context must be read at constant places. So this is a macro, as the contexts are of different types, and the
 * two kinds end in barriers that differ: otherwise the compiler shares their last load, by an address it computes.
 */
#define KIND_ENDS(number) asm volatile("" : : "i"(number) : "memory")
#define FILL(key, ctx, local, remote)                                        \
	do {                                                                 \
		if ((ctx)->family == AF_INET) {                              \
			(key).local##_address[3] = (ctx)->local_ip4;         \
			(key).remote##_address[3] = (ctx)->remote_ip4;       \
			KIND_ENDS(4);                                        \
		} else {                                                     \
			(key).local##_address[0] = (ctx)->local_ip6[0];      \
			(key).local##_address[1] = (ctx)->local_ip6[1];      \
			(key).local##_address[2] = (ctx)->local_ip6[2];      \
			(key).local##_address[3] = (ctx)->local_ip6[3];      \
			(key).remote##_address[0] = (ctx)->remote_ip6[0];    \
			(key).remote##_address[1] = (ctx)->remote_ip6[1];    \
			(key).remote##_address[2] = (ctx)->remote_ip6[2];    \
			(key).remote##_address[3] = (ctx)->remote_ip6[3];    \
			KIND_ENDS(6);                                        \
		}                                                            \
		(key).local##_port = (ctx)->local_port;                      \
		(key).remote##_port = __builtin_bswap32((ctx)->remote_port); \
	} while (0)

SEC("sockops")
int fill(struct bpf_sock_ops *ops)
{
	struct key key = {};

	if (ops->op != BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB &&
	    ops->op != BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB)
		return 0;
	FILL(key, ops, local, remote);
	sock_hash_update(ops, &sockets, &key, BPF_NOEXIST);
	return 0;
}

SEC("sk_msg")
int redirect(struct sk_msg_md *msg)
{
	struct key key = {};

	/* The other end sees the same connection the other way round. */
	FILL(key, msg, remote, local);
	/* Without a partner the message goes on as it would have. */
	msg_redirect_hash(msg, &sockets, &key, BPF_F_INGRESS);
	return SK_PASS;
}

char license_name[] SEC("license") = "Dual MIT/GPL";
