// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Calls of threads that are timed: their beginning, their socket or pipe, their end.
 *
 * Not here: packets (bpf/time.bpf.c, time/arriving.h). Read bpf/time.bpf.c first.
 */
#pragma once

#include "maps.h"

/* Returns the current thread's call, if it is timed. */
INLINE struct call *timed(void)
{
	__u32 thread = (__u32)current_ids();
	struct call *call = map_lookup(&time_threads, &thread);

	return call && call->kind ? call : 0;
}

/* Returns the current thread's record, if its process is timed. */
INLINE struct call *record(void)
{
	__u64 ids = current_ids();
	__u32 process = (__u32)(ids >> 32), thread = (__u32)ids, key = 0;
	struct call *call, *blank;

	if (!map_lookup(&time_programs, &process))
		return 0;
	call = map_lookup(&time_threads, &thread);
	if (call)
		return call;
	blank = map_lookup(&time_blank, &key);
	if (!blank)
		return 0;
	map_update(&time_threads, &thread, blank, BPF_ANY);
	return map_lookup(&time_threads, &thread);
}

INLINE void describe(struct ends *ends, struct sock *sock)
{
	unsigned short family = 0, port = 0;

	COPY(family, sock->__sk_common.skc_family);
	ends->family = (__u8)family;
	COPY(ends->local_port, sock->__sk_common.skc_num);
	COPY(port, sock->__sk_common.skc_dport);
	ends->remote_port = __builtin_bswap16(port);
	if (ends->family == AF_INET) {
		__u32 address = 0;

		COPY(address, sock->__sk_common.skc_rcv_saddr);
		__builtin_memcpy(ends->local, &address, 4);
		COPY(address, sock->__sk_common.skc_daddr);
		__builtin_memcpy(ends->remote, &address, 4);
	} else if (ends->family == AF_INET6) {
		COPY(ends->local, sock->__sk_common.skc_v6_rcv_saddr);
		COPY(ends->remote, sock->__sk_common.skc_v6_daddr);
	}
}

/* Returns the current thread's file with that descriptor number, or 0. */
INLINE struct file *file_of(unsigned long number)
{
	struct files_struct *files = current_task()->files;
	struct fdtable *table = 0;
	struct file **list = 0, *file = 0;
	unsigned int count = 0;

	COPY(table, files->fdt);
	if (!table)
		return 0;
	COPY(count, table->max_fds);
	if (number >= count)
		return 0;
	COPY(list, table->fd);
	read_kernel(&file, sizeof(file), list + number);
	return file;
}

#define TYPE_MASK 0170000
#define TYPE_SOCKET 0140000
#define TYPE_PIPE 0010000

/* Returns the protocol of a socket's data, or 0 for a protocol that is not timed. */
INLINE __u8 protocol_of(struct sock *sock)
{
	unsigned short family = 0;
	__u16 protocol = 0;

	COPY(family, sock->__sk_common.skc_family);
	if (family == AF_UNIX)
		return UNIX;
	if (family != AF_INET && family != AF_INET6)
		return 0;
	COPY(protocol, sock->sk_protocol);
	if (protocol == IPPROTO_TCP)
		return TCP;
	return protocol == IPPROTO_UDP ? UDP : 0;
}

/* Fills `ends` with the socket or pipe of a file. Returns 0 if that is not timed. */
INLINE int find(struct ends *ends, struct file *file)
{
	struct inode *inode = 0;
	struct socket *socket = 0;
	struct sock *sock = 0;
	unsigned short mode = 0;
	unsigned long number = 0;
	const struct settings *set = settings();

	COPY(inode, file->f_inode);
	if (!inode)
		return 0;
	COPY(mode, inode->i_mode);
	if ((mode & TYPE_MASK) != TYPE_SOCKET && (mode & TYPE_MASK) != TYPE_PIPE)
		return 0;
	COPY(number, inode->i_ino);
	if (!set || (set->inode && set->inode != number))
		return 0;
	__builtin_memset(ends, 0, sizeof(*ends));
	ends->inode = number;
	COPY(socket, file->private_data);
	if ((mode & TYPE_MASK) == TYPE_PIPE) {
		ends->sock = (__u64)socket;
		ends->protocol = PIPE;
		return 1;
	}
	COPY(sock, socket->sk);
	if (!sock)
		return 0;
	ends->sock = (__u64)sock;
	ends->protocol = protocol_of(sock);
	if (ends->protocol == TCP || ends->protocol == UDP)
		describe(ends, sock);
	return ends->protocol != 0;
}

/* Has the events of the socket or pipe at that address reported from now on. */
INLINE void remember(__u64 sock)
{
	__u32 one = 1;

	if (!map_lookup(&time_sockets, &sock))
		map_update(&time_sockets, &sock, &one, BPF_ANY);
}

/* Returns the kind of a system call, or 0 for a call that is not timed. */
INLINE __u32 kind_of(long number)
{
	switch (number) {
	case WRITE:
	case WRITEV:
	case SENDTO:
	case SENDMSG:
		return SENT;
	case READ:
	case READV:
	case RECVFROM:
	case RECVMSG:
		return TAKEN;
	}
	return 0;
}

/* A system call begins. */
INLINE int enter(struct pt_regs *registers, long number)
{
	__u32 kind = kind_of(number);
	struct call *call = kind ? record() : 0;
	struct local *here = local();
	struct file *file;
	struct tcp_sock *tcp;

	if (!call || !here)
		return 0;
	call->stamps[0] = now(here);
	__builtin_memset(&call->stamps[1], 0, sizeof(call->stamps) - sizeof(call->stamps[0]));
	call->kind = 0;
	call->packet = 0;
	call->first = 0;
	file = file_of(FIRST_ARGUMENT(registers));
	if (file && find(&call->ends, file)) {
		call->kind = kind;
		tcp = (void *)call->ends.sock;
		if (kind == TAKEN && call->ends.protocol == TCP)
			COPY(call->first, tcp->copied_seq);
		remember(call->ends.sock);
	}
	finish(here, &call->stamps[0]);
	return 0;
}

/* A system call ends. */
INLINE int leave(__s64 result)
{
	struct call *call = timed();
	struct local *here = local();
	struct event *event;
	struct stamp ended;

	if (!call || !here)
		return 0;
	ended = now(here);
	event = report(call->kind);
	if (event) {
		event->result = (__s32)result;
		event->packet = call->packet;
		event->first = call->first;
		event->ends = call->ends;
		__builtin_memcpy(event->stamps, call->stamps, sizeof(event->stamps));
		if (call->kind == SENT) {
			event->stamps[SEND_EXIT] = ended;
		} else {
			struct tcp_sock *tcp = (void *)call->ends.sock;

			if (call->ends.protocol == TCP)
				COPY(event->last, tcp->copied_seq);
			event->stamps[TAKE_RUN] = call->run;
			event->stamps[TAKE_EXIT] = ended;
		}
		ring_submit(event, 0);
	}
	call->kind = 0;
	finish(here, &ended);
	return 0;
}
