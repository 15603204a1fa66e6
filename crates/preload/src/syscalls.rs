//! `syscall`: the numbers that concern a session come to the functions of the same meaning.

use crate::buffers;
use crate::descriptors::opened;
use crate::gate::{is_open, tell, within};
use crate::library::{Origin, ReasonT};
use crate::next::next;
use crate::process::{ends_by_call, has_notification, is_filter, shut};
use crate::rings::{self, View};
use crate::trampoline::{Entry, asks_first};
use core::ffi::{c_int, c_long};

asks_first!(before_syscall; syscall = 0);

type ServeFn =
    unsafe extern "C-unwind" fn(c_long, usize, usize, usize, usize, usize, usize) -> c_long;

/// Decides which function it is to be.
unsafe extern "C" fn before_syscall(entry: &Entry, arguments: &[usize; 6]) -> usize {
    // Locks of the language's own come here from inside, mostly to wait.
    if arguments[0] as i64 == libc::SYS_futex || !is_open() {
        return entry.next();
    }
    match arguments[0] as i64 {
        number if is_served(number) => return serve as ServeFn as usize,
        libc::SYS_pselect6 => return serve_pselect6 as ServeFn as usize,
        libc::SYS_clone if arguments[1] as c_int & libc::CLONE_THREAD == 0 => shut(ReasonT::Fork),
        libc::SYS_clone3 | libc::SYS_fork | libc::SYS_vfork => shut(ReasonT::Fork),
        libc::SYS_mq_notify => has_notification(),
        libc::SYS_exit => ends_by_call(arguments[1]),
        libc::SYS_seccomp | libc::SYS_unshare | libc::SYS_setns => shut(ReasonT::Sandbox),
        libc::SYS_prctl if is_filter(arguments[1] as c_int) => shut(ReasonT::Sandbox),
        libc::SYS_io_uring_setup => return serve_ring_setup as ServeFn as usize,
        libc::SYS_io_uring_enter => rings_entered(arguments),
        libc::SYS_io_uring_register => rings_changed(arguments),
        libc::SYS_execve | libc::SYS_execveat => tell(|library| library.before_exec()),
        _ => {}
    }
    entry.next()
}

/// If a ring cannot be seen into, the library is to know.
fn check_view(view: Option<View>) {
    match view {
        Some(View::Seen) | None => {}
        Some(view) => tell(|library| library.ring_unseen(view == View::Hidden)),
    }
}

/// `io_uring_setup`. The kernel makes a ring of what it is given, and says what it is.
#[allow(clippy::too_many_arguments, reason = "as many as a system call has")]
unsafe extern "C-unwind" fn serve_ring_setup(
    number: c_long,
    entries: usize,
    params: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> c_long {
    // SAFETY: passed on.
    let made = unsafe { next!(c"syscall" as ServeFn)(number, entries, params, c, d, e, f) };
    if made >= 0 {
        let fd = opened(made as c_int, Origin::Unknown);
        check_view(within(|library| rings::made(library, fd, params as *const rings::Params)));
    }
    made
}

#[cold]
fn rings_entered(arguments: &[usize; 6]) {
    let [_, fd, count, _, flags, _] = *arguments;
    check_view(within(|library| rings::before_enter(library, fd as i32, count, flags)));
}

#[cold]
fn rings_changed(arguments: &[usize; 6]) {
    let [_, fd, what, at, count, _] = *arguments;
    let arguments = [fd, what, at, count];
    check_view(within(|library| rings::before_register(library, arguments)));
}

/// The type of every argument.
macro_rules! word {
    ($index:literal) => {
        usize
    };
}

/// Functions of this library by the names that C knows, with arguments as they come; and by number.
macro_rules! served {
    ($($name:ident = $number:ident($($index:literal)*) -> $answer:ty;)+) => {
        mod ours {
            #![allow(clashing_extern_declarations, reason = "every argument is one register, whatever its type")]
            unsafe extern "C-unwind" {
                $(pub(super) fn $name($(_: word!($index)),*) -> $answer;)+
            }
        }

        /// Whether [`serve`] knows a number.
        fn is_served(number: i64) -> bool {
            matches!(number, $(libc::$number)|+)
        }

        /// Instead of the C library's `syscall`, for the numbers of [`is_served`].
        #[allow(clippy::too_many_arguments, reason = "as many as a system call has")]
        unsafe extern "C-unwind" fn serve(
            number: c_long,
            a: usize,
            b: usize,
            c: usize,
            d: usize,
            e: usize,
            f: usize,
        ) -> c_long {
            let all = [a, b, c, d, e, f];
            match number {
                // SAFETY: the program's arguments for a call of this meaning.
                $(libc::$number => unsafe { c_long::from(ours::$name($(all[$index]),*)) },)+
                _ => -1,
            }
        }
    };
}

served! {
    read = SYS_read(0 1 2) -> i64;
    write = SYS_write(0 1 2) -> i64;
    readv = SYS_readv(0 1 2) -> i64;
    writev = SYS_writev(0 1 2) -> i64;
    recvfrom = SYS_recvfrom(0 1 2 3 4 5) -> i64;
    sendto = SYS_sendto(0 1 2 3 4 5) -> i64;
    recvmsg = SYS_recvmsg(0 1 2) -> i64;
    sendmsg = SYS_sendmsg(0 1 2) -> i64;
    recvmmsg = SYS_recvmmsg(0 1 2 3 4) -> i32;
    sendmmsg = SYS_sendmmsg(0 1 2 3) -> i32;
    sendfile = SYS_sendfile(0 1 2 3) -> i64;
    splice = SYS_splice(0 1 2 3 4 5) -> i64;
    tee = SYS_tee(0 1 2 3) -> i64;
    vmsplice = SYS_vmsplice(0 1 2 3) -> i64;
    close = SYS_close(0) -> i32;
    close_range = SYS_close_range(0 1 2) -> i32;
    dup = SYS_dup(0) -> i32;
    dup2 = SYS_dup2(0 1) -> i32;
    dup3 = SYS_dup3(0 1 2) -> i32;
    fcntl = SYS_fcntl(0 1 2) -> i32;
    ioctl = SYS_ioctl(0 1 2) -> i32;
    socket = SYS_socket(0 1 2) -> i32;
    socketpair = SYS_socketpair(0 1 2 3) -> i32;
    accept = SYS_accept(0 1 2) -> i32;
    accept4 = SYS_accept4(0 1 2 3) -> i32;
    connect = SYS_connect(0 1 2) -> i32;
    shutdown = SYS_shutdown(0 1) -> i32;
    setsockopt = SYS_setsockopt(0 1 2 3 4) -> i32;
    getsockopt = SYS_getsockopt(0 1 2 3 4) -> i32;
    open = SYS_open(0 1 2) -> i32;
    openat = SYS_openat(0 1 2 3) -> i32;
    pipe = SYS_pipe(0) -> i32;
    pipe2 = SYS_pipe2(0 1) -> i32;
    preadv2 = SYS_preadv2(0 1 2 3 5) -> i64;
    pwritev2 = SYS_pwritev2(0 1 2 3 5) -> i64;
    munmap = SYS_munmap(0 1) -> i32;
    mprotect = SYS_mprotect(0 1 2) -> i32;
    mremap = SYS_mremap(0 1 2 3 4) -> i64;
    select = SYS_select(0 1 2 3 4) -> i32;
    poll = SYS_poll(0 1 2) -> i32;
    ppoll = SYS_ppoll(0 1 2 3) -> i32;
    epoll_create = SYS_epoll_create(0) -> i32;
    epoll_create1 = SYS_epoll_create1(0) -> i32;
    epoll_ctl = SYS_epoll_ctl(0 1 2 3) -> i32;
    epoll_wait = SYS_epoll_wait(0 1 2 3) -> i32;
    epoll_pwait = SYS_epoll_pwait(0 1 2 3 4) -> i32;
    epoll_pwait2 = SYS_epoll_pwait2(0 1 2 3 4) -> i32;
}

/// The kernel's pselect(2) has its mask in a structure, with the mask's length.
#[allow(clippy::too_many_arguments, reason = "as many as a system call has")]
unsafe extern "C-unwind" fn serve_pselect6(
    _number: c_long,
    count: usize,
    input: usize,
    output: usize,
    except: usize,
    limit: usize,
    mask: usize,
) -> c_long {
    unsafe extern "C-unwind" {
        fn pselect(a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> c_int;
    }
    let mask = match mask {
        0 => 0,
        // SAFETY: plain data, left alone meanwhile.
        at => unsafe { buffers::structure(at as *const [usize; 2]) }.map_or(at, |mask| mask[0]),
    };
    // SAFETY: the program's arguments for a call of this meaning.
    c_long::from(unsafe { pselect(count, input, output, except, limit, mask) })
}
