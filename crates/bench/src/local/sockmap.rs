//! The rival that the kernel has built in: an eBPF program that passes the bytes sent on one local
//! TCP socket to the other one, past the TCP stack (`bpf/sockmap.bpf.c`).
//!
//! The program is compiled with clang when the benchmark starts and attached to a control group of
//! the benchmark's own. It is detached when its descriptors are closed, however this process ends.

use std::path::Path;

use anyhow::Result;

/// The loaded programs, attached as long as this lives.
pub(crate) struct Sockmap {
    #[cfg(feature = "rivals")]
    _programs: aya::Ebpf,
}

#[cfg(not(feature = "rivals"))]
impl Sockmap {
    /// Fails: this build has no loader for eBPF programs.
    pub(crate) fn new(_folder: &Path, _group: &Path) -> Result<Self> {
        anyhow::bail!("built without the feature `rivals`")
    }
}

#[cfg(feature = "rivals")]
impl Sockmap {
    /// Compiles, loads and attaches the programs. From then on they serve all TCP connections that
    /// processes of `group` make.
    pub(crate) fn new(folder: &Path, group: &Path) -> Result<Self> {
        use anyhow::Context as _;
        use aya::maps::SockHash;
        use aya::programs::{CgroupAttachMode, SkMsg, SockOps};

        let object = compile(folder)?;
        let mut programs = aya::Ebpf::load(&object).context("loading the eBPF object")?;
        let map = programs.map("sockets").context("no map `sockets`")?;
        let map = SockHash::<_, [u32; 10]>::try_from(map)?.fd().try_clone()?;
        let redirect = programs.program_mut("redirect").context("no program `redirect`")?;
        let redirect: &mut SkMsg = redirect.try_into()?;
        redirect.load()?;
        redirect.attach(&map)?;
        let fill = programs.program_mut("fill").context("no program `fill`")?;
        let fill: &mut SockOps = fill.try_into()?;
        fill.load()?;
        fill.attach(std::fs::File::open(group)?, CgroupAttachMode::Single)?;
        Ok(Self { _programs: programs })
    }
}

#[cfg(feature = "rivals")]
fn compile(folder: &Path) -> Result<Vec<u8>> {
    use anyhow::{Context as _, bail};
    use std::process::Command;

    const SOURCE: &str = include_str!("../../../../bpf/sockmap.bpf.c");
    let (source, object) = (folder.join("sockmap.bpf.c"), folder.join("sockmap.bpf.o"));
    std::fs::write(&source, SOURCE)?;
    let mut clang = Command::new("clang");
    clang.args(["-target", "bpf", "-O2", "-g", "-Wall", "-Werror"]);
    // The kernel's headers include some headers of the architecture, which clang does not look for
    // with this target.
    clang.arg(format!("-I/usr/include/{}-linux-gnu", std::env::consts::ARCH));
    clang.arg("-c").arg(&source).arg("-o").arg(&object);
    let output = clang.output().context("clang")?;
    if !output.status.success() {
        bail!("clang: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(std::fs::read(&object)?)
}
