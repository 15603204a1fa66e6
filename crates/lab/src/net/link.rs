//! A link between two hosts: interfaces, addresses, and what is in the middle. What happens to
//! frames there is `conditions`.

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
    /// The first host's.
    A,
    /// The second host's.
    B,
}

impl End {
    /// The other end.
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

/// What is between the two interfaces of a link that is not direct.
#[derive(Debug)]
struct Middle {
    relay: Relay,
    /// Where the relay's ends are: no addresses, nobody answers there.
    place: Host,
}

/// A link: an interface of the same name on each of two hosts, with an IPv4 and an IPv6 address.
/// Gone when dropped.
#[derive(Debug)]
pub struct Link {
    hosts: [Host; 2],
    number: u16,
    interface: String,
    middle: Option<Middle>,
}

impl Link {
    /// A veth pair with all its offloads: as fast as the kernel can, nothing is done to frames.
    ///
    /// # Errors
    /// If the interfaces cannot be made.
    pub fn direct(a: &Host, b: &Host, mtu: u32) -> Result<Self> {
        let link = Self::new(a, b);
        let name = link.interface();
        make_pair((a, name, &link.mac(End::A)), (b, name, &link.mac(End::B)), mtu)?;
        link.configure()?;
        Ok(link)
    }

    /// Two veth pairs, and between them a thread that does to the frames of both directions what
    /// `conditions` says, by chances from `seed`. The hosts' ends do no checksum and segmentation
    /// offload: frames are packets as on a wire. No VLAN tags.
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
            make_pair((host, name, &mac), (&place, inner, "02:6c:61:62:00:00"), mtu)?;
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

    /// Addresses, and up.
    fn configure(&self) -> Result<()> {
        for end in [End::A, End::B] {
            let (host, name) = (self.host(end), self.interface());
            let (v4, v6) = (format!("{}/24", self.v4(end)), format!("{}/64", self.v6(end)));
            host.ip(&["address", "add", &v4, "dev", name])?;
            // Duplicates are not looked for: the address is usable at once. It survives a carrier
            // that is lost.
            host.ip(&["address", "add", &v6, "dev", name, "nodad"])?;
            host.ip(&["link", "set", "dev", name, "up"])?;
        }
        Ok(())
    }

    /// The host at an end.
    #[must_use]
    pub fn host(&self, end: End) -> &Host {
        &self.hosts[end.index()]
    }

    /// The name of the interface at either end.
    #[must_use]
    pub fn interface(&self) -> &str {
        &self.interface
    }

    /// The IPv4 address at an end; the network has 24 bits.
    #[must_use]
    pub fn v4(&self, end: End) -> Ipv4Addr {
        let [high, low] = self.number.to_be_bytes();
        Ipv4Addr::new(10, high, low, 1 + end.index() as u8)
    }

    /// The IPv6 address at an end; the network has 64 bits.
    #[must_use]
    pub fn v6(&self, end: End) -> Ipv6Addr {
        Ipv6Addr::new(0xfd6c, 0x6162, 0, self.number, 0, 0, 0, 1 + end.index() as u16)
    }

    /// The link address at an end.
    #[must_use]
    pub fn mac(&self, end: End) -> String {
        let [high, low] = self.number.to_be_bytes();
        format!("02:6c:61:{high:02x}:{low:02x}:{:02x}", 1 + end.index())
    }

    fn middle(&self) -> Result<&Middle> {
        self.middle.as_ref().context("a direct link has nothing in its middle")
    }

    /// Sets what is done from now on to frames that come from `from`'s host.
    ///
    /// # Errors
    /// For a direct link.
    pub fn set_conditions(&self, from: End, conditions: Conditions) -> Result<()> {
        self.middle()?.relay.set_conditions(from.index(), conditions);
        Ok(())
    }

    /// What was done so far to frames that come from `from`'s host.
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

    /// Changes how long packets may be, at both ends and in the middle.
    ///
    /// # Errors
    /// If the interfaces cannot do that.
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
        // First the thread, which would see its interfaces go.
        self.middle = None;
        for host in &self.hosts {
            // Of a direct link the second is gone with the first.
            let _ = host.ip(&["link", "delete", "dev", self.interface()]);
        }
    }
}

/// Makes a veth pair: host, interface name and link address of either end.
fn make_pair(a: (&Host, &str, &str), b: (&Host, &str, &str), mtu: u32) -> Result<()> {
    let mtu = mtu.to_string();
    let mut words = vec!["link", "add", a.1, "netns", a.0.name(), "address", a.2, "mtu", &mtu];
    words.extend(["type", "veth", "peer", "name", b.1, "netns", b.0.name()]);
    words.extend(["address", b.2, "mtu", &mtu]);
    ip(&words).map(drop)
}
