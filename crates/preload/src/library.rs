//! The protocol library's interface, in one place.

pub(crate) use sojourn_library::{
    Answer, Call, Change, EpollEvent, Host, Interrupt, Library, Origin, Path, PollFd, Queue, Recv,
    Send, Set, SocketOption, Use, library, tcp_info,
};
pub(crate) use sojourn_session::ReasonT;
