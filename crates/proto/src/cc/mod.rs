//! Congestion control: how many bytes may be in the network.

/// Which congestion controller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// CUBIC (RFC 9438).
    #[default]
    Cubic,
    /// NewReno's window rules (RFC 5681).
    Reno,
}
