//! The families of nftables' tables.
//!
//! Not here: a session's family (`session`).

/// `NFPROTO_*`.
pub(crate) const INET: u8 = 1;
pub(crate) const IPV4: u8 = 2;
pub(crate) const NETDEV: u8 = 5;
pub(crate) const BRIDGE: u8 = 7;
pub(crate) const IPV6: u8 = 10;

/// Returns the name by which nft(8) calls a family.
pub(crate) const fn name(family: u8) -> &'static str {
    match family {
        INET => "inet",
        IPV4 => "ip",
        NETDEV => "netdev",
        BRIDGE => "bridge",
        IPV6 => "ip6",
        _ => "other",
    }
}
