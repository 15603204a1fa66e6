//! The protocol library's interface, in one place.

pub(crate) use sojourn_library::{
    Attempt, Call, Datagram, EpollEvent, Got, Host, Interrupt, Library, Origin, PARTS_MAX, Path,
    PollFd, Recv, Send, SocketOption, Use, library,
};
pub(crate) use sojourn_session::ReasonT;
