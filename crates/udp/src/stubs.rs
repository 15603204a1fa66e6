//! The stubs of both sides, as the build script has them generated.

/// Endpoints, as the standard library has them.
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

/// What a server needs: a receiver is answered later.
pub(crate) mod server {
    include!(concat!(env!("OUT_DIR"), "/server/udp.rs"));
    endpoints!();
}

/// What a client needs: data goes into its own buffer.
pub(crate) mod client {
    include!(concat!(env!("OUT_DIR"), "/client/udp.rs"));
    endpoints!();
}
