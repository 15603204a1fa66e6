// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * The packet filter: it delivers the packets of moved sessions to their programs, and checks the
 * frames that a program sends through its port.
 *
 * Not here: protocol state; loading and attaching (crates/filter/src). crates/filter/src/oracle.rs
 * makes the same decisions in Rust, and a test feeds both the same packets: change them together.
 * Read docs/understand/packet-path.md first.
 */
#include "filter/outgoing.h"
#include "filter/parse.h"

/* Adds an Ethernet header to a packet of a link that has none, because a port is Ethernet. */
INLINE int add_header(struct __sk_buff *skb, const struct config *config)
{
	struct ethernet header = {};

	__builtin_memcpy(header.target, config->mac, sizeof(header.target));
	header.type = skb->protocol;
	return skb_change_head(skb, sizeof(header), 0) ||
	       skb_store(skb, 0, &header, sizeof(header), 0);
}

/*
 * Returns this processor's note on the frame at hand: the owner that the fanout selection chose for
 * it, or 0. The filter of the selected member runs next, on the same processor.
 */
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

/*
 * Returns true if a packet socket has taken the frame at hand. Packet sockets see a frame before
 * this program runs. The answer resets the note, so it is asked for once per frame.
 */
INLINE int is_taken(void)
{
	__u64 *wanted = wanted_here();

	if (!wanted || !(*wanted & TAKEN))
		return 0;
	*wanted = 0;
	return 1;
}

/* Returns true if the frame at hand went to another member than its owner. Resets the note. */
INLINE int is_astray(void)
{
	__u64 *wanted = wanted_here();

	if (!wanted || *wanted != ASTRAY)
		return 0;
	*wanted = 0;
	return 1;
}

/*
 * Has a frame that went astray arrive once more, so that it is not lost: what was learnt from it
 * leads it to the right member, or at least to the next one. For a peer a lost frame is a time-out,
 * and those double each time.
 */
INLINE int arrive_again(struct __sk_buff *skb)
{
	__u32 times = skb->mark ^ AGAIN;

	if (times > AGAIN_MAX)
		times = 0;
	if (times == AGAIN_MAX)
		return TC_DROP;
	skb->mark = AGAIN ^ (times + 1);
	return redirect(skb->ifindex, BPF_F_INGRESS);
}

/*
 * Returns true if no packet socket was to have the frame at hand, as far as the fanout selection
 * knew: it runs before this program, for every frame.
 */
INLINE int is_unwanted(void)
{
	__u64 *wanted = wanted_here();

	return wanted && !*wanted;
}

/*
 * On the interface, before the stack: packets of moved sessions are dropped here, so that the
 * kernel does not answer them. The owner's packet socket has seen them before. For a datagram the
 * packet socket's decision is kept even if the rule has changed since, so that exactly one side
 * gets the datagram.
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
	if (is_astray() && flow && is_tapped(flow))
		return arrive_again(skb);
	/* The packet socket's decision is kept, whatever the rules are by now. */
	if (packet.key.protocol == UDP && !(flow && flow->mode == PORT)) {
		if (!is_taken())
			return TC_NEXT;
		count(TAKEN_DIRECT);
		return TC_DROP;
	}
	if (!flow) {
		/* The session has gone home since the frame went astray. */
		if ((skb->mark ^ AGAIN) <= AGAIN_MAX)
			skb->mark = 0;
		return TC_NEXT;
	}
	if (packet.first_fragment) {
		/*
		 * The kernel would reassemble the segment and answer it with a reset. The server
		 * reads the note and recalls the session.
		 */
		flow->notes |= NOTE_FRAGMENT;
		count(FRAGMENTED);
		return TC_DROP;
	}
	if (flow->mode != PORT) {
		/*
		 * The rule was added between the packet sockets and here. A segment that neither
		 * side sees would be repeated only after a time-out.
		 */
		if (flow->notes & NOTE_NEW && is_unwanted())
			return TC_NEXT;
		count(TAKEN_DIRECT);
		return TC_DROP;
	}
	/* The peer repeats it. */
	if (flow->notes & NOTE_HELD) {
		count(NOT_OWNED);
		return TC_DROP;
	}
	/* The port is Ethernet; a raw link is not. */
	if (config->raw && add_header(skb, config))
		return TC_DROP;
	count(TAKEN_PORT);
	return redirect_peer(flow->target, 0);
}

/*
 * In the fanout group: returns the index of the member that gets the frame. Member 0 is the sink.
 */
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
 * Corrects the recorded indexes of members after a frame of `other` has arrived at `me`. The kernel
 * reorders the members of a fanout group when one leaves, stops, or changes its ring. The arrival
 * shows that `me` has the index that was recorded for `other`; `other` gets the next index as a
 * guess. So every order is found again, index after index, and the frame is tried again
 * (`arrive_again`). The two records must not be exchanged: the kernel takes indexes modulo the
 * number of members, which may be smaller than the one recorded, and two members with different
 * records for one index would exchange them for ever.
 */
INLINE void heal(__u32 me, __u32 other)
{
	struct owner *mine = map_lookup(&sojourn_owners, &me);
	struct owner *theirs = map_lookup(&sojourn_owners, &other);
	struct config *config = configuration();
	__u32 place;

	if (!theirs || !config)
		return;
	place = theirs->index;
	if (mine && place < config->members)
		mine->index = place;
	theirs->index = place + 1 < config->members ? place + 1 : 1;
	want(ASTRAY);
}

/*
 * On each program's packet socket, as a locked filter: passes frames of the owner's sessions only.
 * The constant below is replaced by the owner's number when the program is loaded
 * (crates/filter/src/owned.rs).
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
 * On the sink: passes nothing, at little cost. The kernel takes indexes modulo the number of
 * members, so a frame for an index behind the last arrives here: then the next index is tried for
 * the frame's owner.
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
	if (theirs && config) {
		theirs->index = theirs->index + 1 < config->members ? theirs->index + 1 : 1;
		want(ASTRAY);
	}
	return 0;
}

/*
 * On both ends of a port, in the directions that nothing may pass: from this machine's stack into
 * the port, and from the port into a stack.
 */
SEC("classifier")
int sojourn_closed(struct __sk_buff *skb)
{
	return TC_DROP;
}

/*
 * Before the other programs, on devices where AF_XDP is faster. A frame without an AF_XDP socket
 * passes on, and reaches the packet socket.
 */
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

/*
 * On the server's side of a port: a frame from the program goes out of the interface if it belongs
 * to a session of this port.
 */
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
