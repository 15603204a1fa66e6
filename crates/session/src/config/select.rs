//! Lists that say what may move: ports, addresses, programs.
//!
//! All are written alike: entries between commas, `!` before one that is left to the kernel. If any
//! entry is without `!`, only what such an entry names may move; `!` wins. Not here: who asks.

use std::fmt::{self, Display};
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// Entries that may move, and entries that may not.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Select<T> {
    only: Vec<T>,
    leave: Vec<T>,
}

impl<T> Default for Select<T> {
    fn default() -> Self {
        Self { only: Vec::new(), leave: Vec::new() }
    }
}

impl<T> Select<T> {
    fn allows(&self, is_it: impl Fn(&T) -> bool) -> bool {
        !self.leave.iter().any(&is_it) && (self.only.is_empty() || self.only.iter().any(&is_it))
    }

    fn parse(text: &str, entry: impl Fn(&str) -> Result<T, String>) -> Result<Self, String> {
        let mut select = Self::default();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            match part.strip_prefix('!') {
                Some(part) => select.leave.push(entry(part.trim())?),
                None => select.only.push(entry(part)?),
            }
        }
        Ok(select)
    }

    fn show(&self, f: &mut fmt::Formatter<'_>, entry: impl Fn(&T) -> String) -> fmt::Result {
        let leave = self.leave.iter().map(|item| format!("!{}", entry(item)));
        let all: Vec<_> = self.only.iter().map(&entry).chain(leave).collect();
        f.write_str(&all.join(","))
    }
}

/// Ports and ranges of ports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ports(Select<RangeInclusive<u16>>);

impl Ports {
    /// Whether a connection between these two ports may move: neither is left to the kernel, and
    /// one of them is among those named, if any are.
    #[must_use]
    pub fn allow(&self, a: u16, b: u16) -> bool {
        let either = |range: &RangeInclusive<u16>| range.contains(&a) || range.contains(&b);
        self.0.allows(either)
    }
}

impl FromStr for Ports {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let port = |text: &str| {
            text.trim().parse::<u16>().map_err(|_| format!("`{text}` is not a port (0-65535)"))
        };
        let range = |text: &str| {
            let (first, last) = text.split_once('-').unwrap_or((text, text));
            let range = port(first)?..=port(last)?;
            if range.is_empty() {
                return Err(format!("`{text}` ends before it begins"));
            }
            Ok(range)
        };
        Select::parse(text, range).map(Self)
    }
}

impl Display for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.show(f, |range| match (range.start(), range.end()) {
            (first, last) if first == last => first.to_string(),
            (first, last) => format!("{first}-{last}"),
        })
    }
}

/// An address and how many of its leading bits count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    address: IpAddr,
    bits: u8,
}

impl Prefix {
    /// Whether the address lies within; IPv4 addresses mapped into IPv6 count as IPv4.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                leading(u32::from(own).into(), self.bits, 32)
                    == leading(u32::from(other).into(), self.bits, 32)
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                leading(own.into(), self.bits, 128) == leading(other.into(), self.bits, 128)
            }
            _ => false,
        }
    }
}

fn leading(address: u128, bits: u8, width: u32) -> u128 {
    address.checked_shr(width - u32::from(bits)).unwrap_or(0)
}

impl FromStr for Prefix {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address: IpAddr = address
            .trim()
            .parse()
            .map_err(|_| format!("`{text}` is not an address or prefix (such as 10.0.0.0/8)"))?;
        let width: u8 = if address.is_ipv4() { 32 } else { 128 };
        let bits = match bits {
            None => width,
            Some(bits) => bits
                .trim()
                .parse()
                .ok()
                .filter(|bits| *bits <= width)
                .ok_or_else(|| format!("`{text}`: at most {width} bits after the slash"))?,
        };
        Ok(Self { address, bits })
    }
}

impl Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

/// Prefixes of addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Addresses(Select<Prefix>);

impl Addresses {
    /// Whether a connection to this address may move.
    #[must_use]
    pub fn allow(&self, address: IpAddr) -> bool {
        self.0.allows(|prefix| prefix.contains(address))
    }
}

impl FromStr for Addresses {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Select::parse(text, str::parse).map(Self)
    }
}

impl Display for Addresses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.show(f, Prefix::to_string)
    }
}

/// Names of programs, as the last part of their path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Programs(Select<String>);

impl Programs {
    /// Whether a program that has these names may have sessions of its moved; a path counts by its
    /// last part.
    #[must_use]
    pub fn allow(&self, names: &[&str]) -> bool {
        let last = |path: &str| path.rsplit('/').next().unwrap_or_default().to_owned();
        let names: Vec<String> = names.iter().copied().map(last).collect();
        self.0.allows(|entry| names.contains(entry))
    }
}

impl FromStr for Programs {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let name = |text: &str| match text.rsplit('/').next() {
            Some(name) if !name.is_empty() => Ok(name.to_owned()),
            _ => Err(format!("`{text}` names no program")),
        };
        Select::parse(text, name).map(Self)
    }
}

impl Display for Programs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.show(f, String::clone)
    }
}
