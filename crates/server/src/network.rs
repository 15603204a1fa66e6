//! The ways in which programs take part in the network.
//!
//! Not here: the ways themselves (`sojourn_carrier`).

/// The way in which programs get the packets of their sessions with other hosts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Network {
    /// Every program has a port.
    #[default]
    Ports,
    /// A program that shows a packet socket of its own has one on the interface; every other
    /// program has a port.
    Rights,
    /// Like `Rights`, but packet sockets have no mapped rings: to measure the gain of these.
    Messages,
}
