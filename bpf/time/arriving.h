// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Received packets: the packet at hand is followed on its processor, from the soft interrupt to the
 * notification of the socket's reader.
 *
 * Not here: calls (time/calls.h), packets on their way out (bpf/time.bpf.c). Read bpf/time.bpf.c
 * first.
 */
#pragma once

#include "calls.h"

/* A packet comes from its device. */
INLINE int arrive(struct sk_buff *packet)
{
	struct local *here = local();
	struct stamp stamp;

	if (!here)
		return 0;
	stamp = now(here);
	/*
	 * The time of a packet begins with the arrival of the packet before it in the same soft
	 * interrupt.
	 */
	here->packet.stamps[ARRIVE_DEVICE] = here->softirq;
	here->packet.stamps[ARRIVE_FILTER] = stamp;
	here->packet.stamps[ARRIVE_IP].at = 0;
	here->packet.stamps[ARRIVE_IN].at = 0;
	here->packet.packet = (__u64)packet;
	here->packet.head = (__u64)packet->head;
	if (here->softirq.at)
		here->softirq = stamp;
	finish(here, &stamp);
	return 0;
}

/* A layer gets the packet, or a clone of it. */
INLINE int reach(struct sk_buff *packet, __u32 layer)
{
	struct local *here = local();
	struct stamp stamp;

	if (!here || here->packet.head != (__u64)packet->head || layer >= STAMPS)
		return 0;
	stamp = now(here);
	here->packet.stamps[layer] = stamp;
	if (layer == ARRIVE_IN)
		here->packet.packet = (__u64)packet;
	finish(here, &stamp);
	return 0;
}

/* A thread holds the socket's lock: the packet waits in the backlog until the thread unlocks it. */
INLINE int postpone(struct sock *sock, struct sk_buff *packet)
{
	struct local *here = local();
	__u64 key = (__u64)packet, name = (__u64)sock;
	struct stamp begun;

	if (!here || here->packet.packet != key || !map_lookup(&time_sockets, &name))
		return 0;
	begun = now(here);
	map_update(&time_arrivals, &key, &here->packet, BPF_ANY);
	finish(here, &begun);
	return 0;
}

/* TCP processes a packet of this socket. */
INLINE int accept_packet(struct sock *sock, struct sk_buff *packet)
{
	struct local *here = local();
	__u64 key = (__u64)packet, name = (__u64)sock;
	struct stamp begun;

	if (!here)
		return 0;
	here->sock = 0;
	if (!map_lookup(&time_sockets, &name))
		return 0;
	begun = now(here);
	if (here->packet.head == (__u64)packet->head) {
		here->queued = here->packet;
		here->queued.packet = key;
		/* Without a stamp at the beginning of TCP's input, this time stands for it. */
		if (!here->queued.stamps[ARRIVE_IN].at)
			here->queued.stamps[ARRIVE_IN] = begun;
	} else {
		struct arrival *kept = map_lookup(&time_arrivals, &key);

		here->queued.head = 0;
		if (kept) {
			here->queued = *kept;
			map_delete(&time_arrivals, &key);
		}
	}
	if (here->queued.head) {
		struct tcp_skb_cb *control =
			(void *)__builtin_preserve_access_index(&packet->cb);

		COPY(here->first, control->seq);
		COPY(here->last, control->end_seq);
		/* A segment without data notifies no reader. */
		if (here->first != here->last)
			here->sock = name;
	}
	finish(here, &begun);
	return 0;
}

/*
 * Reports data that have arrived for a socket or a pipe. `stamp` is the time of the reader's
 * notification.
 */
INLINE void tell(struct local *here, __u64 name, const struct stamp *stamp, struct sock *sock)
{
	struct event *event = report(ARRIVED);

	if (event) {
		event->ends.sock = name;
		event->usual = here->usual;
		if (sock) {
			event->ends.protocol = protocol_of(sock);
			describe(&event->ends, sock);
			event->packet = here->queued.packet;
			event->first = here->first;
			event->last = here->last;
			__builtin_memcpy(event->stamps, here->queued.stamps, sizeof(event->stamps));
		}
		event->stamps[ARRIVE_READY] = *stamp;
		ring_submit(event, 0);
	}
	here->usual = finish(here, stamp);
}

/* The reader of a socket is notified of data. */
INLINE int ready(struct sock *sock)
{
	struct local *here = local();
	__u64 name = (__u64)sock;
	struct stamp stamp;
	struct call *call;

	if (!here)
		return 0;
	if (here->sock == name) {
		stamp = now(here);
		here->sock = 0;
		tell(here, name, &stamp, sock);
		return 0;
	}
	/* UDP notifies its reader of the packet that the soft interrupt processes. */
	if (here->softirq.at && here->packet.head && protocol_of(sock) == UDP) {
		if (!map_lookup(&time_sockets, &name))
			return 0;
		stamp = now(here);
		here->queued = here->packet;
		here->packet.head = 0;
		here->first = 0;
		here->last = 0;
		tell(here, name, &stamp, sock);
		return 0;
	}
	/* A Unix socket's writer puts the data into its peer's queue itself. */
	call = timed();
	if (!call || call->kind != SENT || call->ends.protocol != UNIX)
		return 0;
	stamp = now(here);
	if (!call->stamps[SEND_DONE].at)
		call->stamps[SEND_DONE] = stamp;
	if (map_lookup(&time_sockets, &name))
		tell(here, name, &stamp, 0);
	else
		finish(here, &stamp);
	return 0;
}

/* A pipe's writer wakes the thread that reads. */
INLINE int wake(struct task_struct *task)
{
	struct call *call = timed();
	struct local *here = local();
	__u32 thread = (__u32)task->pid;
	struct call *reader;
	struct stamp stamp;

	if (!call || !here || call->kind != SENT || call->ends.protocol != PIPE)
		return 0;
	reader = map_lookup(&time_threads, &thread);
	/* A reader that sleeps in poll(2) has read from this pipe before, as a rule. */
	if (!reader || reader->ends.sock != call->ends.sock)
		return 0;
	stamp = now(here);
	if (!call->stamps[SEND_DONE].at)
		call->stamps[SEND_DONE] = stamp;
	tell(here, call->ends.sock, &stamp, 0);
	return 0;
}
