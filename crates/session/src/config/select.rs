//! Lists that select the sessions that may move: ports, addresses, programs.
//!
//! All lists have the same syntax: entries separated by commas, with `!` before an entry that is
//! left to the kernel. If a list has an entry without `!`, only sessions that match such an entry
//! may move. An entry with `!` wins over one without. Not here: the callers of the checks.

use std::fmt::{self, Display};
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// Entries that select, and entries that exclude.
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

/// List of ports and ranges of ports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ports(Select<RangeInclusive<u16>>);

impl Ports {
    /// Returns true if a session between these two ports may move.
    ///
    /// That holds if neither port is excluded and, in a list with selecting entries, at least one
    /// of the two is selected.
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

/// Prefix of addresses: an address and the number of its leading bits that are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    address: IpAddr,
    bits: u8,
}

impl Prefix {
    /// Returns true if the address has this prefix. An IPv4-mapped IPv6 address counts as IPv4.
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

/// List of prefixes of addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Addresses(Select<Prefix>);

impl Addresses {
    /// Returns true if a session with this remote address may move.
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

/// List of names of programs, each the last component of a path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Programs(Select<String>);

impl Programs {
    /// Returns true if sessions of a program with these names may move. Of a path only the last
    /// component is compared.
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
