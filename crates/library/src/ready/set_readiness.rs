//! The interface by which sets and polls look at sessions.
//!
//! [`ReadinessSource`] is all that epoll sets know of the process at large. Not here: its
//! implementation (`sets`).

/// The state of a session's rings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RingReadiness {
    pub(crate) input: bool,
    /// `None`: the kernel decides, or nobody wants to know.
    pub(crate) output: Option<bool>,
    /// The next receive returns an error.
    pub(crate) error: bool,
    /// The kernel alone decides.
    pub(crate) is_home: bool,
    /// Bytes may still come through the kernel.
    pub(crate) is_in_kernel: bool,
    /// Other events that hold: the peer's end, and a hang-up.
    pub(crate) others: u32,
}

/// Looks at sessions, by descriptor number: the session may be gone by now.
pub(crate) trait ReadinessSource {
    /// Returns the state of the rings, as far as it concerns the events `wanted`.
    fn ring(&self, fd: i32, wanted: u32) -> RingReadiness;
    /// Returns true if the kernel decides whether there is room.
    fn kernel_decides_room(&self, fd: i32) -> bool;
    /// Asks for posts to the inbox from now on.
    fn arm(&self, fd: i32, input: bool, output: bool);
    /// Returns those of `events` that the kernel reports at this moment.
    fn kernel(&self, fd: i32, events: u32) -> u32;
    /// Notes that the kernel has reported something at which the session's own calls should look.
    fn note_kernel_event(&self, fd: i32);
    /// Takes in packets that have arrived; what they bring shows in the inboxes.
    fn turn(&self) {}
    /// Begins a sleep in a set that hears of packets; the result is for
    /// [`ReadinessSource::end_sleep`].
    fn begin_sleep(&self) -> bool {
        false
    }
    /// Ends that sleep.
    fn end_sleep(&self, watches: bool) {
        let _ = watches;
    }
}
