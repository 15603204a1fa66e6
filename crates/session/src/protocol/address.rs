//! Addresses of datagrams as the protocol server's interface has them, on both sides of it.
//!
//! Not here: who sends what to them (`sojourn_protocol`, `sojourn_library`).

use super::{client, server};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

/// The fields of an address, of either side.
struct Fields {
    ip: [u8; 16],
    scope: u32,
    flow: u32,
    port: u16,
    version: u16,
}

/// An address that is none.
const NONE: Fields = Fields { ip: [0; 16], scope: 0, flow: 0, port: 0, version: 0 };

/// A value that the other side must not send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoAddress;

impl Fields {
    fn of(address: Option<SocketAddr>) -> Self {
        match address {
            None => NONE,
            Some(SocketAddr::V4(v4)) => {
                let mut ip = [0; 16];
                ip[..4].copy_from_slice(&v4.ip().octets());
                Self { ip, port: v4.port(), version: 4, ..NONE }
            }
            Some(SocketAddr::V6(v6)) => Self {
                ip: v6.ip().octets(),
                scope: v6.scope_id(),
                flow: v6.flowinfo(),
                port: v6.port(),
                version: 6,
            },
        }
    }

    fn read(&self) -> Result<Option<SocketAddr>, NoAddress> {
        match (self.version, self.ip.split_first_chunk()) {
            (0, _) => Ok(None),
            (4, Some((ip, _))) => {
                let ip: IpAddr = Ipv4Addr::from(*ip).into();
                Ok(Some(SocketAddr::new(ip, self.port)))
            }
            (6, _) => {
                let ip = Ipv6Addr::from(self.ip);
                Ok(Some(SocketAddrV6::new(ip, self.port, self.flow, self.scope).into()))
            }
            _ => Err(NoAddress),
        }
    }
}

macro_rules! conversions {
    ($side:ident) => {
        impl From<Option<SocketAddr>> for $side::AddressT {
            fn from(address: Option<SocketAddr>) -> Self {
                let Fields { ip, scope, flow, port, version } = Fields::of(address);
                Self { ip, scope, flow, port, version }
            }
        }

        impl $side::AddressT {
            /// Returns the address; `None` if it is none.
            ///
            /// # Errors
            /// [`NoAddress`]: the other side must not send that.
            pub fn socket_addr(&self) -> Result<Option<SocketAddr>, NoAddress> {
                let Self { ip, scope, flow, port, version } = *self;
                Fields { ip, scope, flow, port, version }.read()
            }
        }
    };
}

conversions!(client);
conversions!(server);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_come_back_as_they_went() {
        let all = ["192.0.2.1:7000", "[2001:db8::1]:53", "[::ffff:192.0.2.1]:1"];
        let all = all.map(|text| Some(text.parse::<SocketAddr>().unwrap()));
        let local = SocketAddrV6::new(Ipv6Addr::LOCALHOST, 9, 3, 4);
        for address in all.into_iter().chain([None, Some(local.into())]) {
            assert_eq!(client::AddressT::from(address).socket_addr(), Ok(address));
            assert_eq!(server::AddressT::from(address).socket_addr(), Ok(address));
        }
        let nonsense = client::AddressT { version: 5, ..client::AddressT::from(None) };
        assert_eq!(nonsense.socket_addr(), Err(NoAddress));
    }
}
