//! Tests of the inspection, with programs made by the C compiler.

use super::*;
use rustix::process::{Gid, Uid};
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

/// A directory that goes with the test.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("sojourn-cli-{name}-{}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn compiled(&self, name: &str, flags: &[&str]) -> PathBuf {
        std::fs::write(self.path("main.c"), "int main(void) { return 0; }\n").unwrap();
        let done = Command::new("cc")
            .args(flags)
            .arg("-o")
            .args([self.path(name), self.path("main.c")])
            .status();
        assert!(done.unwrap().success());
        self.path(name)
    }

    fn script(&self, name: &str, text: &str) -> PathBuf {
        std::fs::write(self.path(name), text).unwrap();
        chmod(&self.path(name), 0o755);
        self.path(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn chmod(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

fn user() -> Runner {
    Runner { uid: Uid::from_raw(4711), gid: Gid::from_raw(4711) }
}

#[test]
fn dynamic_programs_are_preloaded_and_others_loaded() {
    let scratch = Scratch::new("elf");
    assert_eq!(inspect(&scratch.compiled("dynamic", &["-pie"]), user()), Ok(LoadMethod::Preload));
    assert_eq!(inspect(&scratch.compiled("fixed", &["-no-pie"]), user()), Ok(LoadMethod::Preload));
    let fixed = scratch.compiled("static", &["-static", "-no-pie"]);
    assert_eq!(inspect(&fixed, user()), Ok(LoadMethod::Load(None)));
    let pie = scratch.compiled("static-pie", &["-static-pie"]);
    assert_eq!(inspect(&pie, user()), Ok(LoadMethod::Load(None)));
    let other = scratch.compiled("musl", &["-Wl,--dynamic-linker=/lib/ld-musl-x86_64.so.1"]);
    assert_eq!(inspect(&other, user()), Ok(LoadMethod::Load(None)));
    let other = scratch.compiled("other", &["-Wl,--dynamic-linker=/lib/ld-uClibc.so.0"]);
    let loader = PathBuf::from("/lib/ld-uClibc.so.0");
    assert_eq!(inspect(&other, user()), Err(Obstacle::Loader(loader)));
}

#[test]
fn thirty_two_bit_programs_are_of_another_machine() {
    let scratch = Scratch::new("elf32");
    let mut bytes = b"\x7fELF\x01\x01\x01".to_vec();
    bytes.resize(52, 0);
    bytes[16] = 2;
    bytes[18] = 3;
    std::fs::write(scratch.path("old"), bytes).unwrap();
    let found = inspect(&scratch.path("old"), user());
    assert_eq!(found, Err(Obstacle::Machine("32 bits".into())));
}

fn loaded_by(file: &Path, argument: Option<&str>) -> LoadMethod {
    let argument = argument.map(OsString::from);
    LoadMethod::Load(Some(Interpreter { file: file.to_owned(), argument }))
}

#[test]
fn scripts_are_what_their_interpreters_are() {
    let scratch = Scratch::new("script");
    assert_eq!(
        inspect(&scratch.script("good", "#! /bin/sh -e\n"), user()),
        Ok(LoadMethod::Preload)
    );
    assert_eq!(
        inspect(&scratch.script("env", "#!/usr/bin/env sh\nexit\n"), user()),
        Ok(LoadMethod::Preload)
    );
    let fixed = scratch.compiled("static", &["-static"]);
    let of_fixed = scratch.script("of-static", &format!("#!{}", fixed.display()));
    assert_eq!(inspect(&of_fixed, user()), Ok(loaded_by(&fixed, None)));
    let with = scratch.script("with", &format!("#! {} -a b \n", fixed.display()));
    let expected = loaded_by(&fixed, Some("-a b"));
    assert_eq!(inspect(&with, user()), Ok(expected));
    let nested = scratch.script("nested", &format!("#!{}\n", scratch.path("good").display()));
    assert_eq!(inspect(&nested, user()), Ok(LoadMethod::Preload));
    let endless = scratch.script("endless", &format!("#!{}\n", scratch.path("endless").display()));
    let mut found = inspect(&endless, user());
    while let Err(Obstacle::Interpreter(_, inner)) = found {
        found = Err(*inner);
    }
    assert_eq!(found, Err(Obstacle::Nested));
    let lost = inspect(&scratch.script("lost", "#!/no/such\n"), user()).unwrap_err();
    assert!(lost.to_string().contains("/no/such"), "{lost}");
    assert_eq!(inspect(&scratch.script("text", "echo\n"), user()), Err(Obstacle::Unknown));
    assert_eq!(inspect(&scratch.script("empty", ""), user()), Err(Obstacle::Unknown));
}

#[test]
fn programs_that_gain_privileges_are_told_apart() {
    let scratch = Scratch::new("set-id");
    let program = scratch.compiled("program", &[]);
    let owner = std::fs::metadata(&program).unwrap();
    let owner = Runner { uid: Uid::from_raw(owner.uid()), gid: Gid::from_raw(owner.gid()) };
    let stranger = Runner {
        uid: Uid::from_raw(owner.uid.as_raw() + 1),
        gid: Gid::from_raw(owner.gid.as_raw() + 1),
    };
    chmod(&program, 0o4755);
    assert_eq!(inspect(&program, stranger), Err(Obstacle::SetUser));
    assert_eq!(inspect(&program, owner), Ok(LoadMethod::Preload));
    chmod(&program, 0o2755);
    assert_eq!(inspect(&program, stranger), Err(Obstacle::SetGroup));
    assert_eq!(inspect(&program, owner), Ok(LoadMethod::Preload));
    chmod(&program, 0o2745);
    assert_eq!(inspect(&program, stranger), Ok(LoadMethod::Preload));
    chmod(&program, 0o755);
    let one_capability: &[u8] = b"\x01\0\0\x02\0\x04\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
    let flags = rustix::fs::XattrFlags::empty();
    match rustix::fs::setxattr(&program, "security.capability", one_capability, flags) {
        Ok(()) => {
            assert_eq!(inspect(&program, stranger), Err(Obstacle::Capabilities));
            assert_eq!(
                inspect(&program, Runner { uid: Uid::ROOT, gid: Gid::ROOT }),
                Ok(LoadMethod::Preload)
            );
        }
        // Only root may set capabilities of files.
        Err(error) => assert_ne!(owner.uid, Uid::ROOT, "{error}"),
    }
}
