//! The items of the protocol library (`sojourn-library`) that this crate uses, re-exported in one
//! place.

#[cfg(target_arch = "x86_64")]
pub(crate) use sojourn_library::OwnCalls;
pub(crate) use sojourn_library::ancillary::DatagramAncillary;
pub(crate) use sojourn_library::{
    Amount, Attempt, BytesOnly, Call, Corking, Datagram, DatagramCall, EngineAnswers, EpollEvent,
    FdEntry, FromKernel, Host, Inherited, Interrupt, Lending, Lent, LentPiece, Library,
    OptionAnswer, OptionChange, Origin, PARTS_MAX, PollFd, Queue, ReceiveOutcome, Recv, Route,
    Send, SocketOption, Told, Use, Woken, library, numbers, tcp_info,
};
pub(crate) use sojourn_session::ReasonT;
