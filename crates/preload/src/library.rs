//! The protocol library's interface, in one place.

pub(crate) use sojourn_library::{
    Call, EpollEvent, Host, Interrupt, Library, Origin, Path, PollFd, Recv, Send, SocketOption,
    Use, library,
};
pub(crate) use sojourn_session::ReasonT;
