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
    /// Like `Rights`, but packet sockets are a driver's, and programs have connections with it:
    /// each frame is a message, or is in memory of its own.
    Driver(DriverWay),
}

/// The way of a frame between driver and program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DriverWay {
    /// In the message.
    Message,
    /// In memory whose descriptor is in the message.
    Memory,
}

impl Network {
    /// Returns true if programs' packet sockets have mapped rings.
    pub(crate) fn has_rings(self) -> bool {
        matches!(self, Self::Ports | Self::Rights)
    }
}
