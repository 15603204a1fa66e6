//! The fuzz targets by name: the functions of the crates' own `fuzz` modules that
//! `fuzz/fuzz_targets/*.rs` call.
//!
//! `tests/corpora.rs` runs them on stable Rust. Debug builds only: in others those modules are not
//! there. Not here: what each expects of its bytes.

/// A target's function: it panics if something is wrong.
pub type Run = fn(&[u8]);

/// A target.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// As `cargo fuzz run` knows it.
    pub name: &'static str,
    /// The function.
    pub run: Run,
    /// How many inputs a test may take of it: more of what is quick.
    pub runs: usize,
}

#[cfg(debug_assertions)]
const fn target(name: &'static str, runs: usize, run: Run) -> Target {
    Target { name, run, runs }
}

/// All.
#[cfg(debug_assertions)]
pub const ALL: &[Target] = &[
    target("carrier_conntrack", 20_000, sojourn_carrier::fuzz::conntrack),
    target("cli_tables", 10_000, sojourn_cli::fuzz::tables),
    target("filter_netlink", 20_000, sojourn_filter::fuzz::netlink),
    target("firewall_rules", 10_000, sojourn_firewall::fuzz::rules),
    target("idl_parse", 300, sojourn_idl::fuzz_parse),
    target("ipc_control", 300, sojourn_ipc::fuzz::control),
    target("ipc_reply", 300, sojourn_ipc::fuzz::reply),
    target("ipc_request", 300, sojourn_ipc::fuzz::request),
    target("netif_control", 10_000, sojourn_netif::fuzz::control),
    target("netif_descriptors", 3_000, sojourn_netif::fuzz::descriptors),
    target("netif_slots", 3_000, sojourn_netif::fuzz::slots),
    target("proto_record", 10_000, sojourn_proto::fuzz::record),
    target("proto_segments", 1_000, sojourn_proto::fuzz::segments),
    target("pump_sealed", 3_000, sojourn_pump::fuzz::sealed_files),
    target("server_diag", 20_000, sojourn_server::identity::fuzz_answers),
    target("session_server", 100, messages),
    target("stream_home", 1_000, sojourn_stream::fuzz::way_home),
    target("stream_inbox", 1_000, sojourn_stream::fuzz::inbox),
    target("stream_region", 1_000, sojourn_stream::fuzz::stream),
    target("wire_frame", 10_000, sojourn_wire::fuzz::frame),
    target("wire_headers", 10_000, sojourn_wire::fuzz::headers),
    target("wire_options", 10_000, sojourn_wire::fuzz::options),
];

/// None: see the head of this file.
#[cfg(not(debug_assertions))]
pub const ALL: &[Target] = &[];

#[cfg(debug_assertions)]
fn messages(bytes: &[u8]) {
    sojourn_server::fuzz::messages(bytes);
}
