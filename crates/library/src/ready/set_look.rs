//! What a set and a poll are told of sessions, and ask of them.
//!
//! [`Look`] is all that epoll sets know of the process at large. Not here: who answers (`sets`).

/// What the ring says of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RingSays {
    pub(crate) input: bool,
    /// `None`: the kernel decides.
    pub(crate) output: Option<bool>,
    /// A receive will say an error.
    pub(crate) error: bool,
    /// The kernel alone decides; nothing is said here.
    pub(crate) is_home: bool,
    /// Bytes may still come through the kernel.
    pub(crate) is_in_kernel: bool,
}

/// How sessions are looked at. By descriptor number, for a session may be gone by now.
pub(crate) trait Look {
    /// What the ring says.
    fn ring(&self, fd: i32) -> RingSays;
    /// From now on a ring posts to the inbox.
    fn arm(&self, fd: i32, input: bool, output: bool);
    /// What the kernel says at this moment, of `events`.
    fn kernel(&self, fd: i32, events: u32) -> u32;
    /// The kernel reported something that the session's own calls should look at.
    fn note_kernel_event(&self, fd: i32);
    /// Takes packets that have arrived: what they bring shows in the inboxes.
    fn turn(&self) {}
    /// A thread is about to sleep in a set that hears of packets; the answer is for
    /// [`Look::end_sleep`].
    fn begin_sleep(&self) -> bool {
        false
    }
    /// It is awake.
    fn end_sleep(&self, watches: bool) {
        let _ = watches;
    }
}
