// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Time stamps of data on their way through the kernel's network stack, for `sojourn time`: at the
 * borders of the layers that the 1993 paper's table 4 has.
 *
 * A call that sends is one event, with the stamps of its first packet. A received packet is one
 * event, reported when its reader is notified. A call that takes data is one event. The time that
 * these programs themselves take is summed for each processor, and stamps have that sum, so that it
 * can be subtracted. Only processes in `time_programs` are timed; other processes pay for one
 * lookup in that map.
 *
 * Trace points are enough for the total times. Programs at functions of the kernel (fentry) divide
 * these further, and are left out where a kernel does not support them.
 *
 * Not here: the use of events (crates/time/src/ledger.rs), loading (crates/time/src/programs.rs).
 * On a kernel without one of these functions, or with another name for it, that stamp is missing.
 * Read docs/use/time.md first.
 */
#include "time/arriving.h"

/* The arguments of a function or a trace point; a function's return value follows its arguments. */
#define ARG(type, index) ((type)context[index])

SEC("tp_btf/sys_enter")
int call_begins(__u64 *context)
{
	return enter(ARG(struct pt_regs *, 0), ARG(long, 1));
}

SEC("tp_btf/sys_exit")
int call_ends(__u64 *context)
{
	return leave(ARG(__s64, 1));
}

/* Records the datagram that the call takes. */
SEC("fentry/skb_consume_udp")
int taken_udp(__u64 *context)
{
	struct call *call = timed();

	if (call && call->kind == TAKEN && call->ends.sock == context[0])
		call->packet = context[1];
	return 0;
}

/* A packet reaches a layer on its way out; only the first packet of a call is stamped. */
INLINE int passes(__u32 layer, __u64 sock, __u64 packet)
{
	struct call *call = timed();
	struct local *here = local();
	struct stamp stamp;

	if (!call || !here || call->kind != SENT || layer >= STAMPS || call->stamps[layer].at)
		return 0;
	if (call->ends.sock != sock && (sock || !call->packet))
		return 0;
	if (packet && call->packet && call->packet != packet)
		return 0;
	stamp = now(here);
	call->stamps[layer] = stamp;
	if (packet)
		call->packet = packet;
	finish(here, &stamp);
	return 0;
}

/*
 * As `passes`, for functions of UDP whose arguments are a packet without its socket: the socket is
 * that of the current call.
 */
INLINE int passes_first(__u32 layer, __u64 packet)
{
	struct call *call = timed();

	if (!call || call->kind != SENT || call->ends.protocol != UDP)
		return 0;
	return passes(layer, call->ends.sock, packet);
}

SEC("fentry/tcp_write_xmit")
int out_tcp(__u64 *context)
{
	return passes(SEND_OUT, context[0], 0);
}

SEC("fentry/udp_send_skb")
int out_udp(__u64 *context)
{
	return passes_first(SEND_OUT, 0);
}

SEC("fentry/udp_v6_send_skb")
int out_udp6(__u64 *context)
{
	return passes_first(SEND_OUT, 0);
}

SEC("fentry/__ip_queue_xmit")
int ip_tcp(__u64 *context)
{
	return passes(SEND_IP, context[0], context[1]);
}

SEC("fentry/inet6_csk_xmit")
int ip_tcp6(__u64 *context)
{
	return passes(SEND_IP, context[0], context[1]);
}

SEC("fentry/ip_send_skb")
int ip_udp(__u64 *context)
{
	return passes_first(SEND_IP, context[1]);
}

SEC("fentry/ip6_send_skb")
int ip_udp6(__u64 *context)
{
	return passes_first(SEND_IP, context[0]);
}

SEC("tp_btf/net_dev_queue")
int link_queue(__u64 *context)
{
	return passes(SEND_LINK, (__u64)ARG(struct sk_buff *, 0)->sk, context[0]);
}

SEC("tp_btf/net_dev_xmit")
int link_done(__u64 *context)
{
	return passes(SEND_DONE, 0, context[0]);
}

#define NET_RX 3

SEC("tp_btf/softirq_entry")
int softirq_begins(__u64 *context)
{
	struct local *here = local();

	if (ARG(unsigned int, 0) == NET_RX && here)
		here->softirq = now(here);
	return 0;
}

SEC("tp_btf/softirq_exit")
int softirq_ends(__u64 *context)
{
	struct local *here = local();

	if (ARG(unsigned int, 0) == NET_RX && here)
		here->softirq.at = 0;
	return 0;
}

SEC("tp_btf/netif_receive_skb")
int packet_comes(__u64 *context)
{
	return arrive(ARG(struct sk_buff *, 0));
}

#define REACHES(name, function, layer)                                                             \
	SEC("fentry/" #function)                                                                   \
	int name(__u64 *context)                                                                   \
	{                                                                                          \
		return reach(ARG(struct sk_buff *, 0), layer);                                     \
	}

REACHES(ip_in, ip_rcv_core, ARRIVE_IP)
REACHES(ip6_in, ip6_rcv_core, ARRIVE_IP)
REACHES(tcp_in, tcp_v4_rcv, ARRIVE_IN)
REACHES(tcp6_in, tcp_v6_rcv, ARRIVE_IN)
REACHES(udp_in, udp_rcv, ARRIVE_IN)
REACHES(udp6_in, udpv6_rcv, ARRIVE_IN)

SEC("fentry/tcp_add_backlog")
int tcp_waits(__u64 *context)
{
	return postpone(ARG(struct sock *, 0), ARG(struct sk_buff *, 1));
}

SEC("tp_btf/tcp_probe")
int tcp_accepts(__u64 *context)
{
	return accept_packet(ARG(struct sock *, 0), ARG(struct sk_buff *, 1));
}

SEC("tp_btf/sk_data_ready")
int reader_told(__u64 *context)
{
	return ready(ARG(struct sock *, 0));
}

/* As `reader_told`, on kernels before 6.3, which do not have the trace point. */
SEC("fentry/sock_def_readable")
int reader_told_then(__u64 *context)
{
	return ready(ARG(struct sock *, 0));
}

SEC("tp_btf/sched_waking")
int reader_woken(__u64 *context)
{
	return wake(ARG(struct task_struct *, 0));
}

SEC("tp_btf/sched_switch")
int thread_runs(__u64 *context)
{
	__u32 thread = (__u32)ARG(struct task_struct *, 2)->pid;
	struct call *call = map_lookup(&time_threads, &thread);
	struct local *here = local();

	if (!call || !here)
		return 0;
	call->run = now(here);
	finish(here, &call->run);
	return 0;
}

SEC("tp_btf/sched_process_fork")
int process_forks(__u64 *context)
{
	__u32 parent = (__u32)ARG(struct task_struct *, 0)->tgid;
	__u32 child = (__u32)ARG(struct task_struct *, 1)->tgid;
	__u32 *mark = map_lookup(&time_programs, &parent);
	__u32 copy;

	if (!mark || parent == child)
		return 0;
	copy = *mark;
	map_update(&time_programs, &child, &copy, BPF_ANY);
	return 0;
}

SEC("tp_btf/sched_process_exit")
int thread_ends(__u64 *context)
{
	__u32 thread = (__u32)ARG(struct task_struct *, 0)->pid;
	__u32 process = (__u32)ARG(struct task_struct *, 0)->tgid;

	map_delete(&time_threads, &thread);
	if (thread == process)
		map_delete(&time_programs, &process);
	return 0;
}

/*
 * Measures the cost of a stamp: two equal programs run at one trace point, and the time between
 * their stamps is the whole cost of the first.
 */
INLINE int probe(void)
{
	const struct settings *set = settings();
	struct local *here = local();
	struct event *event;
	struct stamp stamp;

	if (!here || !set || !set->trial || set->trial != (__u32)(current_ids() >> 32))
		return 0;
	stamp = now(here);
	event = report(PROBED);
	if (!event)
		return 0;
	event->stamps[0] = stamp;
	event->usual = finish(here, &stamp);
	ring_submit(event, 0);
	return 0;
}

SEC("tp_btf/sys_enter")
int probe_first(__u64 *context)
{
	return probe();
}

SEC("tp_btf/sys_enter")
int probe_second(__u64 *context)
{
	return probe();
}

char license_name[] SEC("license") = "Dual MIT/GPL";
