//! The table of places in the kernel that are stamped: which program goes where.
//!
//! Trace points are enough for the way as a whole; functions of the kernel divide it further. A
//! function has several names if kernels call it differently: the first that the running kernel
//! knows is used. Not here: loading (`programs`). Read `bpf/time.bpf.c` first.

/// How a program is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AttachPoint {
    /// A trace point: nothing is measured without it.
    Point,
    /// Where a function of the kernel begins: a border of two rows.
    Border,
    /// Where a function begins, in the place of a trace point that older kernels lack.
    Instead(&'static str),
}

/// One program and the places where it can go.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Probe {
    /// The program's name in the object.
    pub(crate) program: &'static str,
    pub(crate) at: AttachPoint,
    /// Names of what it is attached to, in order of preference.
    pub(crate) targets: &'static [&'static str],
}

const fn border(program: &'static str, targets: &'static [&'static str]) -> Probe {
    Probe { program, at: AttachPoint::Border, targets }
}

const fn point(program: &'static str, targets: &'static [&'static str]) -> Probe {
    Probe { program, at: AttachPoint::Point, targets }
}

/// All probes. Borders come first and calls last, so that the first calls that are timed find all
/// of their places attached.
pub(crate) const PROBES: &[Probe] = &[
    border("out_tcp", &["tcp_write_xmit"]),
    border("out_udp", &["udp_send_skb"]),
    border("out_udp6", &["udp_v6_send_skb"]),
    border("ip_tcp", &["__ip_queue_xmit", "ip_queue_xmit"]),
    border("ip_tcp6", &["inet6_csk_xmit"]),
    border("ip_udp", &["ip_send_skb"]),
    border("ip_udp6", &["ip6_send_skb"]),
    border("ip_in", &["ip_rcv_core", "ip_rcv"]),
    border("ip6_in", &["ip6_rcv_core", "ipv6_rcv"]),
    border("tcp_in", &["tcp_v4_rcv"]),
    border("tcp6_in", &["tcp_v6_rcv"]),
    border("udp_in", &["udp_rcv"]),
    border("udp6_in", &["udpv6_rcv"]),
    border("tcp_waits", &["tcp_add_backlog"]),
    border("taken_udp", &["skb_consume_udp"]),
    point("reader_told", &["sk_data_ready"]),
    Probe {
        program: "reader_told_then",
        at: AttachPoint::Instead("reader_told"),
        targets: &["sock_def_readable"],
    },
    point("reader_woken", &["sched_waking"]),
    point("tcp_accepts", &["tcp_probe"]),
    point("softirq_begins", &["softirq_entry"]),
    point("softirq_ends", &["softirq_exit"]),
    point("packet_comes", &["netif_receive_skb"]),
    point("link_queue", &["net_dev_queue"]),
    point("link_done", &["net_dev_xmit"]),
    point("process_forks", &["sched_process_fork"]),
    point("thread_ends", &["sched_process_exit"]),
    point("thread_runs", &["sched_switch"]),
    point("call_begins", &["sys_enter"]),
    point("call_ends", &["sys_exit"]),
];

/// The two programs of the trial.
pub(crate) const TRIAL: [Probe; 2] =
    [point("probe_first", &["sys_enter"]), point("probe_second", &["sys_enter"])];
