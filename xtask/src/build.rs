//! Building what ships, installing it, and starting the benchmarks and fuzz targets.

use crate::packages::{BENCH, BENCH_LOCAL, BENCH_NET, BUILD, FILTER, ensure};
use crate::steps::{cargo, command, output, run};
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};

const UNIT: &str = "crates/server/systemd/sojournd.service";
/// Libraries for C programs: their crate below `crates`, and what its pkg-config file is called.
const C_LIBRARIES: [(&str, &str); 2] = [("ipc", "sojourn-ipc"), ("udp", "sojourn-udp")];

/// Every shipped program and library, in `target/release`.
pub(crate) fn build() -> Result<()> {
    ensure(BUILD)?;
    ensure(FILTER)?;
    everything()?;
    eprintln!(
        "   target/release: sojourn, sojournd, libsojourn_preload.so, sojourn-abi; libsojourn_ipc.so, libsojourn_ipc.a, sojourn-idl; sojourn-udpd, libsojourn_udp.so"
    );
    Ok(())
}

/// What ships, and the programs of whole-system tests, in release mode. All in one call: with other
/// packages beside them some would be built with other features, again and again.
pub(crate) fn everything() -> Result<()> {
    let packages = ["ipc", "idl", "preload", "loader", "cli", "server", "udp", "lab"];
    let names = packages.map(|package| format!("sojourn-{package}"));
    let mut words = vec!["build", "--release"];
    words.extend(names.iter().flat_map(|name| ["-p", name]));
    run("build", &mut cargo(&words))?;
    link_sonames(Path::new("target/release"))
}

/// The IPC's libraries and the interface compiler, in release mode.
pub(crate) fn libraries() -> Result<()> {
    let words = ["build", "--release", "-p", "sojourn-ipc", "-p", "sojourn-idl"];
    run("build", &mut cargo(&words))?;
    link_sonames(Path::new("target/release"))
}

/// Starts a benchmark with every rival.
pub(crate) fn bench(words: &[&str]) -> Result<()> {
    ensure(BENCH)?;
    if words.first() == Some(&"local") {
        ensure(BENCH_LOCAL)?;
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

/// The rival in Go, if there is Go; without it the benchmark says that it was not built. Go takes
/// what `go.sum` names from its module proxy, once.
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

/// A minute's worth of the benchmarks, to see that they run; what they print means nothing.
pub(crate) fn bench_smoke() -> Result<()> {
    // `net` takes minutes even so; its own test runs its parts (crates/bench/tests/smoke.rs).
    for which in ["copies", "ipc", "idl", "udp", "local"] {
        let words = ["run", "--release", "-p", "sojourn-bench", "--", which, "--quick"];
        run(
            &format!("benchmark {which}, smoke test"),
            cargo(&words).stdout(std::process::Stdio::null()),
        )?;
    }
    Ok(())
}

/// Compiles and lints the benchmarks with every rival.
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

/// Builds and copies everything a user of the system needs below `prefix`.
pub(crate) fn install(prefix: &str) -> Result<()> {
    build()?;
    let root = match std::env::var_os("DESTDIR") {
        Some(staging) => PathBuf::from(staging).join(prefix.trim_start_matches('/')),
        None => PathBuf::from(prefix),
    };
    let below = |folder: &str| root.join(folder);
    for program in ["sojourn", "sojournd", "sojourn-idl", "sojourn-udpd"] {
        copy(&format!("target/release/{program}"), &below("bin"))?;
    }
    copy("target/release/libsojourn_preload.so", &below("lib/sojourn"))?;
    copy("target/release/sojourn-abi", &below("lib/sojourn"))?;
    copy("target/release/libsojourn_ipc.a", &below("lib"))?;
    for (folder, name) in C_LIBRARIES {
        copy(&format!("target/release/lib{}.so", name.replace('-', "_")), &below("lib"))?;
        copy_tree(&Path::new("crates").join(folder).join("include"), &below("include"))?;
        let template = format!("crates/{folder}/{name}.pc.in");
        let text = fs::read_to_string(&template).context(template)?;
        let text = text.replace("@prefix@", prefix).replace("@version@", env!("CARGO_PKG_VERSION"));
        write(&below("lib/pkgconfig").join(format!("{name}.pc")), &text)?;
    }
    link_sonames(&below("lib"))?;
    let unit = fs::read_to_string(UNIT).context(UNIT)?;
    let unit = unit.replace("/usr/bin/sojournd", &format!("{prefix}/bin/sojournd"));
    write(&below("lib/systemd/system").join("sojournd.service"), &unit)?;
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

/// Where each shell looks for completions below `share`.
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

/// Makes the shared libraries found by the names that programs built against them ask for.
fn link_sonames(folder: &Path) -> Result<()> {
    for (_, name) in C_LIBRARIES {
        let library = format!("lib{}.so", name.replace('-', "_"));
        if !folder.join(&library).exists() {
            continue;
        }
        let link = folder.join(format!("{library}.{}", env!("CARGO_PKG_VERSION_MAJOR")));
        if link.is_symlink() {
            fs::remove_file(&link).with_context(|| format!("{}", link.display()))?;
        }
        std::os::unix::fs::symlink(&library, &link)
            .with_context(|| format!("{}", link.display()))?;
    }
    Ok(())
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
