//! How the programs of a server take part in the network.

/// How programs get to the packets of their sessions with other hosts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Network {
    /// Everybody through a port.
    #[default]
    Ports,
    /// Who shows a packet socket of its own by one on the interface, everybody else through a port.
    Rights,
    /// As `Rights`, but packet sockets have no mapped rings: to see what those give.
    Messages,
}
