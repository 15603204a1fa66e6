// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * The packet filter: which moved session's packets go to which program, and what a program may send through its port.
 *
 * Not here: anything of a protocol's state; loading and attaching (crates/filter/src). The same decisions stand in Rust in
 * crates/filter/src/oracle.rs, and a test feeds both the same packets: change them together. Read docs/understand/packet-path.md first.
 */
#include "filter/outgoing.h"
#include "filter/parse.h"

/* A port is Ethernet: packets of a link without header get one. */
INLINE int add_header(struct __sk_buff *skb, const struct config *config)
{
	struct ethernet header = {};

	__builtin_memcpy(header.target, config->mac, sizeof(header.target));
	header.type = skb->protocol;
	return skb_change_head(skb, sizeof(header), 0) ||
	       skb_store(skb, 0, &header, sizeof(header), 0);
}

/* Whose frame this processor's last selection was about; 0: nobody's. The filter of the member that is selected runs next. */
INLINE __u64 *wanted_here(void)
{
	__u32 key = REASONS;

	return map_lookup(&sojourn_counts, &key);
}

INLINE void want(__u64 owner)
{
	__u64 *wanted = wanted_here();

	if (wanted)
		*wanted = owner;
}

/* Whether a packet socket has taken the frame that this processor is at, whose taps have just run. Asked once. */
INLINE int is_taken(void)
{
	__u64 *wanted = wanted_here();

	if (!wanted || !(*wanted & TAKEN))
		return 0;
	*wanted = 0;
	return 1;
}

/*
 * On the interface, before the stack: packets of moved sessions go no further, so that nobody but their owner answers them.
 * The owner's packet socket has had them already: taps come first. What was decided there of a datagram counts, also if there is
 * another rule since: so it is seen by one side, and by one only.
 */
SEC("classifier")
int sojourn_ingress(struct __sk_buff *skb)
{
	struct packet packet = {};
	struct config *config = configuration();
	struct flow *flow;

	if (!config)
		return TC_NEXT;
	flow = received(skb, config->raw ? 0 : sizeof(struct ethernet), &packet);
	if (packet.key.protocol == UDP && !(flow && flow->mode == PORT)) {
		if (!is_taken())
			return TC_NEXT;
		count(TAKEN_DIRECT);
		return TC_DROP;
	}
	if (!flow)
		return TC_NEXT;
	if (packet.first_fragment) {
		/* The kernel would put it together and answer with a reset. The server sees the note and takes the session home. */
		flow->notes = NOTE_FRAGMENT;
		count(FRAGMENTED);
		return TC_DROP;
	}
	if (flow->mode != PORT) {
		count(TAKEN_DIRECT);
		return TC_DROP;
	}
	if (config->raw && add_header(skb, config))
		return TC_DROP;
	count(TAKEN_PORT);
	return redirect_peer(flow->target, 0);
}

/* In the fanout group: which member gets the frame. Member 0 is the sink. */
SEC("socket")
int sojourn_select(struct __sk_buff *skb)
{
	struct packet packet = {};
	struct flow *flow = received(skb, 0, &packet);
	int is_owned = flow && !packet.first_fragment && is_tapped(flow);
	struct owner *owner;

	want(is_owned ? flow->owner : 0);
	if (!is_owned)
		return 0;
	owner = map_lookup(&sojourn_owners, &flow->owner);
	return owner ? owner->index : 0;
}

/*
 * The kernel moves members of a fanout group to other places whenever one leaves, stops, or changes its ring. A frame that
 * arrives at the wrong member tells that member's place. If it was not known, the two exchange places: then one of them is right,
 * and stays so. If it was, the next place is tried. So any order is found again after few lost frames.
 */
INLINE void heal(__u32 me, __u32 other)
{
	struct owner *mine = map_lookup(&sojourn_owners, &me);
	struct owner *theirs = map_lookup(&sojourn_owners, &other);
	struct config *config = configuration();
	__u32 place, next;

	if (!theirs || !config)
		return;
	place = theirs->index;
	next = place + 1 < config->members ? place + 1 : 1;
	if (mine && mine->index != place && place < config->members) {
		if (mine->index && mine->index < config->members)
			next = mine->index;
		mine->index = place;
	}
	theirs->index = next;
}

/*
 * On each program's packet socket, locked: only frames of its own. The number below stands for the owner's, which is put in
 * its place when the program is loaded (crates/filter/src/owned.rs).
 */
SEC("socket")
int sojourn_owned(struct __sk_buff *skb)
{
	struct packet packet = {};
	struct config *config = configuration();
	struct flow *flow;
	__u64 me;

	asm volatile("%0 = 0x536f6a6f4f776e72 ll" : "=r"(me));
	if (!config)
		return 0;
	flow = received(skb, config->raw ? 0 : sizeof(struct ethernet), &packet);
	if (!flow || packet.first_fragment || !is_tapped(flow))
		return 0;
	if (flow->owner == (__u32)me) {
		want(TAKEN | flow->owner);
		return WHOLE;
	}
	count(MISDIRECTED);
	heal(me, flow->owner);
	return 0;
}

/*
 * On the sink: nothing, at hardly any cost. The kernel takes places modulo the number of members, so a frame for a place behind the last
 * comes here; its owner's place is looked for elsewhere.
 */
SEC("socket")
int sojourn_sink(struct __sk_buff *skb)
{
	__u64 *wanted = wanted_here();
	struct config *config;
	struct owner *theirs;
	__u32 other;

	if (!wanted || !*wanted)
		return 0;
	other = *wanted;
	config = configuration();
	theirs = map_lookup(&sojourn_owners, &other);
	count(MISDIRECTED);
	if (theirs && config)
		theirs->index = theirs->index + 1 < config->members ? theirs->index + 1 : 1;
	return 0;
}

/* On both ends of a port, where nothing may pass: what this machine's stack would send in, and what would reach a stack. */
SEC("classifier")
int sojourn_closed(struct __sk_buff *skb)
{
	return TC_DROP;
}

/* Before everything else, on devices where AF_XDP wins. What finds no socket goes on and reaches the packet socket. */
SEC("xdp")
int sojourn_xdp(struct xdp_md *ctx)
{
	struct packet packet = {};
	struct config *config = configuration();
	struct ethernet header;
	struct owner *owner;
	struct flow *flow;

	if (!config || xdp_load(ctx, 0, &header, sizeof(header)))
		return XDP_PASS;
	if (!is_same_mac(header.target, config->mac))
		return XDP_PASS;
	if (!parse(ctx, IN_XDP, header.type, &packet) || packet.first_fragment)
		return XDP_PASS;
	flow = find(&packet.key);
	if (!flow || flow->mode != XSK)
		return XDP_PASS;
	owner = map_lookup(&sojourn_owners, &flow->owner);
	if (!owner || ctx->rx_queue_index >= owner->queues)
		return XDP_PASS;
	if (redirect_map(&sojourn_xsks, owner->xsk + ctx->rx_queue_index, XDP_PASS) != XDP_REDIRECT)
		return XDP_PASS;
	count(TAKEN_XSK);
	return XDP_REDIRECT;
}

/* On the server's side of a port: what the program sends goes out of the interface if it is a session's of this port. */
SEC("classifier")
int sojourn_portout(struct __sk_buff *skb)
{
	struct config *config = configuration();
	enum reason reason;

	if (!config)
		return TC_DROP;
	reason = check_frame(skb, config);
	count(reason);
	return reason == SENT ? redirect(config->interface, 0) : TC_DROP;
}

char license_name[] SEC("license") = "Dual MIT/GPL";
