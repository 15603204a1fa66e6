//! Tests of the loader's cache of sites: its files are used if they are this user's own, whole, and
//! of this very program, and never otherwise.
//!
//! Whether a file was used shows by what it says: the tests change it to say that the program sets
//! the GS register, and such a program runs plainly. Not here: the bytes of a file, one by one
//! (`crates/abi/src/cache/tests.rs`).

#![cfg(target_arch = "x86_64")]
#![allow(clippy::unwrap_used, reason = "a test ends by panicking")]

use sojourn_abi::cache::checksum;
use sojourn_lab::{Mode, Running, Sandbox};
use sojourn_system::LIMIT;
use sojourn_system::compile::compile;
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// The offset in a cache file of the address that sets the GS register.
const SETS_GS: usize = 8 + 8 * 14;

/// A static program, and the folder of the cache that its starts use.
struct World {
    sandbox: Sandbox,
    program: PathBuf,
    caches: PathBuf,
}

impl World {
    fn new() -> Self {
        let mut sandbox = Sandbox::new().unwrap();
        sandbox.set("LOAD", "on");
        sandbox.set("ABI_QUIET", "on");
        let program = sandbox.folder().join("program");
        compile(&program, &["abi/where.c"], &["-static"]).unwrap();
        let caches = sandbox.folder().join("caches");
        Self { sandbox, program, caches }
    }

    /// Runs the program; returns `loaded` or `plain`.
    fn says(&self) -> String {
        self.says_with(&self.caches)
    }

    fn says_with(&self, caches: &Path) -> String {
        let mut command = self.sandbox.command(Mode::Sojourn, &self.program);
        command.env("XDG_CACHE_HOME", caches).env("HOME", self.sandbox.folder());
        let finished = Running::start(command).unwrap().finish(LIMIT).unwrap();
        finished.success("the program").unwrap().trim().to_owned()
    }

    fn files(&self) -> Vec<PathBuf> {
        let Ok(list) = fs::read_dir(self.caches.join("sojourn")) else { return Vec::new() };
        list.map(|one| one.unwrap().path()).collect()
    }

    /// Runs the program until its sites are kept, which is once its file has not been changed for
    /// some time. Returns the cache file.
    fn kept(&self) -> PathBuf {
        let begun = Instant::now();
        while self.files().is_empty() {
            assert_eq!(self.says(), "loaded");
            assert!(begun.elapsed() < LIMIT, "nothing is kept");
        }
        let files = self.files();
        assert_eq!(files.len(), 1, "{files:?}");
        files[0].clone()
    }
}

/// Returns the contents of a cache file, changed to say that the program sets the GS register.
fn telling(contents: &[u8]) -> Vec<u8> {
    let mut bytes = contents[..contents.len() - 8].to_vec();
    bytes[SETS_GS..SETS_GS + 8].fill(0);
    bytes.extend(checksum(&bytes).to_le_bytes());
    bytes
}

#[test]
fn sites_are_kept_privately_and_used_again() {
    let world = World::new();
    let file = world.kept();
    let folder = fs::metadata(file.parent().unwrap()).unwrap();
    assert_eq!(folder.mode() & 0o777, 0o700);
    let before = fs::metadata(&file).unwrap();
    assert_eq!(before.mode() & 0o7777, 0o600);
    assert_eq!(world.says(), "loaded");
    let after = fs::metadata(&file).unwrap();
    assert_eq!((before.ino(), before.mtime()), (after.ino(), after.mtime()), "written twice");
    fs::write(&file, telling(&fs::read(&file).unwrap())).unwrap();
    assert_eq!(world.says(), "plain", "the file was not used");
}

#[test]
fn torn_files_are_replaced() {
    let world = World::new();
    let file = world.kept();
    let whole = fs::read(&file).unwrap();
    let tells = telling(&whole);
    for torn in [&tells[..tells.len() / 2], &tells[..tells.len() - 1], &[], b"SJSITES"] {
        fs::write(&file, torn).unwrap();
        assert_eq!(world.says(), "loaded");
        assert_eq!(fs::read(&file).unwrap(), whole);
    }
}

#[test]
fn a_changed_program_is_searched_again() {
    let world = World::new();
    let file = world.kept();
    let tells = telling(&fs::read(&file).unwrap());
    // The same contents in another file, which takes the place of the first.
    let copy = world.program.with_extension("copy");
    fs::copy(&world.program, &copy).unwrap();
    fs::rename(&copy, &world.program).unwrap();
    fs::write(&file, &tells).unwrap();
    assert_eq!(world.says(), "loaded");
    // The same file with the times that it had.
    let world = World::new();
    let file = world.kept();
    fs::write(&file, telling(&fs::read(&file).unwrap())).unwrap();
    assert_eq!(world.says(), "plain");
    let times = fs::metadata(&world.program).unwrap().modified().unwrap();
    let contents = fs::read(&world.program).unwrap();
    fs::write(&world.program, contents).unwrap();
    fs::File::options().write(true).open(&world.program).unwrap().set_modified(times).unwrap();
    assert_eq!(world.says(), "loaded");
}

#[test]
fn files_that_others_could_have_written_are_not_used() {
    let world = World::new();
    let file = world.kept();
    let folder = file.parent().unwrap();
    let tells = telling(&fs::read(&file).unwrap());
    let hostile = |prepare: &dyn Fn()| {
        let _ = fs::remove_file(&file);
        fs::write(&file, &tells).unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
        assert_eq!(world.says(), "plain");
        prepare();
        assert_eq!(world.says(), "loaded");
    };
    hostile(&|| fs::set_permissions(&file, Permissions::from_mode(0o620)).unwrap());
    hostile(&|| fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap());
    let elsewhere = world.sandbox.folder().join("elsewhere");
    hostile(&|| {
        fs::rename(&file, &elsewhere).unwrap();
        symlink(&elsewhere, &file).unwrap();
    });
    hostile(&|| fs::set_permissions(folder, Permissions::from_mode(0o777)).unwrap());
    fs::set_permissions(folder, Permissions::from_mode(0o700)).unwrap();
    if rustix::process::geteuid().is_root() {
        const NOBODY: u32 = 65534;
        hostile(&|| std::os::unix::fs::chown(&file, Some(NOBODY), None).unwrap());
        hostile(&|| std::os::unix::fs::chown(folder, Some(NOBODY), None).unwrap());
    }
}

/// As where root keeps another user's environment: that user's folder would be root's, and a link
/// would have root make folders anywhere.
#[test]
fn nothing_is_made_in_another_users_folder() {
    let world = World::new();
    let file = world.kept();
    if !rustix::process::geteuid().is_root() {
        return eprintln!("skipped: not root");
    }
    fs::remove_dir_all(file.parent().unwrap()).unwrap();
    std::os::unix::fs::chown(&world.caches, Some(65534), None).unwrap();
    assert_eq!(world.says(), "loaded");
    assert_eq!(world.files(), Vec::<PathBuf>::new());
    let link = world.sandbox.folder().join("link");
    let target = world.sandbox.folder().join("target");
    fs::create_dir(&target).unwrap();
    symlink(&target, &link).unwrap();
    std::os::unix::fs::lchown(&link, Some(65534), None).unwrap();
    assert_eq!(world.says_with(&link), "loaded");
    assert!(!target.join("sojourn").exists());
}

#[test]
fn a_program_is_loaded_without_a_cache() {
    let world = World::new();
    for caches in ["/dev/null", "/dev/null/none", "relative", ""] {
        assert_eq!(world.says_with(Path::new(caches)), "loaded", "{caches:?}");
    }
}
