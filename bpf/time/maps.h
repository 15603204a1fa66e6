// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Maps and formats of the time stamps' programs, and their clock.
 *
 * Not here: the points at which stamps are taken. crates/time/src/event.rs has `struct event` in
 * Rust: change both together. Read bpf/time.bpf.c first.
 */
#pragma once

#include "kernel.h"

#define AF_UNIX 1
#define AF_INET 2
#define AF_INET6 10
#define IPPROTO_TCP 6
#define IPPROTO_UDP 17
#define THREADS_MAX 8192
#define SOCKETS_MAX 8192
#define ARRIVALS_MAX 4096
#define RING_LEN (4 << 20)

enum kind { SENT = 1, ARRIVED = 2, TAKEN = 3, PROBED = 4 };
enum protocol { TCP = 1, UDP = 2, UNIX = 3, PIPE = 4 };

/* Stamps of an event by its kind; as in crates/time/src/event.rs. */
enum { SEND_ENTER, SEND_OUT, SEND_IP, SEND_LINK, SEND_DONE, SEND_EXIT };
enum { ARRIVE_DEVICE, ARRIVE_FILTER, ARRIVE_IP, ARRIVE_IN, ARRIVE_READY };
enum { TAKE_ENTER, TAKE_RUN, TAKE_EXIT };
#define STAMPS 6

/*
 * A time stamp: the clock, the time that these programs have taken on the processor so far
 * (wrapping), and the processor.
 */
struct stamp {
	__u64 at;
	__u32 spent;
	__u32 processor;
};

/* The socket or pipe of an event: addresses as the kernel has them, ports in host order. */
struct ends {
	__u64 sock;  /* the kernel's address of the socket or pipe, as a name */
	__u64 inode; /* the session's name for users */
	__u8 protocol;
	__u8 family;
	__u16 local_port;
	__u16 remote_port;
	__u16 zero;
	__u8 local[16];
	__u8 remote[16];
};

struct event {
	__u32 kind;
	__u32 thread;
	__u32 process;
	__s32 result; /* the call's return value */
	__u64 packet; /* the kernel's address of the packet, as a name; 0: none */
	__u32 first;  /* TCP: the range of sequence numbers, from first to last */
	__u32 last;
	__u32 usual; /* the time that this program took the last time (ns) */
	__u32 zero;
	struct ends ends;
	struct stamp stamps[STAMPS];
};

/* The current or last call of a thread. */
struct call {
	__u32 kind; /* 0: no call that is timed */
	__u32 first;
	__u64 packet;
	struct ends ends;
	struct stamp stamps[STAMPS];
	struct stamp run; /* when the thread last got a processor */
};

/* A packet on its way in. */
struct arrival {
	__u64 packet;
	__u64 head; /* of its data: clones share it */
	struct stamp stamps[STAMPS];
};

/* The state of one processor. */
struct local {
	__u32 spent;
	__u32 usual;	       /* of the program that reports arrivals */
	struct stamp softirq;  /* start of the soft interrupt or its packet; `at` 0: none */
	struct arrival packet; /* the packet at hand */
	struct arrival queued; /* the packet that the protocol processes */
	__u64 sock;	       /* its socket; 0: none that is timed */
	__u32 first;
	__u32 last;
};

/* The settings that crates/time/src/programs.rs writes. */
struct settings {
	__u64 inode;  /* only this socket or pipe; 0: all */
	__u32 fixed;  /* the part of a program's cost that the program does not see (ns) */
	__u32 trial;  /* the process that measures the cost of a stamp; 0: none */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct settings);
} time_settings SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, THREADS_MAX);
	__type(key, __u32);
	__type(value, __u32);
} time_programs SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, THREADS_MAX);
	__type(key, __u32);
	__type(value, struct call);
} time_threads SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, SOCKETS_MAX);
	__type(key, __u64);
	__type(value, __u32);
} time_sockets SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, ARRIVALS_MAX);
	__type(key, __u64);
	__type(value, struct arrival);
} time_arrivals SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct local);
} time_local SEC(".maps");

/* The zeros that a new call begins with, which are too large for a program's stack. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct call);
} time_blank SEC(".maps");

/* The number of events that found no room in the ring. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} time_lost SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, RING_LEN);
} time_events SEC(".maps");

INLINE struct settings *settings(void)
{
	__u32 key = 0;

	return map_lookup(&time_settings, &key);
}

INLINE struct local *local(void)
{
	__u32 key = 0;

	return map_lookup(&time_local, &key);
}

INLINE struct stamp now(const struct local *local)
{
	struct stamp stamp = {};

	stamp.spent = local->spent;
	stamp.processor = processor();
	stamp.at = time_now();
	return stamp;
}

/* Adds the time since a program's stamp to the tool's own time, which is not the kernel's. */
INLINE __u32 finish(struct local *local, const struct stamp *begun)
{
	const struct settings *set = settings();
	__u32 taken = (__u32)(time_now() - begun->at);

	if (set)
		taken += set->fixed;
	local->spent += taken;
	return taken;
}

/*
 * Returns a new event, to be submitted. Without room in the ring it returns 0 and counts the loss.
 */
INLINE struct event *report(__u32 kind)
{
	struct event *event = ring_reserve(&time_events, sizeof(*event), 0);
	__u64 ids = current_ids();
	__u32 key = 0;

	if (!event) {
		__u64 *lost = map_lookup(&time_lost, &key);

		if (lost)
			*lost += 1;
		return 0;
	}
	__builtin_memset(event, 0, sizeof(*event));
	event->kind = kind;
	event->process = (__u32)(ids >> 32);
	event->thread = (__u32)ids;
	return event;
}
