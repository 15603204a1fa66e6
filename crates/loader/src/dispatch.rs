//! The dispatch of the guest's system calls.
//!
//! Calls that concern the guest's process, memory and threads are served in the loader, because
//! guest and host share one process. All others go to the preload library, which passes most of
//! them to the kernel.

use crate::block::{Block, Frame, here};
use crate::children::{self, Asked};
use crate::guest::{self, call, guest};
use crate::{
    bases, cache, early, exec, files, host, kinds, memory, sharing, signals, starts, threads, trap,
};
use core::ffi::c_int;

/// Serves a call of the guest's. Returns the value for the guest's `rax`. `enter` calls this
/// function by its symbol, because it is below all modules that this one uses.
#[unsafe(no_mangle)]
unsafe extern "C" fn sojourn_dispatch(frame: &mut Frame) -> isize {
    let block = here();
    if block.is_blocked != 0 {
        signals::leave_alternate(block);
    }
    if block.is_alone {
        return sharing::serve(frame);
    }
    if !host::is_present() {
        if let Some(result) = early::answer(frame, block) {
            return result;
        }
        host::start(block);
        early::hand_over(block);
        let_pass(block);
    }
    if block.vforking != 0 {
        children::look(block);
    }
    answer(frame, block)
}

/// Lets the guest make the calls itself that concern nobody here. The calling thread is the only
/// one.
pub(crate) fn let_pass(block: &mut Block) {
    let door = guest::door();
    // In a guest with trapped calls the guest's own `syscall` may be one of these.
    if guest().trapped.is_some() {
        kinds::set(|_| kinds::HOSTS);
    } else if host::is_present() {
        // Only the trap's signal must not be blocked; there is none.
        let is_served = |number| is_own(number) && number != libc::SYS_rt_sigprocmask;
        kinds::set(|number| match is_served(number) || (door.concerns)(number) {
            true if is_data(number) => kinds::DATA,
            true => kinds::HOSTS,
            false => kinds::GUESTS,
        });
    }
    block.kinds = kinds::all();
}

/// Returns true for the calls that the loader serves. The kernel finds the frame of rt_sigreturn(2)
/// by the stack pointer (`enter`).
const fn is_own(number: i64) -> bool {
    matches!(
        number,
        libc::SYS_rt_sigreturn
            | libc::SYS_arch_prctl
            | libc::SYS_brk
            | libc::SYS_mmap
            | libc::SYS_mprotect
            | libc::SYS_rt_sigaction
            | libc::SYS_rt_sigprocmask
            | libc::SYS_rt_sigsuspend
            | libc::SYS_sigaltstack
            | libc::SYS_set_tid_address
            | libc::SYS_set_robust_list
            | libc::SYS_rseq
            | libc::SYS_clone
            | libc::SYS_clone3
            | libc::SYS_fork
            | libc::SYS_vfork
            | libc::SYS_exit
            | libc::SYS_execve
            | libc::SYS_readlink
            | libc::SYS_readlinkat
            | libc::SYS_open
            | libc::SYS_openat
            | libc::SYS_openat2
            | libc::SYS_seccomp
            | libc::SYS_prctl
    ) || changes_rights(number)
}

/// Returns true for the calls by which a process changes its user or its root.
const fn changes_rights(number: i64) -> bool {
    matches!(
        number,
        libc::SYS_setuid
            | libc::SYS_setreuid
            | libc::SYS_setresuid
            | libc::SYS_chroot
            | libc::SYS_pivot_root
    )
}

/// Returns true for the data calls.
const fn is_data(number: i64) -> bool {
    matches!(
        number,
        libc::SYS_read
            | libc::SYS_write
            | libc::SYS_readv
            | libc::SYS_writev
            | libc::SYS_recvfrom
            | libc::SYS_sendto
            | libc::SYS_recvmsg
            | libc::SYS_sendmsg
    )
}

/// Who serves a call.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Server {
    Loader,
    /// The library or the kernel, which the descriptor decides.
    Descriptor,
    Library,
}

/// Who serves the call of each number: one look in place of many comparisons.
static SERVERS: [Server; kinds::NUMBERS] = {
    let mut all = [Server::Library; kinds::NUMBERS];
    let mut number = 0;
    while number < kinds::NUMBERS {
        if is_own(number as i64) {
            all[number] = Server::Loader;
        } else if is_data(number as i64) {
            all[number] = Server::Descriptor;
        }
        number += 1;
    }
    all
};

/// Serves a call that the loader does not serve itself.
#[inline(always)]
fn pass(frame: &mut Frame, block: &mut Block, server: Server) -> isize {
    let arguments = frame.arguments();
    let is_kernels = match server {
        Server::Descriptor => {
            let is_kernels = (guest::door().is_kernels)(arguments[0] as c_int);
            if is_kernels && block.entries.first.is_null() {
                // The way in looks itself from now on.
                block.entries = (guest::door().entries)();
            }
            is_kernels
        }
        _ => kinds::is_guests(frame.rax),
    };
    if is_kernels && !trap::is_trapped(frame.back) {
        // The guest makes the call itself, by the `syscall` instruction before the address at which
        // it goes on. Many processors mispredict each return behind a system call, because the
        // kernel guards its own returns; here no return is behind it.
        frame.back -= 2;
        return frame.rax as isize;
    }
    // SAFETY: the guest's own call, which library and kernel check.
    unsafe { call(frame.rax as i64, &arguments) }
}

fn answer(frame: &mut Frame, block: &mut Block) -> isize {
    let server = SERVERS.get(frame.rax).copied().unwrap_or(Server::Library);
    if server != Server::Loader {
        return pass(frame, block, server);
    }
    serve(frame, block)
}

/// Serves a call of [`is_own`].
fn serve(frame: &mut Frame, block: &mut Block) -> isize {
    let arguments = frame.arguments();
    match frame.rax as i64 {
        libc::SYS_arch_prctl => bases::arch_prctl(frame),
        libc::SYS_brk => memory::set_break(arguments[0]),
        libc::SYS_mmap => memory::map(&arguments),
        libc::SYS_mprotect => memory::protect(&arguments),
        libc::SYS_rt_sigaction => {
            threads::settle(arguments[0]);
            signals::act(&arguments, frame.rsp)
        }
        libc::SYS_rt_sigprocmask => signals::mask(&arguments),
        libc::SYS_sigaltstack => signals::alternate(block, &arguments, frame.rsp),
        libc::SYS_set_tid_address => threads::clear_at(block, &arguments),
        libc::SYS_set_robust_list => threads::set_robust(block, &arguments),
        // The host's C library has registered rseq(2). Programs must do without it.
        libc::SYS_rseq => -(libc::ENOSYS as isize),
        libc::SYS_clone => children::clone(frame, block, Asked::of_clone(&arguments)),
        libc::SYS_clone3 => match Asked::of_clone3(&arguments) {
            Ok(asked) => children::clone(frame, block, asked),
            Err(error) => error,
        },
        libc::SYS_fork => children::clone(frame, block, Asked::fork()),
        libc::SYS_vfork => children::clone(frame, block, Asked::vfork()),
        libc::SYS_exit => threads::end(arguments[0]),
        libc::SYS_execve => exec::exec(&arguments),
        libc::SYS_readlink => files::read_link(0, libc::SYS_readlink, &arguments),
        libc::SYS_readlinkat => files::read_link(1, libc::SYS_readlinkat, &arguments),
        libc::SYS_open => files::open(0, libc::SYS_open, &arguments),
        libc::SYS_openat => files::open(1, libc::SYS_openat, &arguments),
        libc::SYS_openat2 => files::open(1, libc::SYS_openat2, &arguments),
        // Once the guest has confined itself, the cache's calls might be forbidden to it.
        libc::SYS_seccomp | libc::SYS_prctl if confines(&arguments, frame.rax as i64) => {
            starts::is_hot();
            cache::close();
            // SAFETY: the guest's own call, which library and kernel check.
            unsafe { call(frame.rax as i64, &arguments) }
        }
        // As another user, or elsewhere, it could not write the record of its starts any more.
        number if changes_rights(number) => {
            starts::is_hot();
            // SAFETY: the guest's own call, which library and kernel check.
            unsafe { call(number, &arguments) }
        }
        // SAFETY: the guest's own call, which library and kernel check.
        number => unsafe { call(number, &arguments) },
    }
}

/// Returns true for seccomp(2), and for the operation of prctl(2) that does the same.
fn confines(arguments: &[usize; 6], number: i64) -> bool {
    number == libc::SYS_seccomp || arguments[0] == libc::PR_SET_SECCOMP as usize
}
