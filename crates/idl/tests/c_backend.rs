//! Generated C, compiled by plain compilers and run: random values over every type, mutated
//! messages, and what stubs promise beyond values. The transport is `tests/c/fake.c`, so that
//! nothing but generated code is on trial.
//!
//! Every program has an alarm of its own; sanitizers are used where the compiler has them.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use sojourn_idl::backend::{Options, Output, c};
use sojourn_idl::source::FileLoader;

const CRATE: &str = env!("CARGO_MANIFEST_DIR");
const WARNINGS: [&str; 4] = ["-Wall", "-Wextra", "-Werror", "-g"];

/// An interface file of the examples or of these tests.
fn idl(name: &str) -> PathBuf {
    let own = Path::new(CRATE).join(format!("tests/c/{name}.idl"));
    let example = Path::new(CRATE).join(format!("../../idl/examples/{name}.idl"));
    if own.exists() { own } else { example }
}

fn generated(name: &str) -> Vec<Output> {
    let main = idl(name);
    let acf = main.with_extension("acf");
    let acf = acf.exists().then(|| acf.display().to_string());
    let options = sojourn_idl::Options::default();
    let main = main.display().to_string();
    match sojourn_idl::compile(&main, acf.as_deref(), &FileLoader::default(), &options) {
        Ok(compiled) => {
            c::generate(&compiled.module, &Options { tests: true, ..Options::default() })
        }
        Err(failure) => panic!("{failure}"),
    }
}

/// A fresh folder with the generated files of one interface file.
fn folder(name: &str, what: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("c-{name}-{what}"));
    let _absent_is_fine = fs::remove_dir_all(&dir);
    fs::create_dir_all(&dir).unwrap();
    for output in generated(name) {
        fs::write(dir.join(output.path), output.text).unwrap();
    }
    dir
}

fn has(compiler: &str) -> bool {
    Command::new(compiler).arg("--version").output().is_ok_and(|out| out.status.success())
}

/// Whether programs can be linked with the sanitizers here.
fn sanitizers(dir: &Path) -> Vec<&'static str> {
    let flags = vec!["-fsanitize=address,undefined", "-fno-sanitize-recover=all"];
    fs::write(dir.join("probe.c"), "int main(void) { return 0; }\n").unwrap();
    let mut command = Command::new("cc");
    command.current_dir(dir).args(&flags).args(["probe.c", "-o", "probe"]);
    if command.output().is_ok_and(|out| out.status.success()) { flags } else { Vec::new() }
}

fn run(command: &mut Command) -> (bool, String) {
    let out = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let text =
        format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    (out.status.success(), text)
}

fn must(command: &mut Command) -> String {
    let (ok, text) = run(command);
    assert!(ok, "{command:?}\n{text}");
    text
}

fn cc(dir: &Path) -> Command {
    let mut command = Command::new("cc");
    command.current_dir(dir).arg("-std=c11").args(WARNINGS).arg("-I.");
    command.arg("-I").arg(Path::new(CRATE).join("tests/c"));
    command.arg("-I").arg(Path::new(CRATE).join("../ipc-c/include"));
    command
}

/// Builds the random-value programs of `name` around the fake transport and runs them.
fn random_values(name: &str, user: &[&str], rounds: &str) {
    let dir = folder(name, "random");
    let flags = sanitizers(&dir);
    let source = Path::new(CRATE).join("tests/c");
    let user: Vec<PathBuf> = user.iter().map(|file| source.join(file)).collect();
    let object = |main: &str, files: &[&str]| {
        let mut command = cc(&dir);
        command.args(&flags).arg("-c").arg(format!("-Dmain={main}"));
        must(command.args(files.iter().map(|suffix| format!("{name}{suffix}"))));
    };
    object("client_main", &["_client.c", "_test_client.c"]);
    object("server_main", &["_server.c", "_test_server.c"]);
    let objects = |suffixes: &[&str]| -> Vec<String> {
        suffixes.iter().map(|suffix| format!("{name}{suffix}.o")).collect()
    };
    let mut command = cc(&dir);
    command.args(&flags).arg(source.join("fake.c")).args(&user);
    command.args(objects(&["_client", "_test_client", "_server", "_test_server"]));
    must(command.args(["-o", "loop", "-lpthread"]));
    let mut command = cc(&dir);
    command.args(&flags).arg("-DFAKE_WITHOUT_MAIN").arg(source.join("fake.c")).args(&user);
    command.arg(format!("{name}_test_mutate.c")).args(objects(&["_client"]));
    must(command.args(["-o", "mutate", "-lpthread"]));

    let program = |what: &str, args: &[&str]| {
        let mut command = Command::new(dir.join(what));
        // Conversions of the tests' own hand out memory that only a program could give back.
        command.args(args).env("ASAN_OPTIONS", "detect_leaks=0");
        command
    };
    // Everything as string items, some of it, nothing.
    for threshold in ["0", "24", "1000000"] {
        let text = must(&mut program("loop", &["7", rounds, threshold]));
        assert!(text.contains("as expected"), "{text}");
    }
    // The test can fail: the server expects other values.
    let (ok, text) = run(&mut program("loop", &["7", "5", "24", "8"]));
    assert!(!ok && text.contains("differs"), "{text}");
    let text = must(&mut program("mutate", &["7", "200"]));
    assert!(text.contains("0 wrong"), "{text}");
}

#[test]
fn every_example_type_with_random_values() {
    random_values("everything", &[], "40");
}

#[test]
fn small_examples_with_random_values() {
    for name in ["paper", "calc", "files"] {
        random_values(name, &[], "60");
    }
}

#[test]
fn a_file_of_com_with_random_values() {
    random_values("com", &[], "60");
}

#[test]
fn graphs_windows_and_buffers_with_random_values() {
    random_values("types", &[], "60");
}

#[test]
fn what_an_acf_asks_for_with_random_values() {
    random_values("local", &["local_user.c"], "60");
}

#[test]
fn contexts_faults_memory_and_direct_calls() {
    let dir = folder("local", "behave");
    let source = Path::new(CRATE).join("tests/c");
    let mut command = cc(&dir);
    command.args(sanitizers(&dir)).arg("-DFAKE_WITHOUT_MAIN");
    command.args(["behave.c", "local_user.c", "fake.c"].map(|file| source.join(file)));
    must(command.args(["local_client.c", "local_server.c", "-o", "behave", "-lpthread"]));
    must(&mut Command::new(dir.join("behave")));
}

/// Not only the compiler and the level of warnings that users have most.
#[test]
fn other_compilers_languages_and_warnings() {
    let compilers: [&[&str]; 4] = [
        &["gcc", "-std=c11"],
        &["clang", "-std=c11"],
        &["g++", "-x", "c++", "-std=c++17"],
        &["clang++", "-x", "c++", "-std=c++17"],
    ];
    for name in ["everything", "local", "com"] {
        let dir = folder(name, "strict");
        for compiler in compilers.iter().filter(|compiler| has(compiler[0])) {
            let mut command = Command::new(compiler[0]);
            command.current_dir(&dir).args(&compiler[1..]).args(WARNINGS);
            command.args(["-Wpedantic", "-Wconversion", "-O2", "-fsyntax-only", "-I."]);
            command.arg("-I").arg(Path::new(CRATE).join("tests/c"));
            command.arg("-I").arg(Path::new(CRATE).join("../ipc-c/include"));
            must(command.args(["_client.c", "_server.c"].map(|suffix| format!("{name}{suffix}"))));
        }
    }
}

#[test]
fn output_is_reproducible_and_says_what_made_it() {
    let (one, two) = (generated("everything"), generated("everything"));
    assert_eq!(one, two);
    for output in &one {
        let head: String = output.text.lines().take(2).collect();
        assert!(head.contains("sojourn-idl") && head.contains("Hash"), "{}: {head}", output.path);
        assert!(!output.text.contains(CRATE), "{} names a folder of this machine", output.path);
    }
}
