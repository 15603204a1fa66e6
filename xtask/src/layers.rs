//! The check that dependencies between crates point down the layers only.
//!
//! The list is ARCHITECTURE.md's, "Layers". A crate may use those listed for it and nothing else of
//! the workspace; tests and examples, which may use everything below the top, are dev-dependencies.

use crate::steps::{cargo, output};
use anyhow::{Context, Result, bail};
use serde_json::Value;

/// Who may use whom.
const LAYERS: &[(&str, &[&str])] = &[
    ("sojourn-shm", &[]),
    ("sojourn-idl", &[]),
    ("sojourn-ipc", &["sojourn-shm"]),
    ("sojourn-stream", &["sojourn-shm"]),
    ("sojourn-session", &["sojourn-idl", "sojourn-ipc"]),
    ("sojourn-wire", &[]),
    ("sojourn-options", &[]),
    ("sojourn-proto", &["sojourn-wire"]),
    ("sojourn-netif", &["sojourn-wire"]),
    ("sojourn-filter", &["sojourn-ipc", "sojourn-wire"]),
    (
        "sojourn-pump",
        &[
            "sojourn-netif",
            "sojourn-options",
            "sojourn-proto",
            "sojourn-shm",
            "sojourn-stream",
            "sojourn-wire",
        ],
    ),
    ("sojourn-carrier", SIDES),
    ("sojourn-server", SIDES),
    ("sojourn-library", SIDES),
    ("sojourn-preload", &["sojourn-library", "sojourn-options", "sojourn-session"]),
    (
        "sojourn-cli",
        &["sojourn-filter", "sojourn-ipc", "sojourn-netif", "sojourn-session", "sojourn-wire"],
    ),
    ("sojourn-lab", &["sojourn-wire"]),
    ("sojourn-system", &["sojourn-ipc", "sojourn-lab", "sojourn-session"]),
    (
        "sojourn-bench",
        &["sojourn-idl", "sojourn-ipc", "sojourn-lab", "sojourn-session", "sojourn-shm"],
    ),
    ("sojourn-demo", &["sojourn-idl", "sojourn-ipc"]),
    ("sojourn-stubs-rust", &["sojourn-idl", "sojourn-ipc"]),
    ("sojourn-interop", &["sojourn-idl", "sojourn-ipc", "sojourn-stubs-rust"]),
    ("xtask", &[]),
];

/// What the sides of a session, the library and the session server with its carrier, may use.
const SIDES: &[&str] = &[
    "sojourn-carrier",
    "sojourn-filter",
    "sojourn-ipc",
    "sojourn-netif",
    "sojourn-options",
    "sojourn-proto",
    "sojourn-pump",
    "sojourn-session",
    "sojourn-shm",
    "sojourn-stream",
    "sojourn-wire",
];

/// Fails on the first edge that is not allowed.
pub(crate) fn check() -> Result<()> {
    let text = output(&mut cargo(&["metadata", "--no-deps", "--format-version", "1"]))?;
    let metadata: Value = serde_json::from_str(&text)?;
    let packages = metadata["packages"].as_array().context("cargo metadata: no packages")?;
    for package in packages {
        let name = package["name"].as_str().unwrap_or_default();
        let Some((_, allowed)) = LAYERS.iter().find(|(known, _)| *known == name) else {
            bail!(
                "{name} has no place among the layers: add it to ARCHITECTURE.md and xtask/src/layers.rs"
            );
        };
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let other = dependency["name"].as_str().unwrap_or_default();
            let is_ours = LAYERS.iter().any(|(known, _)| *known == other);
            let is_for_tests = dependency["kind"].as_str() == Some("dev");
            if is_ours && !is_for_tests && !allowed.contains(&other) {
                bail!("{name} must not use {other}: see ARCHITECTURE.md, \"Layers\"");
            }
        }
    }
    Ok(())
}
