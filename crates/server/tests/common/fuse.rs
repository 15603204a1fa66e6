//! A file system in user space whose one file has a page that never comes, as any user can mount it
//! in name spaces of its own.
//!
//! Unlike a page of userfaultfd(2), it does not come for a killed program either: the kernel waits
//! for the file system's answer, and so `SIGKILL` ends neither who wants the page, nor who waits
//! for a lock that is held meanwhile. The file system is this test program, started anew by
//! `unshare`; what it says to the kernel is in `linux/fuse.h`. Not here: who wants the page
//! (`hold`).
#![allow(unsafe_code, reason = "mount(2), for which there is no safe wrapper here")]

use super::{Folder, is_readable, receive, send, spawn};
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::fs::{CWD, FileType, Mode, OFlags};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use std::ffi::CString;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

const FOLDER: &str = "SOJOURN_TEST_FUSE";
/// The device's number on every host (`Documentation/admin-guide/devices.txt`).
const DEVICE: (u32, u32) = (10, 229);

/// Operations of `linux/fuse.h`.
const LOOKUP: u32 = 1;
const FORGET: u32 = 2;
const GETATTR: u32 = 3;
const OPEN: u32 = 14;
const READ: u32 = 15;
const RELEASE: u32 = 18;
const INIT: u32 = 26;
const INTERRUPT: u32 = 36;
const BATCH_FORGET: u32 = 42;
/// The bytes before a request.
const HEAD: usize = 40;
/// The numbers of the root folder and of its file.
const ROOT: u64 = 1;
const FILE: u64 = 2;

/// The page: its file, and the file system, which ends with this.
pub(crate) struct Page {
    _system: System,
    socket: OwnedFd,
    pub(crate) file: OwnedFd,
}

impl Page {
    /// Has a user mount the file system. `None`: that cannot be here.
    pub(crate) fn new(folder: &Folder, user: u32) -> Option<Self> {
        let device = folder.0.join("fuse");
        if !device.exists() {
            let number = rustix::fs::makedev(DEVICE.0, DEVICE.1);
            let kind = FileType::CharacterDevice;
            // As the device of everybody's is on most hosts.
            let mode = Mode::from_raw_mode(0o666);
            rustix::fs::mknodat(CWD, &device, kind, mode, number).ok()?;
            rustix::fs::chmod(&device, mode).unwrap();
            std::fs::create_dir(folder.0.join("mount")).unwrap();
        }
        let kind = SocketType::SEQPACKET;
        let (socket, theirs) =
            socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).unwrap();
        let mut command = Command::new("unshare");
        command
            .args(["--user", "--map-root-user", "--mount"])
            .arg(std::env::current_exe().unwrap());
        command.args(["--exact", "fake", "--nocapture"]).env(FOLDER, &folder.0);
        command.stdin(Stdio::from(theirs)).stdout(Stdio::null()).uid(user).gid(user);
        let system = System(spawn(&mut command));
        assert!(is_readable(socket.as_fd()), "no word of the file system");
        let (word, file) = receive(&socket);
        let Some(file) = file else {
            eprintln!("skipped: no file system in user space: {word}");
            return None;
        };
        Some(Self { _system: system, socket, file })
    }

    /// Waits until the kernel asks for the page: whoever wants it holds what it held then.
    pub(crate) fn is_wanted(&self) -> bool {
        is_readable(self.socket.as_fd()) && receive(&self.socket).0 == "wanted"
    }
}

/// The process of the file system.
struct System(Child);

impl Drop for System {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Becomes the file system if this process was started as one.
pub(super) fn be_file_system() {
    let Ok(folder) = std::env::var(FOLDER) else { return };
    let socket = std::io::stdin().as_fd().try_clone_to_owned().unwrap();
    match mounted(&folder) {
        Err(error) => send(&socket, &error.to_string(), None),
        Ok(device) => {
            let tells = socket.try_clone().unwrap();
            std::thread::spawn(move || while serve(&device, &tells).is_ok() {});
            let file = std::fs::File::open(format!("{folder}/mount/page"));
            match &file {
                Ok(file) => send(&socket, "page", Some(file.as_fd())),
                Err(error) => send(&socket, &error.to_string(), None),
            }
            // The test's end, or its own.
            while !receive(&socket).0.is_empty() {}
        }
    }
    std::process::exit(0)
}

/// Mounts the file system; returns the kernel's device for it.
fn mounted(folder: &str) -> std::io::Result<OwnedFd> {
    let device = rustix::fs::open(format!("{folder}/fuse"), OFlags::RDWR, Mode::empty())?;
    let options =
        format!("fd={},rootmode=40000,user_id=0,group_id=0,max_read=4096", device.as_raw_fd());
    let [kind, place, options] =
        ["fuse".into(), format!("{folder}/mount"), options].map(|text| CString::new(text).unwrap());
    let flags = libc::MS_NOSUID | libc::MS_NODEV;
    // SAFETY: four strings that end with zeroes, and live.
    let done = unsafe {
        let options = options.as_ptr().cast();
        libc::mount(kind.as_ptr(), place.as_ptr(), kind.as_ptr(), flags, options)
    };
    if done == 0 { Ok(device) } else { Err(std::io::Error::last_os_error()) }
}

/// Answers one request of the kernel's; tells of one for the page, and never answers it.
fn serve(device: &OwnedFd, tells: &OwnedFd) -> rustix::io::Result<()> {
    let mut request = vec![0; 1 << 17];
    let len = rustix::io::read(device, &mut request)?;
    let number = |at: usize| u64::from_ne_bytes(request[at..at + 8].try_into().unwrap());
    let operation = u32::from_ne_bytes(request[4..8].try_into().unwrap());
    assert!(len >= HEAD);
    let (unique, node) = (number(8), number(16));
    let answer = match operation {
        FORGET | BATCH_FORGET | INTERRUPT => return Ok(()),
        READ => {
            send(tells, "wanted", None);
            return Ok(());
        }
        // Version 7.31, and nothing beyond what the kernel must have.
        INIT => Ok([words(&[7, 31, 4096, 0, 0, 4096, 1, 1]), vec![0; 32]].concat()),
        LOOKUP => Ok([words(&[FILE as u32, 0, 0, 0, 0, 0, 0, 0, 0, 0]), attributes(FILE)].concat()),
        GETATTR => Ok([words(&[0; 4]), attributes(node)].concat()),
        OPEN => Ok(words(&[0; 4])),
        RELEASE => Ok(Vec::new()),
        _ => Err(libc::ENOSYS),
    };
    let error = answer.as_ref().err().map_or(0, |error| -error);
    let body = answer.unwrap_or_default();
    let mut whole = words(&[16 + body.len() as u32, error.cast_unsigned()]);
    whole.extend(unique.to_ne_bytes());
    whole.extend(body);
    // A request that was given up has no answer.
    let _ = rustix::io::write(device, &whole);
    Ok(())
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().copied().flat_map(u32::to_ne_bytes).collect()
}

/// Writes `struct fuse_attr`: 88 bytes.
fn attributes(node: u64) -> Vec<u8> {
    let (mode, size) = if node == ROOT { (0o40_755, 0) } else { (0o100_444, 4096_u64) };
    let long = [node, size, 8, 0, 0, 0];
    let mut all: Vec<u8> = long.into_iter().flat_map(u64::to_ne_bytes).collect();
    all.extend(words(&[0, 0, 0, mode, 1, 0, 0, 0, 4096, 0]));
    all
}
