// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * The check of frames that a program sends through its port. Not here: their forwarding
 * (bpf/filter.bpf.c).
 */
#pragma once

#include "parse.h"

/* The fields of a frame that a program sends through its port. */
struct outgoing {
	struct flow_key key;
	__u32 network_length; /* of the IP header */
	__u32 transport;      /* offset of the transport header in the frame */
	__u32 length;	      /* of the packet, from its IP header */
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
	/* 224.0.0.0/3: multicast groups, reserved addresses, broadcast. */
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

/*
 * Checks the transport header: ports, and the lengths in all headers. Sets `header` to the length
 * of the transport header.
 */
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
	/* Frames of the least Ethernet length may have padding. */
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
 * Returns true if the checksum that the device computes cannot overwrite a checked field. A
 * checksum that is left to the device is written later, at an offset that the sender chooses, and
 * could change an address after the check. The program cannot read that offset, but the kernel
 * refuses to truncate a packet before the end of the checksum. The refusal shows that the checksum
 * is left to the device, at an offset not before the transport header's own checksum; bytes behind
 * that are the sender's to choose. A refusal does not change the packet.
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

	/*
	 * The frame may still be in the sender's memory. Pulling the headers copies them, so that
	 * the sender cannot change them after the check.
	 */
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
	if (!flow || flow->mode != PORT || flow->target != skb->ifindex || flow->notes & NOTE_HELD)
		return NOT_OWNED;
	return is_checksum_safe(skb, &out) ? SENT : CHECKSUM;
}
