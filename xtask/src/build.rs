//! Builds and installs the shipped programs and libraries, and starts the benchmarks.

use crate::memory;
use crate::packages::{BENCH, BENCH_LOCAL, BENCH_NET, BUILD, FILTER, ensure};
use crate::steps::{cargo, command, output, run};
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};

const UNIT: &str = "crates/server/systemd/sojournd.service";
const UNITS_USER: &str = "crates/server/systemd/sojourn.sysusers";

/// A library for C programs.
struct CLibrary {
    /// The crate's folder below `crates`, with headers and pkg-config file.
    folder: &'static str,
    /// The library's name as cargo writes it.
    built: &'static str,
    /// The library's name for C programs.
    library: &'static str,
    /// The name of the pkg-config file.
    package: &'static str,
}

const C_LIBRARIES: [CLibrary; 3] = [
    CLibrary {
        folder: "ipc-c",
        built: "libsojourn_ipc_c",
        library: "libsojourn_ipc",
        package: "sojourn-ipc",
    },
    CLibrary {
        folder: "udp",
        built: "libsojourn_udp",
        library: "libsojourn_udp",
        package: "sojourn-udp",
    },
    CLibrary {
        folder: "buffers",
        built: "libsojourn_buffers",
        library: "libsojourn_buffers",
        package: "sojourn-buffers",
    },
];

/// Builds every shipped program and library, in `target/release`.
pub(crate) fn build() -> Result<()> {
    ensure(BUILD)?;
    ensure(FILTER)?;
    everything()?;
    eprintln!(
        "   target/release: sojourn, sojournd, libsojourn_preload.so, sojourn-abi; libsojourn_ipc.so, libsojourn_ipc.a, sojourn-idl; sojourn-protocol; sojourn-driver; sojourn-udpd, libsojourn_udp.so; libsojourn_buffers.so"
    );
    Ok(())
}

/// Builds the shipped packages, and the programs of whole-system tests, in release mode
/// (`.cargo/config.toml` has the list).
pub(crate) fn everything() -> Result<()> {
    run("build", &mut cargo(&["ship"]))?;
    link_libraries(Path::new("target/release"))
}

/// Builds the IPC's libraries and the interface compiler, in release mode.
pub(crate) fn libraries() -> Result<()> {
    let words = ["build", "--release", "-p", "sojourn-ipc-c", "-p", "sojourn-idl"];
    run("build", &mut cargo(&words))?;
    link_libraries(Path::new("target/release"))
}

/// Builds and starts a benchmark, with every rival.
pub(crate) fn bench(words: &[&str]) -> Result<()> {
    ensure(BENCH)?;
    if matches!(words.first(), Some(&"local" | &"buffers")) {
        ensure(BENCH_LOCAL)?;
        everything()?;
    }
    if words.first() == Some(&"doors") {
        everything()?;
    }
    if words.first() == Some(&"net") {
        ensure(BENCH_NET)?;
        everything()?;
        netstack()?;
    }
    let mut all = vec!["run", "--release", "-p", "sojourn-bench", "--features", "rivals", "--"];
    all.extend(words);
    run("benchmark", &mut cargo(&all))
}

/// Builds all programs for the tables of the papers, then runs `sojourn-bench papers`.
pub(crate) fn papers(words: &[&str]) -> Result<()> {
    ensure(BENCH)?;
    ensure(BENCH_NET)?;
    everything()?;
    memory::prepare(words.windows(2).any(|pair| pair == ["--table", "memory"]))?;
    let mut all = vec!["run", "--release", "-p", "sojourn-bench", "--features", "rivals", "--"];
    all.push("papers");
    all.extend(words);
    run("papers", &mut cargo(&all))
}

/// Builds the rival in Go, if Go is installed; without it the benchmark reports that it was not
/// built. Go downloads the modules of `go.sum` from its module proxy, once.
fn netstack() -> Result<()> {
    let has_go = command(&["go", "version"]).output().is_ok_and(|output| output.status.success());
    if !has_go {
        eprintln!("   no Go: without gVisor's netstack");
        return Ok(());
    }
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or("target".into(), PathBuf::from);
    let program = std::path::absolute(target)?.join("release/sojourn-bench-netstack");
    let mut go = command(&["go", "build", "-trimpath", "-mod=readonly", "-o"]);
    let built = run("netstack", go.arg(program).arg(".").current_dir("crates/bench/netstack"));
    if let Err(error) = built {
        eprintln!("   {error:#}: without gVisor's netstack");
    }
    Ok(())
}

/// Compiles and lints the benchmarks, with every rival.
pub(crate) fn check_bench() -> Result<()> {
    ensure(BENCH)?;
    let words = [
        "clippy",
        "-p",
        "sojourn-bench",
        "--features",
        "rivals",
        "--all-targets",
        "--",
        "-D",
        "warnings",
    ];
    run("lints of the benchmarks", &mut cargo(&words))
}

/// Builds everything that a user of the system needs, and copies it below `prefix`.
pub(crate) fn install(prefix: &str) -> Result<()> {
    build()?;
    let root = match std::env::var_os("DESTDIR") {
        Some(staging) => PathBuf::from(staging).join(prefix.trim_start_matches('/')),
        None => PathBuf::from(prefix),
    };
    let below = |folder: &str| root.join(folder);
    for program in
        ["sojourn", "sojournd", "sojourn-protocol", "sojourn-driver", "sojourn-idl", "sojourn-udpd"]
    {
        copy(&format!("target/release/{program}"), &below("bin"))?;
    }
    copy("target/release/libsojourn_preload.so", &below("lib/sojourn"))?;
    copy("target/release/sojourn-abi", &below("lib/sojourn"))?;
    copy("target/release/libsojourn_ipc.a", &below("lib"))?;
    for CLibrary { folder, library, package, .. } in &C_LIBRARIES {
        copy(&format!("target/release/{library}.so"), &below("lib"))?;
        copy_tree(&Path::new("crates").join(folder).join("include"), &below("include"))?;
        let template = format!("crates/{folder}/{package}.pc.in");
        let text = fs::read_to_string(&template).context(template)?;
        let text = text.replace("@prefix@", prefix).replace("@version@", env!("CARGO_PKG_VERSION"));
        write(&below("lib/pkgconfig").join(format!("{package}.pc")), &text)?;
    }
    link_libraries(&below("lib"))?;
    let unit = fs::read_to_string(UNIT).context(UNIT)?;
    let unit = unit.replace("/usr/bin/sojournd", &format!("{prefix}/bin/sojournd"));
    write(&below("lib/systemd/system").join("sojournd.service"), &unit)?;
    let user = fs::read_to_string(UNITS_USER).context(UNITS_USER)?;
    write(&below("lib/sysusers.d").join("sojourn.conf"), &user)?;
    let compiler = "target/release/sojourn-idl";
    let pages = below("share/man/man1");
    write(&pages.join("sojourn-idl.1"), &output(&mut command(&[compiler, "man"]))?)?;
    output(command(&["target/release/sojourn", "man"]).arg(&pages))?;
    eprintln!("   {}/sojourn*.1", pages.display());
    for program in ["sojournd", "sojourn-udpd"] {
        let page = output(&mut command(&[&format!("target/release/{program}"), "--man"]))?;
        write(&below("share/man/man8").join(format!("{program}.8")), &page)?;
        completions(program, "--completions", &root.join("share"))?;
    }
    for program in ["sojourn-idl", "sojourn"] {
        completions(program, "completions", &root.join("share"))?;
    }
    Ok(())
}

/// Writes the completions of a program to the places below `share` where each shell looks for them.
fn completions(program: &str, word: &str, share: &Path) -> Result<()> {
    let places = [
        ("bash", format!("bash-completion/completions/{program}")),
        ("zsh", format!("zsh/site-functions/_{program}")),
        ("fish", format!("fish/vendor_completions.d/{program}.fish")),
    ];
    for (shell, place) in places {
        let path = format!("target/release/{program}");
        let script = output(&mut command(&[&path, word, shell]))?;
        write(&share.join(place), &script)?;
    }
    Ok(())
}

/// Makes the libraries in `folder` found by the names that C programs link with, and by the sonames
/// that programs built against them ask for.
fn link_libraries(folder: &Path) -> Result<()> {
    for CLibrary { built, library, .. } in &C_LIBRARIES {
        for ending in ["so", "a"] {
            let name = format!("{library}.{ending}");
            if folder.join(format!("{built}.{ending}")).exists() && built != library {
                link(folder, &format!("{built}.{ending}"), &name)?;
            }
        }
        let shared = format!("{library}.so");
        if folder.join(&shared).exists() {
            let major = env!("CARGO_PKG_VERSION_MAJOR");
            link(folder, &shared, &format!("{shared}.{major}"))?;
        }
    }
    Ok(())
}

/// Makes `name` in `folder` a link to `target`. What an earlier build left there goes.
fn link(folder: &Path, target: &str, name: &str) -> Result<()> {
    let link = folder.join(name);
    if link.is_symlink() || link.exists() {
        fs::remove_file(&link).with_context(|| format!("{}", link.display()))?;
    }
    std::os::unix::fs::symlink(target, &link).with_context(|| format!("{}", link.display()))
}

fn copy(from: &str, folder: &Path) -> Result<()> {
    let name = Path::new(from).file_name().context("a file to copy has a name")?;
    let to = folder.join(name);
    fs::create_dir_all(folder).with_context(|| format!("{}", folder.display()))?;
    fs::copy(from, &to).with_context(|| format!("{from} to {}", to.display()))?;
    eprintln!("   {}", to.display());
    Ok(())
}

fn copy_tree(from: &Path, to: &Path) -> Result<()> {
    for entry in fs::read_dir(from).with_context(|| format!("{}", from.display()))? {
        let entry = entry?;
        let path = entry.path();
        if entry.file_type()?.is_dir() {
            copy_tree(&path, &to.join(entry.file_name()))?;
        } else {
            copy(&path.to_string_lossy(), to)?;
        }
    }
    Ok(())
}

fn write(path: &Path, text: &str) -> Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).with_context(|| format!("{}", folder.display()))?;
    }
    fs::write(path, text).with_context(|| format!("{}", path.display()))?;
    eprintln!("   {}", path.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_found_by_the_names_that_c_programs_use() {
        let folder = std::env::temp_dir().join(format!("sojourn-xtask-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        for built in ["libsojourn_ipc_c.so", "libsojourn_ipc_c.a", "libsojourn_udp.so"] {
            fs::write(folder.join(built), built).unwrap();
        }
        // What an older build left under the name of the link.
        fs::write(folder.join("libsojourn_ipc.so"), "old").unwrap();
        for _ in 0..2 {
            link_libraries(&folder).unwrap();
        }
        let read = |name: &str| fs::read_to_string(folder.join(name)).unwrap();
        let major = env!("CARGO_PKG_VERSION_MAJOR");
        assert_eq!(read("libsojourn_ipc.so"), "libsojourn_ipc_c.so");
        assert_eq!(read("libsojourn_ipc.a"), "libsojourn_ipc_c.a");
        assert_eq!(read(&format!("libsojourn_ipc.so.{major}")), "libsojourn_ipc_c.so");
        assert_eq!(read(&format!("libsojourn_udp.so.{major}")), "libsojourn_udp.so");
        fs::remove_dir_all(&folder).unwrap();
    }
}
