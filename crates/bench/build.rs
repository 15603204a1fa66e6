//! Generates and compiles the stubs of the benchmark's rows: those of sojourn-idl, hand-written C,
//! and with the feature `rivals` those of other interface compilers. A row whose compiler is not
//! installed is left out with a warning.

use std::env;
use std::error::Error;
use std::path::{Path, PathBuf};

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-check-cfg=cfg(have_rpcgen, have_capnp)");
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("no OUT_DIR")?);
    own_stubs(&out);
    guests(&out)?;
    #[cfg(feature = "rivals")]
    {
        rpcgen(&out)?;
        capnp(&out)?;
        planus(&out)?;
    }
    Ok(())
}

/// Returns the settings with which the C of every row is compiled, so that rows are comparable.
fn c_build() -> cc::Build {
    let mut build = cc::Build::new();
    build.opt_level(2).std("c11").warnings(true).extra_warnings(true).include("src/idl/c");
    build
}

/// Generates this project's stubs, in Rust and C, for every interface in `idl/`, and compiles the C
/// sources with them.
fn own_stubs(out: &Path) {
    let own = out.join("own");
    sojourn_idl::Build::new()
        .idl("idl/cases.idl")
        .idl("idl/blob.idl")
        .acf("idl/blob.acf")
        .rust()
        .c()
        .out_dir(&own)
        .compile_or_exit();
    let include = Path::new("../ipc-c/include");
    println!("cargo::rerun-if-changed={}", include.display());
    println!("cargo::rerun-if-changed=src/idl/c");
    let mut build = c_build();
    build.include(include).include(&own);
    build.files(["common.c", "hand.c", "ours.c"].map(|name| Path::new("src/idl/c").join(name)));
    build.compile("bench_c");
}

/// Compiles the programs that `papers` and `doors` measure, linked dynamically and statically. The
/// benchmark contains all. Without a static C library the static ones are empty files.
fn guests(out: &Path) -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=guest");
    let compiler = c_build().try_get_compiler()?;
    let programs: [(&str, &str, &[&str]); 6] = [
        ("guest", "guest.c", &["-O2"]),
        ("guest-static", "guest.c", &["-static"]),
        ("datagrams", "datagrams.c", &["-O2"]),
        ("doors", "doors.c", &["-O2"]),
        ("doors-static", "doors.c", &["-static"]),
        ("doors-trapped", "doors.c", &["-static", "-DTRAPPED"]),
    ];
    for (name, source, more) in programs {
        let path = out.join(name);
        let mut command = compiler.to_command();
        command.arg(Path::new("guest").join(source)).args(more).args(["-s", "-o"]).arg(&path);
        if !command.status().is_ok_and(|status| status.success()) {
            println!("cargo::warning={name} was not built: install libc6-dev");
            std::fs::write(&path, "")?;
        }
    }
    Ok(())
}

#[cfg(feature = "rivals")]
fn rpcgen(out: &Path) -> Result<(), Box<dyn Error>> {
    use std::process::Command;
    println!("cargo::rerun-if-changed=schemas/bench.x");
    let headers = Path::new("/usr/include/tirpc");
    let run = |flag: &str, name: &str| {
        let _ = std::fs::remove_file(out.join(name));
        // The input is given relative to the crate so that the generated comment names no folder.
        let mut command = Command::new("rpcgen");
        command.args([flag, "-o"]).arg(out.join(name)).arg("schemas/bench.x");
        command.status().is_ok_and(|status| status.success())
    };
    if !headers.exists() || !run("-h", "bench.h") || !run("-c", "bench_xdr.c") {
        println!("cargo::warning=no rpcgen row: install rpcsvc-proto and libtirpc-dev");
        return Ok(());
    }
    // rpcgen's output includes its header by the path of its input.
    std::fs::create_dir_all(out.join("schemas"))?;
    std::fs::copy(out.join("bench.h"), out.join("schemas/bench.h"))?;
    let mut build = c_build();
    build.std("gnu11").include(headers).include(out).include(out.join("schemas"));
    build.flag_if_supported("-Wno-unused-variable").flag_if_supported("-Wno-unused-parameter");
    build.file(out.join("bench_xdr.c")).file("src/idl/c/rpcgen.c").compile("bench_rpcgen");
    println!("cargo::rustc-link-lib=tirpc");
    println!("cargo::rustc-cfg=have_rpcgen");
    Ok(())
}

#[cfg(feature = "rivals")]
fn capnp(out: &Path) -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=schemas/bench.capnp");
    let mut command = capnpc::CompilerCommand::new();
    let module = ["idl", "codecs", "capnp"].map(str::to_owned).to_vec();
    command.file("schemas/bench.capnp").src_prefix("schemas").output_path(out);
    command.default_parent_module(module);
    match command.run() {
        Ok(()) => println!("cargo::rustc-cfg=have_capnp"),
        Err(_) => println!("cargo::warning=no capnp row: install capnproto"),
    }
    Ok(())
}

#[cfg(feature = "rivals")]
fn planus(out: &Path) -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=schemas/bench.fbs");

    let declarations = planus_translation::translate_files(&["schemas/bench.fbs"])
        .ok_or("planus does not take schemas/bench.fbs")?;
    let code = planus_codegen::generate_rust(&declarations, false)?;
    std::fs::write(out.join("bench_planus.rs"), code)?;
    Ok(())
}
