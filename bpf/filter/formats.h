// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * The helpers and formats of the packet filter and of the socket lookup. Not here: decisions, maps
 * (maps.h). Read bpf/filter.bpf.c first.
 */
#pragma once

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
/* Beside an owner's number, or in its place (`wanted_here`): */
#define TAKEN (1ULL << 32)  /* the owner's socket has the frame */
#define ASTRAY (1ULL << 33) /* another member got it, and the owner's index has been corrected */
/*
 * The mark of a frame that arrives once more because it went astray, with the number of times in
 * the low bits. The mark of a frame that has just come from a device is 0.
 */
#define AGAIN 0x536f4a00
#define AGAIN_MAX 0xff
#define PULLED 128	 /* headers that a port's frame may have */

/* Keep these as in crates/filter/src/rule.rs. */
enum mode { DIRECT = 1, PORT = 2, XSK = 3 };
enum { NOTE_FRAGMENT = 1, NOTE_NEW = 2, NOTE_HELD = 4 };

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

/*
 * A session from the view of this machine. Ports and addresses are in network order; an IPv4
 * address is followed by zeros.
 */
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
	__u32 target; /* the interface of the server's side, if the mode is PORT */
	__u32 notes;
};

struct owner {
	__u32 index; /* of its socket in the fanout group; 0 is the sink */
	__u32 xsk;   /* its first index in `sojourn_xsks`; one index for each queue */
	__u32 queues;
	__u32 zero;
};

struct config {
	__u32 interface;
	__u32 mtu;
	__u32 members; /* of the fanout group, with the sink */
	__u8 raw;      /* no link header */
	__u8 zero;
	__u8 mac[6];
};

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
