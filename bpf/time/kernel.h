// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * The kernel's types that the time stamps' programs read, and the kernel's helpers.
 *
 * Each struct has only the fields that are read: their offsets are those of the running kernel, put
 * in when the programs are loaded (CO-RE). Not here: maps (maps.h), decisions. Read bpf/time.bpf.c
 * first.
 */
#pragma once

#include <linux/bpf.h>
#include <stddef.h>

#define SEC(name) __attribute__((section(name), used))
#define __uint(name, value) int(*name)[value]
#define __type(name, type) typeof(type) *name
#define INLINE static __attribute__((always_inline)) inline
/* The loader replaces the offsets of these fields by the running kernel's. */
#define OF_KERNEL __attribute__((preserve_access_index))

/* Helpers of the kernel are called by number. */
static void *(*map_lookup)(void *, const void *) = (void *)BPF_FUNC_map_lookup_elem;
static long (*map_update)(void *, const void *, const void *, __u64) =
	(void *)BPF_FUNC_map_update_elem;
static long (*map_delete)(void *, const void *) = (void *)BPF_FUNC_map_delete_elem;
static __u64 (*time_now)(void) = (void *)BPF_FUNC_ktime_get_ns;
static struct task_struct *(*current_task)(void) = (void *)BPF_FUNC_get_current_task_btf;
static __u64 (*current_ids)(void) = (void *)BPF_FUNC_get_current_pid_tgid;
static __u32 (*processor)(void) = (void *)BPF_FUNC_get_smp_processor_id;
static long (*read_kernel)(void *, __u32, const void *) = (void *)BPF_FUNC_probe_read_kernel;
static void *(*ring_reserve)(void *, __u64, __u64) = (void *)BPF_FUNC_ringbuf_reserve;
static void (*ring_submit)(void *, __u64) = (void *)BPF_FUNC_ringbuf_submit;

struct in6_addr {
	__u8 bytes[16];
} OF_KERNEL;

struct sock_common {
	__u32 skc_daddr;
	__u32 skc_rcv_saddr;
	__u16 skc_dport; /* network order */
	__u16 skc_num;	 /* host order */
	unsigned short skc_family;
	struct in6_addr skc_v6_daddr;
	struct in6_addr skc_v6_rcv_saddr;
} OF_KERNEL;

struct sock {
	struct sock_common __sk_common;
	__u16 sk_type;
	__u16 sk_protocol;
} OF_KERNEL;

struct socket {
	struct sock *sk;
} OF_KERNEL;

struct inode {
	unsigned short i_mode;
	unsigned long i_ino;
} OF_KERNEL;

struct tcp_sock {
	__u32 copied_seq;
} OF_KERNEL;

struct sk_buff {
	struct sock *sk;
	char cb[48];
	unsigned char *head;
} OF_KERNEL;

struct tcp_skb_cb {
	__u32 seq;
	__u32 end_seq;
} OF_KERNEL;

struct file {
	struct inode *f_inode;
	void *private_data;
} OF_KERNEL;

struct fdtable {
	unsigned int max_fds;
	struct file **fd;
} OF_KERNEL;

struct files_struct {
	struct fdtable *fdt;
} OF_KERNEL;

struct task_struct {
	int pid;
	int tgid;
	struct files_struct *files;
} OF_KERNEL;

/* The register of a system call's first argument, and the numbers of calls that move data. */
#if defined(__TARGET_ARCH_x86)
struct pt_regs {
	unsigned long di;
} OF_KERNEL;
#define FIRST_ARGUMENT(regs) ((regs)->di)
enum { READ = 0, WRITE = 1, READV = 19, WRITEV = 20, SENDTO = 44, RECVFROM = 45, SENDMSG = 46, RECVMSG = 47 };
#elif defined(__TARGET_ARCH_arm64)
struct pt_regs {
	unsigned long orig_x0;
} OF_KERNEL;
#define FIRST_ARGUMENT(regs) ((regs)->orig_x0)
enum { READ = 63, WRITE = 64, READV = 65, WRITEV = 66, SENDTO = 206, RECVFROM = 207, SENDMSG = 211, RECVMSG = 212 };
#else
#error "system calls of this machine are not known"
#endif

/* Copies a field of a kernel's structure, whose address the verifier does not track. */
#define COPY(to, field) read_kernel(&(to), sizeof(to), __builtin_preserve_access_index(&(field)))
