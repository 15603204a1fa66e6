//! The protocol library's interface, in one place.

pub(crate) use sojourn_library::ancillary::Told;
pub(crate) use sojourn_library::{
    Answer, Attempt, BytesOnly, Call, Change, Datagram, EpollEvent, FromKernel, Got, Host,
    Interrupt, Library, Origin, PARTS_MAX, Path, PollFd, Queue, Recv, Send, Set, SocketOption, Use,
    library, numbers, tcp_info,
};
pub(crate) use sojourn_session::ReasonT;
