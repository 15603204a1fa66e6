// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * A short cut for TCP connections within one host: bytes that are sent on one end go straight into
 * the other end's receive queue. A rival in `cargo xtask bench local`, and no part of Sojourn.
 *
 * Not here: connections to other hosts (they have no partner in the map and take the normal path),
 * closing (the kernel removes closed sockets from the map). Read docs/understand/benchmarks.md,
 * "local".
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

/*
 * A connection from the view of one end. An IPv4 address is in the last word of the field. Ports
 * are in host order.
 */
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
 * The verifier requires that fields of a context are read at constant offsets. The contexts have
 * different types, so this is a macro. The two branches end in different barriers: otherwise the
 * compiler merges their last load, at a computed offset.
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

	/* For the other end, local and remote are exchanged. */
	FILL(key, msg, remote, local);
	/* Without a partner in the map the message takes its normal path. */
	msg_redirect_hash(msg, &sockets, &key, BPF_F_INGRESS);
	return SK_PASS;
}

char license_name[] SEC("license") = "Dual MIT/GPL";
