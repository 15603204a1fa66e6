//! The items of the protocol library (`sojourn-library`) that this crate uses, re-exported in one
//! place.

pub(crate) use sojourn_library::ancillary::Told;
pub(crate) use sojourn_library::{
    Attempt, BytesOnly, Call, Datagram, EpollEvent, FromKernel, Got, Host, Interrupt, Known,
    Library, Origin, PARTS_MAX, PollFd, Queue, Recv, Route, Send, Set, SocketOption, Use, library,
    numbers, tcp_info,
};
pub(crate) use sojourn_session::ReasonT;
