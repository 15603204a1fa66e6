//! Fakes that become something else: another user, another program, a child of what they were.
#![allow(unsafe_code, reason = "clone(2), and the users of all threads")]

use super::{FAKE, Fake, send};
use rustix::fd::{AsRawFd, FromRawFd, OwnedFd};
use rustix::io::FdFlags;
use sojourn_ipc::Address;
use std::ffi::CString;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::ptr;

/// The number of a connection that the program before this one has left to it.
const CONNECTION: &str = "SOJOURN_TEST_CONNECTION";
/// Bytes of a child's stack.
const STACK: usize = 1 << 20;

/// Gives up root's rights for ever.
pub(super) fn become_user(user: u32) -> String {
    // SAFETY: the calls take numbers.
    let done = unsafe { libc::setresgid(user, user, user) | libc::setresuid(user, user, user) };
    if done == 0 { "ok".into() } else { "error".into() }
}

/// What a child goes on with.
struct Heritage<'f> {
    fake: &'f mut Fake,
    socket: &'f OwnedFd,
}

/// Goes on as a child, which shares its parent's memory (clone(2), `CLONE_VM`) and has all its
/// descriptors. The parent becomes `program`, or ends.
pub(super) fn leave_to_child(program: Option<&str>, fake: &mut Fake, socket: &OwnedFd) -> ! {
    let path = program.map(|program| CString::new(program).unwrap());
    let words =
        [path.as_ref().map_or(ptr::null(), |path| path.as_ptr()), c"60".as_ptr(), ptr::null()];
    let mut heritage = Heritage { fake, socket };
    let stack: &mut [u128] = vec![0; STACK / size_of::<u128>()].leak();
    let top = stack.as_mut_ptr_range().end.cast();
    // SAFETY: the stack and everything below it live as long as a process has the memory. This
    // thread touches nothing of the child's, and calls nothing but the kernel.
    unsafe {
        libc::clone(go_on, top, libc::CLONE_VM | libc::SIGCHLD, (&raw mut heritage).cast());
        if let Some(path) = &path {
            libc::execve(path.as_ptr(), words.as_ptr(), [ptr::null()].as_ptr());
        }
        libc::_exit(0)
    }
}

extern "C" fn go_on(heritage: *mut libc::c_void) -> libc::c_int {
    // SAFETY: the argument of `leave_to_child`, which nobody else uses.
    let Heritage { fake, socket } = unsafe { &mut *heritage.cast::<Heritage<'_>>() };
    send(socket, "ok", None);
    fake.serve(socket)
}

/// Returns true if another program has become this one.
pub(super) fn is_executed() -> bool {
    std::env::var_os(CONNECTION).is_some()
}

/// Returns the connection that was made before this program was run.
pub(super) fn inherited_connection() -> Option<Address> {
    let number = std::env::var(CONNECTION).ok()?.parse().unwrap();
    // SAFETY: the number was left to this program, which uses it once.
    Some(Address::Descriptor(unsafe { OwnedFd::from_raw_fd(number) }))
}

impl Fake {
    /// Connects, says nothing, and becomes that copy of this program, which answers.
    pub(super) fn exec(&mut self, program: &str) -> String {
        let socket = self.connected();
        rustix::io::fcntl_setfd(&socket, FdFlags::empty()).unwrap();
        let mut command = Command::new(program);
        command.args(["--exact", "fake", "--nocapture"]).env(FAKE, &self.server);
        let error = command.env(CONNECTION, socket.as_raw_fd().to_string()).exec();
        format!("{program}: {error}")
    }
}
