//! A byte stream between two processes, in memory that both can write.
//!
//! The crate has the stream ([`Stream`]), the region's layout ([`Layout`]), and the inbox that
//! tells one waiter which of many streams had an event ([`Inbox`]). It has no sockets and no
//! sessions, and does not know its ends. The caller decides how long to spin (`sojourn_shm::wait`),
//! and has the locks that keep a side's writers apart, and its readers. Read
//! `docs/understand/streams.md` first.
//!
//! [`ring`], [`bell`], [`bits`], [`arrivals`] and [`doorbell`] are the parts that touch shared
//! words, without mapping or system call, so that the models under `tests/` run the code that
//! ships.
#![allow(unsafe_code, reason = "the control page is a structure of atomics in mapped memory")]

pub mod arrivals;
pub mod bell;
pub mod bits;
pub mod doorbell;
pub mod ring;
#[cfg(not(loom))]
mod room;
mod sync;

#[cfg(not(loom))]
mod attention;
#[cfg(not(loom))]
mod cache;
#[cfg(not(loom))]
mod cork;
#[cfg(not(loom))]
mod event;
#[cfg(all(not(loom), any(debug_assertions, fuzzing)))]
#[doc(hidden)]
pub mod fuzz;
mod geometry;
#[cfg(not(loom))]
mod home;
#[cfg(not(loom))]
mod inbox;
#[cfg(not(loom))]
mod layout;
#[cfg(not(loom))]
mod ledger;
#[cfg(not(loom))]
mod lend;
#[cfg(not(loom))]
mod read;
#[cfg(not(loom))]
mod slot;
#[cfg(not(loom))]
mod stream;
#[cfg(not(loom))]
mod times;
#[cfg(not(loom))]
mod write;

pub use bell::Bell;
#[cfg(not(loom))]
pub use home::{LEFTOVER_PARTS, Leftover};
#[cfg(not(loom))]
pub use inbox::Inbox;
#[cfg(not(loom))]
pub use layout::{
    CONTROL_BYTES, Layout, TIMES_WISH_AT, figures_in_header, ledger_in_header, times_in_header,
    totals_in_header,
};
#[cfg(not(loom))]
pub use ledger::{FIGURES_WORDS, LEDGER_WORDS, Ledger};
#[cfg(not(loom))]
pub use lend::InPlace;
pub use ring::Stop;
#[cfg(not(loom))]
pub use slot::SlotNumber;
#[cfg(not(loom))]
pub use stream::{Stream, Traffic};
#[cfg(not(loom))]
pub use times::{Arrived, Delivered, LAYERS, Layer, LayerTime, LayerTimes, Times};
