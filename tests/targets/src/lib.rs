//! Table of the fuzz targets: their names, and the functions of the crates' `fuzz` modules that
//! `fuzz/fuzz_targets/*.rs` call.
//!
//! `tests/corpora.rs` runs the targets on stable Rust. The table is empty in release builds, which
//! lack the `fuzz` modules. Not here: the properties that each target checks.

/// Function of a target: it panics if a property does not hold for the input.
pub type Run = fn(&[u8]);

/// Fuzz target.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Name of the target for `cargo fuzz run`.
    pub name: &'static str,
    /// Function of the target.
    pub run: Run,
    /// Number of generated inputs that a test runs; a quick target gets more.
    pub runs: usize,
}

#[cfg(debug_assertions)]
const fn target(name: &'static str, runs: usize, run: Run) -> Target {
    Target { name, run, runs }
}

/// All fuzz targets.
#[cfg(debug_assertions)]
pub const ALL: &[Target] = &[
    target("carrier_conntrack", 20_000, sojourn_carrier::fuzz::conntrack),
    target("cli_tables", 10_000, sojourn_cli::fuzz::tables),
    target("driver_client", 2_000, sojourn_driver::fuzz::answers),
    target("driver_device", 2_000, sojourn_driver::fuzz::messages),
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
    target("protocol_server", 300, sojourn_protocol::fuzz::messages),
    target("pump_sealed", 3_000, sojourn_pump::fuzz::sealed_files),
    target("server_diag", 20_000, sojourn_server::identity::fuzz_answers),
    target("server_lines", 20_000, sojourn_server::fuzz_lines::lines),
    target("session_server", 100, messages),
    target("stream_home", 1_000, sojourn_stream::fuzz::way_home),
    target("stream_inbox", 1_000, sojourn_stream::fuzz::inbox),
    target("stream_region", 1_000, sojourn_stream::fuzz::stream),
    target("udp_server", 300, sojourn_udp::fuzz::messages),
    target("wire_frame", 10_000, sojourn_wire::fuzz::frame),
    target("wire_headers", 10_000, sojourn_wire::fuzz::headers),
    target("wire_options", 10_000, sojourn_wire::fuzz::options),
];

/// No targets, because release builds lack the `fuzz` modules.
#[cfg(not(debug_assertions))]
pub const ALL: &[Target] = &[];

#[cfg(debug_assertions)]
fn messages(bytes: &[u8]) {
    sojourn_server::fuzz::messages(bytes);
}
