//! The helper for build scripts.
#![allow(clippy::unwrap_used, reason = "a failed helper fails its test")]

use std::fs;
use std::path::PathBuf;

use sojourn_idl::{Build, BuildError};

fn folder(name: &str) -> PathBuf {
    let dir = std::env::temp_dir().join(format!("sojourn-idl-{name}-{}", std::process::id()));
    // Left over from a run that was killed.
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir_all(&dir).unwrap();
    dir
}

#[test]
fn compiles_into_the_folder() {
    let dir = folder("build");
    fs::write(dir.join("i.idl"), "interface i { long f([in] long a); }").unwrap();
    fs::write(dir.join("i.acf"), "[timeout(7)] interface i { }").unwrap();
    let build = Build::new().idl(dir.join("i.idl")).acf(dir.join("i.acf")).out_dir(dir.join("out"));
    let written = build.clone().rust().compile().unwrap();
    assert!(written.contains(&dir.join("out/i.rs")), "{written:?}");
    let modified = fs::metadata(dir.join("out/i.rs")).unwrap().modified().unwrap();
    build.clone().rust().compile().unwrap();
    let again = fs::metadata(dir.join("out/i.rs")).unwrap().modified().unwrap();
    assert_eq!(modified, again, "what has not changed is not written");
    assert!(matches!(build.compile(), Err(BuildError::Nothing)));
    fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn mistakes_are_readable() {
    let dir = folder("build-bad");
    fs::write(dir.join("i.idl"), "interface i { long f([in] lnog a); }").unwrap();
    let build = Build::new().idl(dir.join("i.idl")).rust().out_dir(dir.join("out"));
    let text = build.compile().unwrap_err().to_string();
    assert!(text.contains("did you mean `long`?") && text.contains("i.idl:1:27"), "{text}");
    assert!(!dir.join("out").exists());
    fs::remove_dir_all(&dir).unwrap();
}
