//! The stubs of both sides, which the build script generates.

/// Defines conversions between the interface's endpoints and those of the standard library.
macro_rules! endpoints {
    () => {
        impl From<std::net::SocketAddrV4> for EndpointT {
            fn from(from: std::net::SocketAddrV4) -> Self {
                Self { address: from.ip().octets(), port: from.port() }
            }
        }

        impl From<&EndpointT> for std::net::SocketAddrV4 {
            fn from(from: &EndpointT) -> Self {
                Self::new(from.address.into(), from.port)
            }
        }
    };
}

/// The server's stubs: a receiver is answered later.
pub(crate) mod server {
    include!(concat!(env!("OUT_DIR"), "/server/udp.rs"));
    endpoints!();
}

/// The client's stubs: data goes into the client's own buffer.
pub(crate) mod client {
    include!(concat!(env!("OUT_DIR"), "/client/udp.rs"));
    endpoints!();
}
