//! The two ways of a frame.
//!
//! Not here: what is different on each (`client`, `server`, `sealed`).

/// The way of a frame between driver and client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FrameWay {
    /// In the message.
    #[default]
    Message,
    /// In memory of its own, sealed, whose descriptor is in the message: the receiver maps it, and
    /// unmaps it when it has used the frame.
    Memory,
}
