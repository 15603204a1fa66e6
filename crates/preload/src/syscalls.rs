//! System calls by number that concern sessions, with the kernel's arguments, which sometimes
//! differ from those of the C library's function of the same name.
//!
//! A call that the kernel serves is made unchanged, with all its arguments. Such a call is no
//! cancellation point, and no other function of the C library runs. The functions named `..._by` of
//! other modules do the work for sessions. Not here: how such calls come to this library (`door`,
//! `own_calls`).

use crate::call_mask::IO_PGETEVENTS;
use crate::guard::{can_open, is_initialized, is_open, is_wide_open, tell_if_initialized, within};
use crate::guests::Numbered;
use crate::library::{EpollEvent, PollFd, ReasonT};
use crate::process::{ends_by_call, forked_by, has_notification, is_filter, shut};
use crate::raw::Kernel;
use crate::readiness::{self, Countdown, WaitTerms, masked, terms};
use crate::{
    buffers, confined, connections, control, descriptors, exec, files, first_calls, io, kernel_aio,
    messages, options, reopen, rings, select, shrinking, sockets,
};
use core::ffi::{c_int, c_long};
use libc::{fd_set, sigset_t, timespec};

/// The way in which a system call is made.
pub(crate) enum Dispatch {
    /// [`serve`] makes the call.
    Served,
    /// The call is a `fork`, which [`forked`] makes.
    Forked,
    /// The kernel serves the unchanged call. The library has been told already, if need be.
    AsItIs,
}

/// Chooses the way of a call, for programs that call `syscall` and for programs whose own system
/// calls are rewritten. `arguments` are the call's number and its first five arguments.
pub(crate) fn dispatch(arguments: &[usize; 6]) -> Dispatch {
    match arguments[0] as i64 {
        number if is_served(number) => return Dispatch::Served,
        libc::SYS_clone if is_fork(arguments) => return Dispatch::Forked,
        libc::SYS_clone | libc::SYS_clone3 => shut(ReasonT::Fork),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_fork | libc::SYS_vfork => shut(ReasonT::Fork),
        libc::SYS_mq_notify => has_notification(),
        libc::SYS_exit => ends_by_call(arguments[1]),
        libc::SYS_seccomp | libc::SYS_unshare | libc::SYS_setns => shut(ReasonT::Sandbox),
        libc::SYS_prctl if is_filter(arguments[1] as c_int) => shut(ReasonT::Sandbox),
        libc::SYS_chroot | libc::SYS_pivot_root => confined::root_changes(),
        libc::SYS_setrlimit => confined::limit_changes(arguments[1] as c_int, arguments[2] as _),
        libc::SYS_prlimit64 => {
            confined::limit_of_changes(arguments[1], arguments[2], arguments[3]);
        }
        libc::SYS_setuid | libc::SYS_setreuid | libc::SYS_setresuid => confined::user_changes(),
        libc::SYS_io_uring_enter => rings::entered(arguments),
        libc::SYS_io_uring_register => rings::changed(arguments),
        libc::SYS_mmap => buffers::mapped(arguments[4]),
        number if shrinking::is_one(number) => buffers::forget(),
        libc::SYS_madvise => shrinking::advised(arguments[3] as c_int),
        libc::SYS_io_submit => kernel_aio::before_submit(arguments[3], arguments[2]),
        libc::SYS_execve | libc::SYS_execveat => {
            tell_if_initialized(|library| library.before_exec());
        }
        libc::SYS_exit_group => exec::ends(),
        _ => {}
    }
    Dispatch::AsItIs
}

/// Returns true if the library serves the system call `number`, or has to know of it
/// ([`dispatch`]). All others are the kernel's alone.
pub(crate) extern "C" fn concerns(number: i64) -> bool {
    is_served(number) || is_told(number)
}

/// Returns true for the calls that [`dispatch`] tells the library of.
fn is_told(number: i64) -> bool {
    #[cfg(target_arch = "x86_64")]
    if matches!(number, libc::SYS_fork | libc::SYS_vfork) {
        return true;
    }
    if shrinking::is_one(number) {
        return true;
    }
    matches!(
        number,
        libc::SYS_clone
            | libc::SYS_clone3
            | libc::SYS_mmap
            | libc::SYS_madvise
            | libc::SYS_mq_notify
            | libc::SYS_exit
            | libc::SYS_seccomp
            | libc::SYS_unshare
            | libc::SYS_setns
            | libc::SYS_prctl
            | libc::SYS_chroot
            | libc::SYS_pivot_root
            | libc::SYS_setrlimit
            | libc::SYS_prlimit64
            | libc::SYS_setuid
            | libc::SYS_setreuid
            | libc::SYS_setresuid
            | libc::SYS_io_uring_enter
            | libc::SYS_io_uring_register
            | libc::SYS_io_submit
            // Nothing is told, but a handler of the loader's guest needs the mask.
            | IO_PGETEVENTS
            | libc::SYS_execve
            | libc::SYS_execveat
            | libc::SYS_exit_group
    )
}

/// Makes a system call if this library serves it. `None`: the caller is to make it, unchanged.
///
/// # Safety
/// As for the system call itself.
pub(crate) unsafe fn served(number: i64, arguments: &[usize; 6]) -> Option<isize> {
    let [a, b, c, d, e, f] = *arguments;
    if !is_wide_open() && !is_let_in(number) {
        return None;
    }
    // SAFETY: the program's own call.
    let answer = unsafe {
        if SERVED.get(number as usize) == Some(&true) {
            serve(number, a, b, c, d, e, f)
        } else {
            match dispatch(&[number as usize, a, b, c, d, e]) {
                Dispatch::Forked => forked(number, a, b, c, d, e, f),
                Dispatch::Served | Dispatch::AsItIs => return None,
            }
        }
    };
    Some(if answer == -1 { -(crate::errno::value() as isize) } else { answer as isize })
}

/// For each number the answer of [`is_served`]: one look in place of many comparisons.
static SERVED: [bool; NUMBERS] = {
    let mut served = [false; NUMBERS];
    let mut number = 0;
    while number < NUMBERS {
        served[number] = is_served(number as i64);
        number += 1;
    }
    served
};
/// Numbers from here on are no system calls.
const NUMBERS: usize = 512;

/// Returns true if a call may enter the library. Initializes the library if the call needs that.
#[cold]
#[inline(never)]
fn is_let_in(number: i64) -> bool {
    if is_initialized() || !first_calls::are_among(number) {
        return concerns(number) && is_open();
    }
    can_open()
}

/// Flags of `clone` that share something with the child or change its parent, so that the call is
/// no `fork`.
const SHARED: c_int = libc::CLONE_VM
    | libc::CLONE_FS
    | libc::CLONE_FILES
    | libc::CLONE_SIGHAND
    | libc::CLONE_THREAD
    | libc::CLONE_VFORK
    | libc::CLONE_PARENT
    | libc::CLONE_SETTLS;

/// Returns true if a `clone` by number is a `fork`, perhaps with new namespaces for the child (as
/// in vsftpd).
///
/// Not while the library has threads: the C library does not notice that child, would count those
/// threads in it, and would wait for them forever in `setuid` and the like.
fn is_fork(arguments: &[usize; 6]) -> bool {
    let [_, flags, stack, ..] = *arguments;
    let has_threads = || within(|library| library.has_threads()) != Some(false);
    flags as c_int & SHARED == 0 && stack == 0 && !has_threads()
}

/// Makes a `clone` that is a `fork`.
#[allow(clippy::too_many_arguments, reason = "as many as a system call has")]
pub(crate) unsafe extern "C-unwind" fn forked(
    number: c_long,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> c_long {
    let call = Numbered { number, arguments: [a, b, c, d, e, f] };
    forked_by(|| call.make() as c_long)
}

/// Defines the system calls that this library serves: the number, the serving function, and the
/// indices of the arguments to pass.
macro_rules! served {
    ($($(#[$here:meta])* $number:ident = $function:path[$($index:literal)*];)+) => {
        /// Returns true if [`serve`] serves the system call `number`.
        const fn is_served(number: i64) -> bool {
            match number {
                $($(#[$here])* libc::$number => true,)+
                _ => false,
            }
        }

        /// Takes the place of the C library's `syscall` for the numbers of [`is_served`].
        #[allow(clippy::too_many_arguments, reason = "as many as a system call has")]
        pub(crate) unsafe extern "C-unwind" fn serve(
            number: c_long,
            a: usize,
            b: usize,
            c: usize,
            d: usize,
            e: usize,
            f: usize,
        ) -> c_long {
            let all = [a, b, c, d, e, f];
            let call = Numbered { number, arguments: all };
            let kernel = move || call.make();
            let result = match number {
                $($(#[$here])* libc::$number => $function($(all[$index] as _,)* kernel),)+
                _ => kernel(),
            };
            result as c_long
        }
    };
}

served! {
    SYS_read = io::read_by[0 1 2];
    SYS_write = io::write_by[0 1 2];
    SYS_readv = io::readv_by[0 1 2];
    SYS_writev = io::writev_by[0 1 2];
    SYS_preadv2 = io::preadv2_by[0 1 2 3 5];
    SYS_pwritev2 = io::pwritev2_by[0 1 2 3 5];
    SYS_recvfrom = sockets::recvfrom_by[0 1 2 3 4 5];
    SYS_sendto = sockets::sendto_by[0 1 2 3 4 5];
    SYS_recvmsg = messages::recvmsg_by[0 1 2];
    SYS_sendmsg = messages::sendmsg_by[0 1 2];
    SYS_recvmmsg = messages::recvmmsg_by[0 1 2 3 4];
    SYS_sendmmsg = messages::sendmmsg_by[0 1 2 3];
    SYS_sendfile = files::sendfile_by[0 1 2 3];
    SYS_splice = files::both_home_by[0 2];
    SYS_tee = files::both_home_by[0 1];
    SYS_vmsplice = files::home_by[0];
    SYS_close = descriptors::close_by[0];
    SYS_close_range = close_range[0 1 2];
    SYS_dup = descriptors::dup_by[0];
    #[cfg(target_arch = "x86_64")]
    SYS_dup2 = descriptors::replace[0 1];
    SYS_dup3 = descriptors::dup3_by[0 1 2];
    SYS_fcntl = control::fcntl_by[0 1 2];
    SYS_ioctl = control::ioctl_by[0 1 2];
    SYS_socket = connections::socket_by[];
    SYS_socketpair = connections::socketpair_by[3];
    SYS_accept = connections::opened_by[];
    SYS_accept4 = connections::opened_by[];
    SYS_connect = connections::connect_by[0];
    SYS_shutdown = connections::shutdown_by[0 1];
    SYS_setsockopt = options::setsockopt_by[0 1 2 3 4];
    SYS_getsockopt = options::getsockopt_by[0 1 2 3 4];
    #[cfg(target_arch = "x86_64")]
    SYS_open = reopen::open_by[1];
    SYS_openat = reopen::open_by[2];
    SYS_openat2 = reopen::openat2_by[];
    #[cfg(target_arch = "x86_64")]
    SYS_creat = reopen::create_by[];
    #[cfg(target_arch = "x86_64")]
    SYS_pipe = descriptors::pipe_by[0];
    SYS_pipe2 = descriptors::pipe_by[0];
    SYS_munmap = buffers::forgotten_by[];
    SYS_mprotect = buffers::mprotect_by[2];
    SYS_mremap = buffers::forgotten_by[];
    #[cfg(target_arch = "x86_64")]
    SYS_select = select_[0 1 2 3 4];
    SYS_pselect6 = pselect6[0 1 2 3 4 5];
    #[cfg(target_arch = "x86_64")]
    SYS_poll = poll[0 1 2];
    SYS_ppoll = ppoll[0 1 2 3 4];
    #[cfg(target_arch = "x86_64")]
    SYS_epoll_create = readiness::epoll_create_by[];
    SYS_epoll_create1 = readiness::epoll_create_by[];
    SYS_epoll_ctl = readiness::epoll_ctl_by[0 1 2 3];
    #[cfg(target_arch = "x86_64")]
    SYS_epoll_wait = epoll_wait[0 1 2 3];
    SYS_epoll_pwait = epoll_pwait[0 1 2 3 4 5];
    SYS_epoll_pwait2 = epoll_pwait2[0 1 2 3 4 5];
    SYS_io_uring_setup = rings::setup_by[1];
}

fn close_range(first: u32, last: u32, flags: c_int, _: impl Kernel) -> isize {
    let kernel = |first, last| {
        let arguments = [first as usize, last as usize, flags as usize, 0, 0, 0];
        Numbered { number: libc::SYS_close_range, arguments }.make() as c_int
    };
    descriptors::close_range_by(first, last, flags, kernel) as isize
}

/// Returns the mask if its size is the only one that the kernel accepts, or if it is null; `None`
/// if the kernel would refuse it.
fn sized(mask: *const sigset_t, size: usize) -> Option<*const sigset_t> {
    (mask.is_null() || size == size_of::<u64>()).then_some(mask)
}

/// Makes a call whose time limit is counted down in the program's memory, as the kernel does for
/// calls by number (select(2), "C library/kernel differences").
fn counted_down(
    limit: *mut timespec,
    mask: impl Fn() -> Option<*const sigset_t>,
    kernel: impl Kernel,
    call: impl FnOnce(&dyn Fn() -> Option<WaitTerms>, &dyn Fn() -> isize) -> isize,
) -> isize {
    let countdown = Countdown::default();
    let terms = || {
        let terms = terms(limit, mask()?)?;
        terms.limit.inspect(|limit| countdown.begin(*limit));
        Some(terms)
    };
    let result = call(&terms, &|| countdown.left_to(kernel));
    if let Some(left) = countdown.left()
        && buffers::is_writable(limit)
    {
        let left = timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        // SAFETY: writable, as checked above.
        unsafe { limit.write_unaligned(left) };
    }
    result
}

#[cfg(target_arch = "x86_64")]
#[allow(clippy::too_many_arguments, reason = "those of the call that it serves")]
fn select_(
    count: c_int,
    input: *mut fd_set,
    output: *mut fd_set,
    except: *mut fd_set,
    limit: *mut libc::timeval,
    kernel: impl Kernel,
) -> isize {
    select::select_counted(count, [input, output, except], limit, kernel)
}

/// Serves pselect(2) as the kernel defines it: the mask and its size are in a structure.
#[expect(clippy::too_many_arguments, reason = "those of the call that it serves")]
fn pselect6(
    count: c_int,
    input: *mut fd_set,
    output: *mut fd_set,
    except: *mut fd_set,
    limit: *mut timespec,
    mask: *const [usize; 2],
    kernel: impl Kernel,
) -> isize {
    let sized_mask = || {
        if mask.is_null() {
            return Some(core::ptr::null());
        }
        // SAFETY: plain data, which the program leaves alone during the call.
        let [mask, size] = unsafe { buffers::structure(mask) }?;
        sized(mask as *const sigset_t, size)
    };
    counted_down(limit, sized_mask, kernel, |terms, kernel| {
        select::select_by(count, [input, output, except], terms, kernel)
    })
}

#[cfg(target_arch = "x86_64")]
fn poll(fds: *mut PollFd, count: u32, limit: c_int, kernel: impl Kernel) -> isize {
    readiness::poll_by(fds, count.into(), || Some(WaitTerms::of_ms(limit)), kernel)
}

#[allow(clippy::too_many_arguments, reason = "those of the call that it serves")]
fn ppoll(
    fds: *mut PollFd,
    count: u32,
    limit: *mut timespec,
    mask: *const sigset_t,
    size: usize,
    kernel: impl Kernel,
) -> isize {
    counted_down(
        limit,
        || sized(mask, size),
        kernel,
        |terms, kernel| readiness::poll_by(fds, count.into(), terms, kernel),
    )
}

#[cfg(target_arch = "x86_64")]
fn epoll_wait(
    set: c_int,
    events: *mut EpollEvent,
    count: c_int,
    limit: c_int,
    kernel: impl Kernel,
) -> isize {
    readiness::epoll_wait_by(set, events, count, || Some(WaitTerms::of_ms(limit)), kernel)
}

#[expect(clippy::too_many_arguments, reason = "those of the call that it serves")]
fn epoll_pwait(
    set: c_int,
    events: *mut EpollEvent,
    count: c_int,
    limit: c_int,
    mask: *const sigset_t,
    size: usize,
    kernel: impl Kernel,
) -> isize {
    let terms = || masked(limit, sized(mask, size)?);
    readiness::epoll_wait_by(set, events, count, terms, kernel)
}

#[expect(clippy::too_many_arguments, reason = "those of the call that it serves")]
fn epoll_pwait2(
    set: c_int,
    events: *mut EpollEvent,
    count: c_int,
    limit: *const timespec,
    mask: *const sigset_t,
    size: usize,
    kernel: impl Kernel,
) -> isize {
    let terms = || terms(limit, sized(mask, size)?);
    readiness::epoll_wait_by(set, events, count, terms, kernel)
}
