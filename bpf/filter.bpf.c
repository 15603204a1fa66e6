// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * The packet filter: which moved session's packets go to which program, and what a program may send through its port.
 *
 * Not here: anything of a protocol's state; loading and attaching (crates/filter/src). The same decisions stand in Rust in
 * crates/filter/src/oracle.rs, and a test feeds both the same packets: change them together. Read docs/packet-path.md first.
 */
#include <linux/bpf.h>
#include <linux/errno.h>
#include <linux/if_ether.h>

#define SEC(name) __attribute__((section(name), used))
#define __uint(name, value) int(*name)[value]
#define __type(name, type) typeof(type) *name
#define INLINE static __attribute__((always_inline)) inline

/* Helpers of the kernel are called by number. */
static void *(*map_lookup)(void *, const void *) = (void *)BPF_FUNC_map_lookup_elem;
static long (*skb_load)(const void *, __u32, void *, __u32) = (void *)BPF_FUNC_skb_load_bytes;
static long (*skb_load_from)(const void *, __u32, void *, __u32, __u32) =
	(void *)BPF_FUNC_skb_load_bytes_relative;
static long (*xdp_load)(void *, __u32, void *, __u32) = (void *)BPF_FUNC_xdp_load_bytes;
static long (*skb_store)(void *, __u32, const void *, __u32, __u64) =
	(void *)BPF_FUNC_skb_store_bytes;
static long (*skb_pull)(void *, __u32) = (void *)BPF_FUNC_skb_pull_data;
static long (*skb_change_head)(void *, __u32, __u64) = (void *)BPF_FUNC_skb_change_head;
static long (*skb_change_tail)(void *, __u32, __u64) = (void *)BPF_FUNC_skb_change_tail;
static long (*redirect)(__u32, __u64) = (void *)BPF_FUNC_redirect;
static long (*redirect_peer)(__u32, __u64) = (void *)BPF_FUNC_redirect_peer;
static long (*redirect_map)(void *, __u64, __u64) = (void *)BPF_FUNC_redirect_map;

#define be16(value) __builtin_bswap16(value)

#define TC_NEXT (-1) /* other programs, then the stack */
#define TC_DROP 2
#define IN_XDP (-1)
#define HOST 0 /* skb->pkt_type: addressed to this machine */
#define TCP 6
#define UDP 17
#define HOP_BY_HOP 0
#define FRAGMENT 44
#define DESTINATION 60
#define EXTENSIONS_MAX 8
#define WHOLE 0x7fffffff /* a socket filter's answer: all of the frame */
#define PULLED 128	 /* headers that a port's frame may have */

/* Keep these as in crates/filter/src/rule.rs. */
enum mode { DIRECT = 1, PORT = 2, XSK = 3 };
enum { NOTE_FRAGMENT = 1 };

/* Keep these as in crates/filter/src/reason.rs. */
enum reason {
	TAKEN_DIRECT,
	TAKEN_PORT,
	TAKEN_XSK,
	FRAGMENTED,
	MISDIRECTED,
	SENT,
	NOT_IP,
	WRONG_SOURCE_MAC,
	GROUP_TARGET,
	MALFORMED,
	EXTENDED,
	SENT_FRAGMENT,
	OTHER_PROTOCOL,
	NOT_OWNED,
	TOO_LONG,
	CHECKSUM,
	REASONS,
};

/* As this machine sees the session. Ports and addresses in network order; an IPv4 address is followed by zeros. */
struct flow_key {
	__u8 protocol;
	__u8 family; /* 4 or 6 */
	__u16 zero;
	__u16 local_port;
	__u16 remote_port;
	__u32 local[4];
	__u32 remote[4];
};

struct flow {
	__u32 owner;
	__u32 mode;
	__u32 target; /* of a port: the server's side of it */
	__u32 notes;
};

struct owner {
	__u32 index; /* among the sockets of the fanout group; 0 is the sink */
	__u32 xsk;   /* first of its places in `sojourn_xsks`, one for each queue */
	__u32 queues;
	__u32 zero;
};

struct config {
	__u32 interface;
	__u32 mtu;
	__u32 members; /* of the fanout group, the sink among them */
	__u8 raw;      /* no link header */
	__u8 zero;
	__u8 mac[6];
};

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

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, REASONS);
	__type(key, __u32);
	__type(value, __u64);
} sojourn_counts SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, __u32);
} sojourn_xsks SEC(".maps");

struct packet {
	struct flow_key key;
	__u32 transport; /* from the network header */
	int first_fragment;
};

struct tag {
	__u16 control;
	__u16 type;
};

struct ethernet {
	__u8 target[6];
	__u8 source[6];
	__u16 type;
};

struct ip4 {
	__u8 version_length;
	__u8 service;
	__u16 total;
	__u16 id;
	__u16 fragment;
	__u8 ttl;
	__u8 protocol;
	__u16 checksum;
	__u32 source;
	__u32 target;
};

struct ip6 {
	__u32 version_flow;
	__u16 length;
	__u8 next;
	__u8 hops;
	__u32 source[4];
	__u32 target[4];
};

struct ports {
	__u16 source;
	__u16 target;
};

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

/*
 * Bytes from the network header on. Of a socket buffer first from its head, wherever the header lies; then, if a driver has left
 * headers outside of the head, from its data, which begins `base` bytes before the network header. XDP sees Ethernet.
 */
INLINE int load(void *ctx, int base, __u32 at, void *to, __u32 length)
{
	if (base == IN_XDP)
		return xdp_load(ctx, sizeof(struct ethernet) + at, to, length);
	if (!skb_load_from(ctx, at, to, length, BPF_HDR_START_NET))
		return 0;
	return skb_load(ctx, base + at, to, length);
}

/* Not memcmp: there is no library to call. */
INLINE int is_same_mac(const __u8 *one, const __u8 *other)
{
	__u8 difference = 0;

#pragma clang loop unroll(full)
	for (int i = 0; i < 6; i++)
		difference |= one[i] ^ other[i];
	return !difference;
}

INLINE int is_transport(__u8 protocol)
{
	return protocol == TCP || protocol == UDP;
}

/* The end of both parsers: the ports. A fragmented datagram is the kernel's; of a TCP segment the first fragment is told. */
INLINE int parse_ports(void *ctx, int base, __u32 at, struct packet *packet)
{
	struct ports ports;

	if (packet->first_fragment && packet->key.protocol == UDP)
		return 0;
	if (load(ctx, base, at, &ports, sizeof(ports)))
		return 0;
	packet->key.local_port = ports.target;
	packet->key.remote_port = ports.source;
	return 1;
}

INLINE int parse_ip4(void *ctx, int base, __u32 at, struct packet *packet)
{
	struct ip4 ip;

	if (load(ctx, base, at, &ip, sizeof(ip)))
		return 0;
	if (ip.version_length >> 4 != 4 || (ip.version_length & 15) < 5)
		return 0;
	if (!is_transport(ip.protocol) || (ip.fragment & be16(0x1fff)))
		return 0;
	packet->first_fragment = (ip.fragment & be16(0x2000)) != 0;
	packet->key.protocol = ip.protocol;
	packet->key.family = 4;
	packet->key.local[0] = ip.target;
	packet->key.remote[0] = ip.source;
	return parse_ports(ctx, base, at + (ip.version_length & 15) * 4, packet);
}

/* Extension headers that need no decision of the kernel are stepped over. Returns the transport's place, or 0. */
INLINE __u32 skip_extensions(void *ctx, int base, __u32 at, __u8 next,
			     struct packet *packet)
{
	struct {
		__u8 next;
		__u8 length;
		__u16 fragment;
	} header;

#pragma clang loop unroll(full)
	for (int i = 0; i < EXTENSIONS_MAX; i++) {
		if (is_transport(next))
			break;
		if (!(next == HOP_BY_HOP && i == 0) && next != DESTINATION &&
		    next != FRAGMENT)
			return 0;
		if (load(ctx, base, at, &header, sizeof(header)))
			return 0;
		if (next == FRAGMENT) {
			if (packet->first_fragment || (header.fragment & be16(0xfff8)))
				return 0;
			packet->first_fragment = 1;
			at += 8;
		} else {
			at += ((__u32)header.length + 1) * 8;
		}
		next = header.next;
	}
	packet->key.protocol = next;
	return is_transport(next) ? at : 0;
}

INLINE int parse_ip6(void *ctx, int base, __u32 at, struct packet *packet)
{
	struct ip6 ip;

	if (load(ctx, base, at, &ip, sizeof(ip)))
		return 0;
	if ((ip.version_flow & 0xf0) != 0x60)
		return 0;
	packet->key.family = 6;
	__builtin_memcpy(packet->key.local, ip.target, sizeof(ip.target));
	__builtin_memcpy(packet->key.remote, ip.source, sizeof(ip.source));
	at = skip_extensions(ctx, base, at + sizeof(ip), ip.next, packet);
	return at && parse_ports(ctx, base, at, packet);
}

/* A received packet's session; 0 if it cannot be one's. A tag for VLAN 0 says only a priority. */
INLINE int parse(void *ctx, int base, __u16 protocol, struct packet *packet)
{
	struct tag tag;
	__u32 at = 0;

	if (protocol == be16(ETH_P_8021Q) || protocol == be16(ETH_P_8021AD)) {
		if (load(ctx, base, 0, &tag, sizeof(tag)) || (tag.control & be16(0xfff)))
			return 0;
		at = sizeof(tag);
		protocol = tag.type;
	}
	if (protocol == be16(ETH_P_IP))
		return parse_ip4(ctx, base, at, packet);
	if (protocol == be16(ETH_P_IPV6))
		return parse_ip6(ctx, base, at, packet);
	return 0;
}

/* A session with this peer, or a datagram socket that takes from everyone. */
INLINE struct flow *find(struct flow_key *key)
{
	struct flow *flow = map_lookup(&sojourn_flows, key);

	if (flow || key->protocol != UDP)
		return flow;
	key->remote_port = 0;
	__builtin_memset(key->remote, 0, sizeof(key->remote));
	return map_lookup(&sojourn_flows, key);
}

/* The moved session that a received packet belongs to. */
INLINE struct flow *received(struct __sk_buff *skb, int base, struct packet *packet)
{
	if (skb->pkt_type != HOST || (skb->vlan_present && (skb->vlan_tci & 0xfff)))
		return 0;
	if (!parse(skb, base, skb->protocol, packet))
		return 0;
	return find(&packet->key);
}

/* Whether the session's program gets its packets from a packet socket. */
INLINE int is_tapped(const struct flow *flow)
{
	return flow->mode == DIRECT || flow->mode == XSK;
}

/* A port is Ethernet: packets of a link without header get one. */
INLINE int add_header(struct __sk_buff *skb, const struct config *config)
{
	struct ethernet header = {};

	__builtin_memcpy(header.target, config->mac, sizeof(header.target));
	header.type = skb->protocol;
	return skb_change_head(skb, sizeof(header), 0) ||
	       skb_store(skb, 0, &header, sizeof(header), 0);
}

/*
 * On the interface, before the stack: packets of moved sessions go no further, so that nobody but their owner answers them.
 * The owner's packet socket has had them already: taps come first.
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
	struct owner *owner;

	if (!flow || packet.first_fragment || !is_tapped(flow))
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
	if (flow->owner == (__u32)me)
		return WHOLE;
	count(MISDIRECTED);
	heal(me, flow->owner);
	return 0;
}

/* On the sink: nothing, at no cost. */
SEC("socket")
int sojourn_sink(struct __sk_buff *skb)
{
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

/* What a program sends through its port: as read from the frame. */
struct outgoing {
	struct flow_key key;
	__u32 network_length; /* of the IP header */
	__u32 transport;      /* place of the transport header in the frame */
	__u32 length;	      /* of the packet, as its IP header says */
};

INLINE enum reason check_ip4(struct __sk_buff *skb, struct outgoing *out)
{
	struct ip4 ip;

	if (skb_load(skb, sizeof(struct ethernet), &ip, sizeof(ip)) || ip.version_length >> 4 != 4)
		return MALFORMED;
	if (ip.version_length != 0x45)
		return EXTENDED;
	if (ip.fragment & be16(0x3fff))
		return SENT_FRAGMENT;
	/* Groups, the reserved addresses, and everyone. */
	if ((ip.target & 0xe0) == 0xe0)
		return GROUP_TARGET;
	out->key.protocol = ip.protocol;
	out->key.family = 4;
	out->key.local[0] = ip.source;
	out->key.remote[0] = ip.target;
	out->network_length = sizeof(ip);
	out->length = be16(ip.total);
	return SENT;
}

INLINE enum reason check_ip6(struct __sk_buff *skb, struct outgoing *out)
{
	struct ip6 ip;

	if (skb_load(skb, sizeof(struct ethernet), &ip, sizeof(ip)))
		return MALFORMED;
	if ((ip.version_flow & 0xf0) != 0x60)
		return MALFORMED;
	if (ip.next == FRAGMENT)
		return SENT_FRAGMENT;
	if (ip.next == HOP_BY_HOP || ip.next == DESTINATION || ip.next == 43)
		return EXTENDED;
	if ((ip.target[0] & 0xff) == 0xff)
		return GROUP_TARGET;
	out->key.protocol = ip.next;
	out->key.family = 6;
	__builtin_memcpy(out->key.local, ip.source, sizeof(ip.source));
	__builtin_memcpy(out->key.remote, ip.target, sizeof(ip.target));
	out->network_length = sizeof(ip);
	out->length = sizeof(ip) + be16(ip.length);
	return SENT;
}

/* The transport header: the ports, and the lengths of all that has one. `header` becomes the transport header's length. */
INLINE enum reason check_transport(struct __sk_buff *skb, struct outgoing *out, __u32 *header)
{
	__u32 at = sizeof(struct ethernet) + out->network_length;
	struct ports ports;
	__u8 offset;

	if (!is_transport(out->key.protocol))
		return OTHER_PROTOCOL;
	out->transport = at;
	*header = out->key.protocol == UDP ? 8 : 20;
	if (out->length < out->network_length + *header)
		return MALFORMED;
	/* Short frames may have padding. */
	if (out->length + sizeof(struct ethernet) > skb->len ||
	    (out->length + sizeof(struct ethernet) != skb->len && skb->len > ETH_ZLEN))
		return MALFORMED;
	if (skb_load(skb, at, &ports, sizeof(ports)))
		return MALFORMED;
	if (out->key.protocol == TCP) {
		if (skb_load(skb, at + 12, &offset, 1))
			return MALFORMED;
		*header = (offset >> 4) * 4;
		if (*header < 20 || out->length < out->network_length + *header)
			return MALFORMED;
	}
	out->key.local_port = ports.source;
	out->key.remote_port = ports.target;
	return SENT;
}

/*
 * A checksum that is left to the device is written later, at a place the sender names, and so could change an address
 * after it was checked. No field tells that place, but the kernel refuses to cut a packet off before the end of it. So the
 * checksum must be left to the device, and its place must be no earlier than the transport's own: what lies behind that is the
 * program's to write. A refusal leaves the packet as it was.
 */
INLINE int is_checksum_safe(struct __sk_buff *skb, const struct outgoing *out)
{
	__u32 end = out->transport + (out->key.protocol == TCP ? 18 : 8);

	return skb_change_tail(skb, end - 1, 0) == -EINVAL;
}

INLINE enum reason check_frame(struct __sk_buff *skb, const struct config *config)
{
	struct outgoing out = {};
	struct ethernet ethernet;
	enum reason reason;
	struct flow *flow;
	__u32 header, sent;

	/* A frame may still lie in the sender's memory. What is checked is a copy of the headers that nobody can change. */
	if (skb_pull(skb, skb->len < PULLED ? skb->len : PULLED) ||
	    skb_load(skb, 0, &ethernet, sizeof(ethernet)))
		return MALFORMED;
	if (skb->vlan_present)
		return NOT_IP;
	if (ethernet.type != be16(ETH_P_IP) && ethernet.type != be16(ETH_P_IPV6))
		return NOT_IP;
	if (!is_same_mac(ethernet.source, config->mac))
		return WRONG_SOURCE_MAC;
	if (ethernet.target[0] & 1)
		return GROUP_TARGET;
	reason = ethernet.type == be16(ETH_P_IP) ? check_ip4(skb, &out) : check_ip6(skb, &out);
	if (reason != SENT)
		return reason;
	reason = check_transport(skb, &out, &header);
	if (reason != SENT)
		return reason;
	sent = skb->gso_size ? out.network_length + header + skb->gso_size : out.length;
	if (sent > config->mtu)
		return TOO_LONG;
	flow = find(&out.key);
	if (!flow || flow->mode != PORT || flow->target != skb->ifindex)
		return NOT_OWNED;
	return is_checksum_safe(skb, &out) ? SENT : CHECKSUM;
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
