//! A link between two hosts: interfaces, addresses, and the relay between them. Not here: the
//! effect of the relay on frames (`conditions`).

use super::Host;
use super::conditions::{Conditions, Counts};
use super::namespaces::ip;
use super::packet::{PacketSocket, offloads_off};
use super::relay::Relay;
use anyhow::{Context, Result};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicU16, Ordering};

/// The relay's interfaces, towards the first host and towards the second.
const INNER: [&str; 2] = ["toward-a", "toward-b"];

/// One of the two ends of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The end at the first host.
    A,
    /// The end at the second host.
    B,
}

impl End {
    /// Returns the other end.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::A => Self::B,
            Self::B => Self::A,
        }
    }

    const fn index(self) -> usize {
        self as usize
    }
}

/// The relay of a link that is not direct, and its host.
#[derive(Debug)]
struct Middle {
    relay: Relay,
    /// The host with the relay's interfaces. It has no addresses, so nothing there answers.
    place: Host,
}

/// A link: an interface of the same name on each of two hosts, with an IPv4 and an IPv6 address.
/// Drop removes it.
#[derive(Debug)]
pub struct Link {
    hosts: [Host; 2],
    number: u16,
    interface: String,
    middle: Option<Middle>,
}

impl Link {
    /// Makes a veth pair (veth(4)) with all its offloads: as fast as the kernel can be, with frames
    /// left as they are.
    ///
    /// # Errors
    /// If the interfaces cannot be made.
    pub fn direct(a: &Host, b: &Host, mtu: u32) -> Result<Self> {
        let link = Self::new(a, b);
        let name = link.interface();
        let [mac_a, mac_b] = [End::A, End::B].map(|end| link.mac(end));
        let (a, b) =
            (PairEnd { host: a, name, mac: &mac_a }, PairEnd { host: b, name, mac: &mac_b });
        make_pair(&a, &b, mtu)?;
        link.configure()?;
        Ok(link)
    }

    /// Makes two veth pairs, and a thread between them that applies `conditions` to the frames of
    /// both directions, with random numbers from `seed`. The hosts' interfaces do no checksum and
    /// segmentation offload, so that frames are packets as on a wire. Frames have no VLAN tags.
    ///
    /// # Errors
    /// If interfaces or sockets cannot be made.
    pub fn through(
        a: &Host,
        b: &Host,
        mtu: u32,
        seed: u64,
        conditions: Conditions,
    ) -> Result<Self> {
        let mut link = Self::new(a, b);
        let place = Host::new()?;
        place.set("ipv6/conf/default/disable_ipv6", "1")?;
        let name = link.interface();
        for (host, end, inner) in [(a, End::A, INNER[0]), (b, End::B, INNER[1])] {
            let mac = link.mac(end);
            let between = PairEnd { host: &place, name: inner, mac: "02:6c:61:62:00:00" };
            make_pair(&PairEnd { host, name, mac: &mac }, &between, mtu)?;
            host.enter(|| offloads_off(name))??;
            place.ip(&["link", "set", "dev", inner, "up"])?;
        }
        let ends = place.enter(|| {
            Ok::<_, anyhow::Error>([PacketSocket::open(INNER[0])?, PacketSocket::open(INNER[1])?])
        })??;
        link.middle = Some(Middle { relay: Relay::start(ends, seed, conditions)?, place });
        link.configure()?;
        Ok(link)
    }

    fn new(a: &Host, b: &Host) -> Self {
        static NEXT: AtomicU16 = AtomicU16::new(1);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let hosts = [a.clone(), b.clone()];
        Self { hosts, number, interface: format!("link{number}"), middle: None }
    }

    /// Gives both interfaces their addresses and sets them up.
    fn configure(&self) -> Result<()> {
        for end in [End::A, End::B] {
            let (host, name) = (self.host(end), self.interface());
            let (v4, v6) = (format!("{}/24", self.v4(end)), format!("{}/64", self.v6(end)));
            host.ip(&["address", "add", &v4, "dev", name])?;
            // Without duplicate address detection (RFC 4862, section 5.4) the address is usable at
            // once, and it survives a lost carrier.
            host.ip(&["address", "add", &v6, "dev", name, "nodad"])?;
            host.ip(&["link", "set", "dev", name, "up"])?;
        }
        Ok(())
    }

    /// Returns the host at an end.
    #[must_use]
    pub fn host(&self, end: End) -> &Host {
        &self.hosts[end.index()]
    }

    /// Returns the name of the interface, which is the same at both ends.
    #[must_use]
    pub fn interface(&self) -> &str {
        &self.interface
    }

    /// Returns the IPv4 address at an end; the network's prefix has 24 bits.
    #[must_use]
    pub fn v4(&self, end: End) -> Ipv4Addr {
        let [high, low] = self.number.to_be_bytes();
        Ipv4Addr::new(10, high, low, 1 + end.index() as u8)
    }

    /// Returns the IPv6 address at an end; the network's prefix has 64 bits.
    #[must_use]
    pub fn v6(&self, end: End) -> Ipv6Addr {
        Ipv6Addr::new(0xfd6c, 0x6162, 0, self.number, 0, 0, 0, 1 + end.index() as u16)
    }

    /// Returns the link address at an end.
    #[must_use]
    pub fn mac(&self, end: End) -> String {
        let [high, low] = self.number.to_be_bytes();
        format!("02:6c:61:{high:02x}:{low:02x}:{:02x}", 1 + end.index())
    }

    fn middle(&self) -> Result<&Middle> {
        self.middle.as_ref().context("a direct link has nothing in its middle")
    }

    /// Sets the conditions for frames that `from`'s host sends from now on.
    ///
    /// # Errors
    /// For a direct link.
    pub fn set_conditions(&self, from: End, conditions: Conditions) -> Result<()> {
        self.middle()?.relay.set_conditions(from.index(), conditions);
        Ok(())
    }

    /// Returns the counters of the frames that `from`'s host has sent so far.
    ///
    /// # Errors
    /// For a direct link.
    pub fn counts(&self, from: End) -> Result<Counts> {
        Ok(self.middle()?.relay.counts(from.index()))
    }

    /// Takes the carrier away from both hosts' interfaces, as when a cable is pulled, or gives it
    /// back.
    ///
    /// # Errors
    /// For a direct link.
    pub fn set_carrier(&self, is_up: bool) -> Result<()> {
        let state = if is_up { "up" } else { "down" };
        for inner in INNER {
            self.middle()?.place.ip(&["link", "set", "dev", inner, state])?;
        }
        Ok(())
    }

    /// Changes the MTU, at both ends and at the relay.
    ///
    /// # Errors
    /// If the interfaces cannot have this MTU.
    pub fn set_mtu(&self, mtu: u32) -> Result<()> {
        let mtu = mtu.to_string();
        for host in &self.hosts {
            host.ip(&["link", "set", "dev", self.interface(), "mtu", &mtu])?;
        }
        for inner in INNER {
            if let Some(middle) = &self.middle {
                middle.place.ip(&["link", "set", "dev", inner, "mtu", &mtu])?;
            }
        }
        Ok(())
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // The thread ends first, because it would fail when its interfaces go.
        self.middle = None;
        for host in &self.hosts {
            // The second delete fails on a direct link: a veth pair goes with either of its
            // interfaces.
            let _ = host.ip(&["link", "delete", "dev", self.interface()]);
        }
    }
}

/// An end of a veth pair.
struct PairEnd<'a> {
    host: &'a Host,
    /// The interface's name.
    name: &'a str,
    /// Its link address.
    mac: &'a str,
}

/// Makes a veth pair.
fn make_pair(a: &PairEnd<'_>, b: &PairEnd<'_>, mtu: u32) -> Result<()> {
    let mtu = mtu.to_string();
    let mut words = vec!["link", "add", a.name, "netns", a.host.name(), "address", a.mac];
    words.extend(["mtu", &mtu, "type", "veth", "peer", "name", b.name, "netns", b.host.name()]);
    words.extend(["address", b.mac, "mtu", &mtu]);
    ip(&words).map(drop)
}
