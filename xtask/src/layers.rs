//! The check that dependencies point one way: between crates, and between the files of each crate.
//!
//! A crate may use the workspace's crates that are listed for it, and no others. Tests and examples
//! may use everything below the top; cargo lists those as dev-dependencies. Files of a crate import
//! each other in one direction only. ARCHITECTURE.md shows the list of crates ("Layers") and the
//! folders of a crate that has an order of them, and is compared with both. Not here: finding
//! imports (`modules`).

use crate::modules::{FileId, FilePair, Imports, Tree, circles, imports, read_crate};
use crate::steps::{cargo, output};
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// The crates that each crate may use. Each entry has only crates listed before it, so that there
/// is no circle.
const LAYERS: &[(&str, &[&str])] = &[
    ("sojourn-abi", &[]),
    ("sojourn-shm", &[]),
    ("sojourn-syscall", &[]),
    ("sojourn-idl", &[]),
    ("sojourn-ipc-rt", &["sojourn-shm"]),
    ("sojourn-ipc", &["sojourn-ipc-rt", "sojourn-shm"]),
    ("sojourn-ipc-c", &["sojourn-ipc", "sojourn-shm"]),
    ("sojourn-stream", &["sojourn-shm"]),
    ("sojourn-session", &["sojourn-idl", "sojourn-ipc"]),
    ("sojourn-lending", &["sojourn-shm"]),
    ("sojourn-buffers", &["sojourn-lending", "sojourn-shm"]),
    ("sojourn-wire", &[]),
    ("sojourn-options", &[]),
    ("sojourn-proto", &["sojourn-wire"]),
    ("sojourn-netif", &["sojourn-syscall", "sojourn-wire"]),
    ("sojourn-confine", &[]),
    (
        "sojourn-driver",
        &[
            "sojourn-confine",
            "sojourn-idl",
            "sojourn-ipc",
            "sojourn-netif",
            "sojourn-shm",
            "sojourn-wire",
        ],
    ),
    ("sojourn-filter", &["sojourn-ipc", "sojourn-wire"]),
    ("sojourn-firewall", &["sojourn-wire"]),
    ("sojourn-time", &[]),
    ("sojourn-memory", &[]),
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
    (
        "sojourn-carrier",
        &[
            "sojourn-filter",
            "sojourn-firewall",
            "sojourn-ipc",
            "sojourn-netif",
            "sojourn-options",
            "sojourn-proto",
            "sojourn-pump",
            "sojourn-session",
            "sojourn-shm",
            "sojourn-stream",
            "sojourn-wire",
        ],
    ),
    (
        "sojourn-server",
        &[
            "sojourn-carrier",
            "sojourn-confine",
            "sojourn-driver",
            "sojourn-ipc",
            "sojourn-options",
            "sojourn-pump",
            "sojourn-session",
            "sojourn-shm",
            "sojourn-stream",
            "sojourn-wire",
        ],
    ),
    (
        "sojourn-library",
        &[
            "sojourn-driver",
            "sojourn-ipc",
            "sojourn-netif",
            "sojourn-options",
            "sojourn-proto",
            "sojourn-pump",
            "sojourn-session",
            "sojourn-shm",
            "sojourn-stream",
        ],
    ),
    (
        "sojourn-protocol",
        &[
            "sojourn-confine",
            "sojourn-ipc",
            "sojourn-library",
            "sojourn-options",
            "sojourn-session",
        ],
    ),
    (
        "sojourn-preload",
        &[
            "sojourn-abi",
            "sojourn-lending",
            "sojourn-library",
            "sojourn-options",
            "sojourn-session",
            "sojourn-syscall",
        ],
    ),
    ("sojourn-loader", &["sojourn-abi", "sojourn-syscall"]),
    (
        "sojourn-cli",
        &[
            "sojourn-filter",
            "sojourn-ipc",
            "sojourn-netif",
            "sojourn-session",
            "sojourn-time",
            "sojourn-wire",
        ],
    ),
    ("sojourn-udp", &["sojourn-idl", "sojourn-ipc", "sojourn-wire"]),
    ("sojourn-lab", &["sojourn-wire"]),
    (
        "sojourn-system",
        &["sojourn-abi", "sojourn-ipc", "sojourn-lab", "sojourn-protocol", "sojourn-session"],
    ),
    (
        "sojourn-bench",
        &[
            "sojourn-buffers",
            "sojourn-driver",
            "sojourn-idl",
            "sojourn-ipc",
            "sojourn-lab",
            "sojourn-memory",
            "sojourn-netif",
            "sojourn-protocol",
            "sojourn-session",
            "sojourn-shm",
            "sojourn-time",
            "sojourn-udp",
            "sojourn-wire",
        ],
    ),
    ("sojourn-emulation", &["sojourn-abi", "sojourn-ipc"]),
    ("sojourn-demo", &["sojourn-idl", "sojourn-ipc"]),
    ("sojourn-redis", &["sojourn-buffers"]),
    ("sojourn-names-rust", &["sojourn-idl", "sojourn-ipc"]),
    ("sojourn-stubs-rust", &["sojourn-idl", "sojourn-ipc"]),
    ("sojourn-interop", &["sojourn-idl", "sojourn-ipc", "sojourn-stubs-rust"]),
    (
        "sojourn-targets",
        &[
            "sojourn-carrier",
            "sojourn-cli",
            "sojourn-driver",
            "sojourn-filter",
            "sojourn-firewall",
            "sojourn-idl",
            "sojourn-ipc",
            "sojourn-netif",
            "sojourn-proto",
            "sojourn-protocol",
            "sojourn-pump",
            "sojourn-server",
            "sojourn-stream",
            "sojourn-udp",
            "sojourn-wire",
        ],
    ),
    ("xtask", &[]),
];

/// Folders of a crate, in order: each may import only those before it.
const ROOMS: &[(&str, &[&str])] = &[(
    "sojourn-library",
    &["host", "fds", "session", "process", "policy", "remote", "io", "ready", "moves", "control"],
)];

/// Fails on the first dependency between crates that is not allowed, on circles within crates, and
/// if ARCHITECTURE.md differs.
pub(crate) fn check() -> Result<()> {
    let packages = packages()?;
    for package in &packages {
        check_dependencies(package)?;
    }
    check_page(&std::fs::read_to_string("ARCHITECTURE.md").context("ARCHITECTURE.md")?)?;
    let faults: Vec<String> = packages.iter().map(check_files).collect::<Result<_>>()?;
    let faults: String = faults.concat();
    if !faults.is_empty() {
        bail!("files import each other in circles (ARCHITECTURE.md, \"Layers\"):\n{faults}");
    }
    Ok(())
}

/// Prints every import that is part of a circle within one package.
pub(crate) fn show(name: &str) -> Result<()> {
    let packages = packages()?;
    let package = packages.iter().find(|package| package["name"].as_str() == Some(name));
    let PackageCircles { files, description } =
        circles_of(package.with_context(|| format!("{name}: no such package"))?, true)?;
    println!("{name}: {files} files in circles\n{description}");
    Ok(())
}

/// Returns the workspace's packages, as cargo describes them.
pub(crate) fn packages() -> Result<Vec<Value>> {
    let text = output(&mut cargo(&["metadata", "--no-deps", "--format-version", "1"]))?;
    let metadata: Value = serde_json::from_str(&text)?;
    let packages = metadata["packages"].as_array().context("cargo metadata: no packages")?;
    Ok(packages.clone())
}

fn check_dependencies(package: &Value) -> Result<()> {
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
    Ok(())
}

/// Describes the wrong imports between one package's files; empty if there are none.
fn check_files(package: &Value) -> Result<String> {
    let name = package["name"].as_str().unwrap_or_default();
    let circles = circles_of(package, false)?;
    if circles.files > 0 {
        let PackageCircles { files, description } = circles;
        return Ok(format!("{name}: {files} files in circles:\n{description}"));
    }
    if let Some((_, rooms)) = ROOMS.iter().find(|(known, _)| *known == name) {
        let upwards = upwards_of(package, rooms)?;
        if !upwards.is_empty() {
            return Ok(format!("{name}: a room imports one above it:\n{upwards}\n"));
        }
    }
    Ok(String::new())
}

/// Describes the imports by a folder of a folder that comes after it.
fn upwards_of(package: &Value, rooms: &[&str]) -> Result<String> {
    let mut found = Vec::new();
    for CrateSources { tree, imports } in crates_of(package)? {
        let room = |file: &FileId| {
            let mut parts = tree.files[file.0].iter().skip_while(|part| *part != "src").skip(1);
            let first = Path::new(parts.next()?).with_extension("");
            rooms.iter().position(|room| first == Path::new(room))
        };
        let is_upwards = |from: &FileId, to: &FileId| matches!((room(from), room(to)), (Some(from), Some(to)) if from < to);
        for (FilePair { from, to }, import) in
            imports.iter().filter(|(files, _)| is_upwards(&files.from, &files.to))
        {
            let (from, to) = (tree.files[from.0].display(), tree.files[to.0].display());
            found.push(format!("  {from}:{} names {} of {to}", import.line, import.path));
        }
    }
    Ok(found.join("\n"))
}

/// A library's or program's sources, with the imports between its files.
struct CrateSources {
    tree: Tree,
    imports: Imports,
}

/// The circles of a package.
struct PackageCircles {
    /// The number of files that are in circles.
    files: usize,
    description: String,
}

/// Returns the sources of a package's libraries and programs.
fn crates_of(package: &Value) -> Result<Vec<CrateSources>> {
    let read = |path: &Path| std::fs::read_to_string(path).ok();
    let mut found = Vec::new();
    for root in roots_of(package)? {
        let tree = read_crate(&root, &read)?;
        let imports = imports(&tree);
        found.push(CrateSources { tree, imports });
    }
    Ok(found)
}

/// Returns the root files of a package's libraries and programs.
pub(crate) fn roots_of(package: &Value) -> Result<Vec<PathBuf>> {
    let here = std::env::current_dir()?;
    let mut found = Vec::new();
    for target in package["targets"].as_array().into_iter().flatten() {
        let kinds = target["kind"].as_array().context("cargo metadata: a target without kind")?;
        let is_code = |kind: &Value| {
            ["lib", "rlib", "cdylib", "staticlib", "bin"]
                .contains(&kind.as_str().unwrap_or_default())
        };
        if kinds.iter().any(is_code) {
            let root = Path::new(target["src_path"].as_str().unwrap_or_default());
            found.push(root.strip_prefix(&here).unwrap_or(root).to_owned());
        }
    }
    Ok(found)
}

/// Counts the files of a package that are in circles, and describes each circle by its shortest way
/// around, or, if `every`, by all its imports.
fn circles_of(package: &Value, every: bool) -> Result<PackageCircles> {
    let mut files = 0;
    let mut description = String::new();
    for CrateSources { tree, imports } in crates_of(package)? {
        for circle in circles(&tree, &imports) {
            files += circle.files.len();
            let lines = match every {
                true => circle.all(&tree, &imports),
                false => circle.shortest(&tree, &imports),
            };
            let _ = writeln!(description, "{} files:\n{lines}", circle.files.len());
        }
    }
    Ok(PackageCircles { files, description })
}

/// Fails unless the page shows the list, and the rooms of each crate that has some.
fn check_page(page: &str) -> Result<()> {
    let list = layers_list();
    if !page.contains(&list) {
        bail!("ARCHITECTURE.md, \"Layers\", must have this list:\n\n{list}");
    }
    for (name, rooms) in ROOMS {
        let short = name.strip_prefix("sojourn-").unwrap_or(name);
        if rooms_on(page, short) != *rooms {
            let rooms = rooms.join(", ");
            bail!("ARCHITECTURE.md, \"The {short}, room by room\", must have these rows: {rooms}");
        }
    }
    Ok(())
}

/// Returns the rooms in the page's table for a crate.
fn rooms_on<'p>(page: &'p str, name: &str) -> Vec<&'p str> {
    let heading = format!("### The {name}, room by room\n");
    let section = page.split_once(&heading).map_or("", |(_, rest)| rest);
    let rows = section.lines().take_while(|line| !line.starts_with('#'));
    rows.filter_map(|row| Some(row.strip_prefix("| `")?.split_once('`')?.0)).collect()
}

/// Formats the crates, each with those that it may use.
fn layers_list() -> String {
    let short = |name: &str| name.strip_prefix("sojourn-").unwrap_or(name).to_owned();
    let line = |(name, uses): &(&str, &[&str])| {
        let uses: Vec<String> = uses.iter().copied().map(short).collect();
        format!("{:<12}{}", short(name), uses.join(", ")).trim_end().to_owned()
    };
    let lines: Vec<String> = LAYERS.iter().map(line).collect();
    format!("```text\ncrate       may use\n{}\n```\n", lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::{LAYERS, rooms_on};

    #[test]
    fn rooms_are_read_from_the_first_column_of_their_table() {
        let page = "### The attic, room by room\n\n| room | is |\n|---|---|\n| `a` | `x` |\n\
            | `b` | y |\n\n### The cellar, room by room\n\n| `c` | z |\n";
        assert_eq!(rooms_on(page, "attic"), ["a", "b"]);
        assert_eq!(rooms_on(page, "cellar"), ["c"]);
        assert!(rooms_on(page, "roof").is_empty());
    }

    #[test]
    fn each_crate_uses_only_crates_listed_before_it() {
        for (index, (name, uses)) in LAYERS.iter().enumerate() {
            for used in *uses {
                let is_before = LAYERS[..index].iter().any(|(other, _)| other == used);
                assert!(is_before, "{name} may use {used}");
            }
        }
    }
}
