//! The encoding of a session record's values: little-endian, without padding, in the order of
//! declaration.
//!
//! The `record!` macro declares a structure and its encoding in one place, so that the two cannot
//! disagree. Not here: the meaning of the fields (`record`, `record_tcp`, `record_udp`).
//! `docs/reference/session-record.md` draws the bytes.

use crate::record_error::RecordError;
use crate::time::Duration;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

/// The most bytes that one queue of a record may hold.
pub(crate) const QUEUE_MAX: usize = 64 << 20;

/// What takes encoded bytes, piece by piece.
pub(crate) type Output<'a> = dyn FnMut(&[u8]) + 'a;

/// A value with an encoding.
pub(crate) trait Field: Sized {
    /// Passes the value's bytes on.
    fn put(&self, out: &mut Output<'_>);
    /// Reads the value from the front of the remaining bytes.
    fn take(reader: &mut Reader<'_>) -> Result<Self, RecordError>;
}

/// The remaining bytes of a record that is being decoded.
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes }
    }

    /// Returns the next `count` bytes.
    pub(crate) fn bytes(&mut self, count: usize) -> Result<&'a [u8], RecordError> {
        let (front, rest) = self.rest.split_at_checked(count).ok_or(RecordError::Truncated)?;
        self.rest = rest;
        Ok(front)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], RecordError> {
        let mut array = [0; N];
        array.copy_from_slice(self.bytes(N)?);
        Ok(array)
    }

    /// Fails if bytes remain.
    pub(crate) fn finish(self) -> Result<(), RecordError> {
        if self.rest.is_empty() { Ok(()) } else { Err(RecordError::Excess) }
    }
}

macro_rules! number_fields {
    ($($number:ty),*) => { $(
        impl Field for $number {
            fn put(&self, out: &mut Output<'_>) {
                out(&self.to_le_bytes());
            }

            fn take(reader: &mut Reader<'_>) -> Result<Self, RecordError> {
                Ok(<$number>::from_le_bytes(reader.array()?))
            }
        }
    )* };
}

number_fields!(u8, u16, u32, u64);

impl Field for bool {
    fn put(&self, out: &mut Output<'_>) {
        out(&[u8::from(*self)]);
    }

    fn take(reader: &mut Reader<'_>) -> Result<Self, RecordError> {
        match u8::take(reader)? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(RecordError::Value("a truth value is neither 0 nor 1")),
        }
    }
}

impl Field for Duration {
    fn put(&self, out: &mut Output<'_>) {
        self.as_micros().put(out);
    }

    fn take(reader: &mut Reader<'_>) -> Result<Self, RecordError> {
        Ok(Duration::from_micros(u64::take(reader)?))
    }
}

impl<const N: usize> Field for [u8; N] {
    fn put(&self, out: &mut Output<'_>) {
        out(self);
    }

    fn take(reader: &mut Reader<'_>) -> Result<Self, RecordError> {
        reader.array()
    }
}

impl Field for Vec<u8> {
    fn put(&self, out: &mut Output<'_>) {
        (self.len() as u32).put(out);
        out(self);
    }

    fn take(reader: &mut Reader<'_>) -> Result<Self, RecordError> {
        let count = u32::take(reader)? as usize;
        if count > QUEUE_MAX {
            return Err(RecordError::Value("a queue is longer than 64 MiB"));
        }
        Ok(reader.bytes(count)?.to_vec())
    }
}

/// Passes a list on: its length in 32 bits, then its items. Each item takes at least a byte, so a
/// forged length cannot cause more memory to be used than there are bytes.
pub(crate) fn put_list<T: Field>(list: &[T], out: &mut Output<'_>) {
    (list.len() as u32).put(out);
    for item in list {
        item.put(out);
    }
}

/// Reads a list that `put_list` wrote.
pub(crate) fn take_list<T: Field>(reader: &mut Reader<'_>) -> Result<Vec<T>, RecordError> {
    let count = u32::take(reader)?;
    let mut list = Vec::new();
    for _ in 0..count {
        list.push(T::take(reader)?);
    }
    Ok(list)
}

/// An endpoint is encoded as family (4 or 6), port, flow information, scope, and 16 bytes of
/// address of which IPv4 uses the first four.
impl Field for SocketAddr {
    fn put(&self, out: &mut Output<'_>) {
        let (family, address, flow, scope) = match self {
            SocketAddr::V4(v4) => {
                let mut address = [0; 16];
                address[..4].copy_from_slice(&v4.ip().octets());
                (4u8, address, 0, 0)
            }
            SocketAddr::V6(v6) => (6, v6.ip().octets(), v6.flowinfo(), v6.scope_id()),
        };
        family.put(out);
        self.port().put(out);
        flow.put(out);
        scope.put(out);
        address.put(out);
    }

    fn take(reader: &mut Reader<'_>) -> Result<Self, RecordError> {
        let family = u8::take(reader)?;
        let (port, flow, scope) = (u16::take(reader)?, u32::take(reader)?, u32::take(reader)?);
        let bytes: [u8; 16] = reader.array()?;
        match family {
            4 => {
                let [a, b, c, d, rest @ ..] = bytes;
                if rest != [0; 12] || flow != 0 || scope != 0 {
                    return Err(RecordError::Value("an IPv4 endpoint has more than IPv4 has"));
                }
                Ok(SocketAddr::new(IpAddr::V4(Ipv4Addr::new(a, b, c, d)), port))
            }
            6 => Ok(SocketAddr::V6(SocketAddrV6::new(
                Ipv6Addr::from_octets(bytes),
                port,
                flow,
                scope,
            ))),
            _ => Err(RecordError::Value("an endpoint is neither IPv4 nor IPv6")),
        }
    }
}

/// An address is encoded as family (4 or 6) and 16 bytes of which IPv4 uses the first four.
impl Field for IpAddr {
    fn put(&self, out: &mut Output<'_>) {
        let (family, address) = match self {
            IpAddr::V4(v4) => {
                let mut address = [0; 16];
                address[..4].copy_from_slice(&v4.octets());
                (4u8, address)
            }
            IpAddr::V6(v6) => (6, v6.octets()),
        };
        family.put(out);
        address.put(out);
    }

    fn take(reader: &mut Reader<'_>) -> Result<Self, RecordError> {
        let family = u8::take(reader)?;
        let bytes: [u8; 16] = reader.array()?;
        match (family, bytes) {
            (4, [a, b, c, d, rest @ ..]) if rest == [0; 12] => {
                Ok(IpAddr::V4(Ipv4Addr::new(a, b, c, d)))
            }
            (6, _) => Ok(IpAddr::V6(Ipv6Addr::from_octets(bytes))),
            _ => Err(RecordError::Value("an address is neither IPv4 nor IPv6")),
        }
    }
}

/// `None` is encoded as a byte 0, `Some` as a byte 1 and the value.
impl<T: Field> Field for Option<T> {
    fn put(&self, out: &mut Output<'_>) {
        self.is_some().put(out);
        if let Some(value) = self {
            value.put(out);
        }
    }

    fn take(reader: &mut Reader<'_>) -> Result<Self, RecordError> {
        Ok(if bool::take(reader)? { Some(T::take(reader)?) } else { None })
    }
}

/// Declares a structure whose encoding is its fields in the order of declaration.
macro_rules! record {
    ($(#[$meta:meta])* pub struct $name:ident {
        $($(#[$field_meta:meta])* pub $field:ident: $kind:ty,)*
    }) => {
        $(#[$meta])*
        pub struct $name {
            $($(#[$field_meta])* pub $field: $kind,)*
        }

        impl $crate::record_codec::Field for $name {
            fn put(&self, out: &mut $crate::record_codec::Output<'_>) {
                $($crate::record_codec::Field::put(&self.$field, out);)*
            }

            fn take(
                reader: &mut $crate::record_codec::Reader<'_>,
            ) -> Result<Self, $crate::record::RecordError> {
                Ok($name { $($field: $crate::record_codec::Field::take(reader)?,)* })
            }
        }
    };
}

/// Declares an enum that is one byte in a record.
macro_rules! record_enum {
    ($(#[$meta:meta])* pub enum $name:ident, $error:literal {
        $($(#[$variant_meta:meta])* $variant:ident = $value:literal,)*
    }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum $name {
            $($(#[$variant_meta])* $variant = $value,)*
        }

        impl $name {
            /// Every value, in the order of declaration.
            pub const ALL: &'static [$name] = &[$($name::$variant,)*];
        }

        impl $crate::record_codec::Field for $name {
            fn put(&self, out: &mut $crate::record_codec::Output<'_>) {
                out(&[*self as u8]);
            }

            fn take(
                reader: &mut $crate::record_codec::Reader<'_>,
            ) -> Result<Self, $crate::record::RecordError> {
                match <u8 as $crate::record_codec::Field>::take(reader)? {
                    $($value => Ok($name::$variant),)*
                    _ => Err($crate::record::RecordError::Value($error)),
                }
            }
        }
    };
}

pub(crate) use {record, record_enum};
