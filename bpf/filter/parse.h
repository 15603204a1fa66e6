// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * The session of a received frame. Not here: the frame's delivery (bpf/filter.bpf.c); frames out of
 * ports, which are checked further (outgoing.h).
 */
#pragma once

#include "maps.h"

/*
 * Loads bytes at an offset from the network header. A socket buffer is read from its linear head
 * first. If a driver has left headers in fragments, they are read from the buffer's data, which
 * begins `base` bytes before the network header. In XDP the frame begins with an Ethernet header.
 */
INLINE int load(void *ctx, int base, __u32 at, void *to, __u32 length)
{
	if (base == IN_XDP)
		return xdp_load(ctx, sizeof(struct ethernet) + at, to, length);
	if (!skb_load_from(ctx, at, to, length, BPF_HDR_START_NET))
		return 0;
	return skb_load(ctx, base + at, to, length);
}

/* Compares addresses. A BPF program has no library with memcmp. */
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

/*
 * Reads the ports, at the end of both parsers. Returns 0 for a fragmented datagram, which stays in
 * the kernel. The first fragment of a TCP segment is marked in the packet.
 */
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

/*
 * Skips extension headers that need no decision of the kernel. Returns the offset of the transport
 * header, or 0.
 */
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

/*
 * Parses a received packet into the key of a session. Returns 0 if the packet cannot belong to a
 * session. A tag of VLAN 0 is skipped, because it has a priority only.
 */
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

/* Finds a session with this peer, or an unconnected datagram socket at this local address. */
INLINE struct flow *find(struct flow_key *key)
{
	struct flow *flow = map_lookup(&sojourn_flows, key);

	if (flow || key->protocol != UDP)
		return flow;
	key->remote_port = 0;
	__builtin_memset(key->remote, 0, sizeof(key->remote));
	return map_lookup(&sojourn_flows, key);
}

/* Returns the moved session of a received packet, or 0. */
INLINE struct flow *received(struct __sk_buff *skb, int base, struct packet *packet)
{
	if (skb->pkt_type != HOST || (skb->vlan_present && (skb->vlan_tci & 0xfff)))
		return 0;
	if (!parse(skb, base, skb->protocol, packet))
		return 0;
	return find(&packet->key);
}

/* Returns true if the session's program receives by a packet socket. */
INLINE int is_tapped(const struct flow *flow)
{
	return flow->mode == DIRECT || flow->mode == XSK;
}
