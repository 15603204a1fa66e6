//! Questions over netlink(7), and notices of changes.
//!
//! Not here: what is asked (`kernel`, `cgroups`), and the forms of messages (`attributes`).

use crate::attributes::{Message, messages};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType};

/// `NLM_F_REQUEST | NLM_F_ACK` and `NLM_F_REQUEST | NLM_F_DUMP`, and `NLM_F_DUMP_INTR` of an
/// answer.
const ASK: u16 = 0x5;
const DUMP: u16 = 0x301;
const INTERRUPTED: u16 = 0x10;
const ERROR: u16 = 2;
const DONE: u16 = 3;
/// Longer than any one datagram of an answer (bytes).
const ANSWER_LEN: usize = 64 * 1024;
/// How often a dump is tried that changes meanwhile.
const TRIES: usize = 8;

/// Opens a socket that hears of changes in `groups`. A protocol of `None` is `NETLINK_ROUTE`.
///
/// # Errors
/// The kernel's.
pub(crate) fn socket(protocol: Option<Protocol>, groups: u32) -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let (family, kind) = (AddressFamily::NETLINK, SocketType::RAW);
    let socket = rustix::net::socket_with(family, kind, flags, protocol)?;
    rustix::net::bind(&socket, &SocketAddrNetlink::new(0, groups))?;
    Ok(socket)
}

/// Reads all notices; returns true if there were any. Of too many some get lost (`ENOBUFS`).
pub(crate) fn drain(socket: &OwnedFd) -> bool {
    let mut any = false;
    let mut ignored = [0; 512];
    loop {
        match rustix::net::recv(socket, &mut ignored[..], RecvFlags::TRUNC) {
            Ok(_) | Err(Errno::NOBUFS) => any = true,
            Err(Errno::INTR) => {}
            Err(_) => return any,
        }
    }
}

/// A question: the type of its message and the bytes behind the header.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Question<'b> {
    pub(crate) protocol: Option<Protocol>,
    pub(crate) kind: u16,
    pub(crate) body: &'b [u8],
}

/// Asks about one object; `each` gets the answer.
///
/// # Errors
/// The kernel's; `ENOENT` if there is no such object.
pub(crate) fn ask(question: Question<'_>, each: impl FnMut(Message<'_>)) -> Result<(), Errno> {
    converse(question, ASK, &mut { usize::MAX }, each)
}

/// Asks for all objects, once; `each` gets them. The answer's bytes are taken off `left`.
///
/// # Errors
/// The kernel's; `INTR` if the objects have changed meanwhile, `FBIG` if there are more bytes.
pub(crate) fn dump_at_most(
    question: Question<'_>,
    left: &mut usize,
    each: impl FnMut(Message<'_>),
) -> Result<(), Errno> {
    converse(question, DUMP, left, each)
}

/// Asks for all objects, again while they change meanwhile: `make` begins an attempt, `add` takes
/// one object in.
///
/// # Errors
/// The kernel's; `INTR` if the objects have changed in every attempt.
pub(crate) fn dump<T>(
    questions: &[Question<'_>],
    make: impl Fn() -> T,
    add: impl Fn(&mut T, Message<'_>),
) -> Result<T, Errno> {
    let read = || {
        let mut all = make();
        for question in questions {
            converse(*question, DUMP, &mut { usize::MAX }, |message| add(&mut all, message))?;
        }
        Ok(all)
    };
    (1..TRIES).map(|_| read()).find(|read| !matches!(read, Err(Errno::INTR))).unwrap_or_else(read)
}

/// Sends a question and gives `each` every message of the answer.
fn converse(
    question: Question<'_>,
    flags: u16,
    left: &mut usize,
    mut each: impl FnMut(Message<'_>),
) -> Result<(), Errno> {
    let Question { protocol, kind, body } = question;
    let socket = socket(protocol, 0)?;
    let mut request = ((16 + body.len()) as u32).to_ne_bytes().to_vec();
    request.extend(kind.to_ne_bytes());
    request.extend(flags.to_ne_bytes());
    request.extend([0; 8]);
    request.extend(body);
    rustix::net::send(&socket, &request, SendFlags::empty())?;
    let mut answer = vec![0; ANSWER_LEN];
    loop {
        // The kernel goes on with a dump in this call, so it does not block.
        let (len, whole) = rustix::net::recv(&socket, &mut answer[..], RecvFlags::TRUNC)?;
        if whole > len {
            return Err(Errno::MSGSIZE);
        }
        *left = left.checked_sub(len).ok_or(Errno::FBIG)?;
        for message in messages(answer.get(..len).unwrap_or_default()) {
            if message.flags & INTERRUPTED != 0 {
                return Err(Errno::INTR);
            }
            match message.kind {
                DONE | ERROR => return result(message.body),
                _ => each(message),
            }
        }
    }
}

/// Returns the result that the last message of an answer tells.
fn result(body: &[u8]) -> Result<(), Errno> {
    let code = body.get(..4).and_then(|code| code.try_into().ok()).map_or(0, i32::from_ne_bytes);
    match code.wrapping_neg() {
        0 => Ok(()),
        code @ 1..4096 => Err(Errno::from_raw_os_error(code)),
        _ => Err(Errno::BADMSG),
    }
}
