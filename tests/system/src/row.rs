//! Two hosts with two routers between them. Not here: programs on them (`network`).

use anyhow::Result;
use sojourn_lab::net::{Conditions, End, Host, Link};
use std::net::IpAddr;

/// `a` — router — router — `b`, with routes in both directions.
#[derive(Debug)]
pub struct Row {
    /// The two hosts.
    pub ends: [Host; 2],
    /// The links, from the first host on. The one in the middle has conditions for frames.
    pub links: [Link; 3],
}

impl Row {
    /// Makes the hosts' links; `mtu` is that of the link in the middle.
    ///
    /// # Errors
    /// If they cannot be made.
    pub fn new(a: Host, b: Host, mtu: u32) -> Result<Self> {
        let routers = [Host::router()?, Host::router()?];
        let near = Link::direct(&a, &routers[0], 1500)?;
        let middle = Conditions::default();
        let middle = Link::through(&routers[0], &routers[1], mtu, 5, middle)?;
        let far = Link::direct(&routers[1], &b, 1500)?;
        for (host, link, end) in [
            (&a, &near, End::B),
            (&routers[0], &middle, End::B),
            (&routers[1], &middle, End::A),
            (&b, &far, End::A),
        ] {
            host.default_route(link.v4(end).into())?;
            host.default_route(link.v6(end).into())?;
        }
        Ok(Self { ends: [a, b], links: [near, middle, far] })
    }

    /// Returns the first host's address.
    #[must_use]
    pub fn address(&self, is_v4: bool) -> IpAddr {
        let near = &self.links[0];
        if is_v4 { near.v4(End::A).into() } else { near.v6(End::A).into() }
    }

    /// Makes both ends forget the path MTUs that they have learnt (ip-route(8), cache).
    ///
    /// # Errors
    /// If `ip` does not succeed.
    pub fn forget(&self) -> Result<()> {
        for (host, family) in self.ends.iter().flat_map(|host| [(host, "-4"), (host, "-6")]) {
            host.ip(&[family, "route", "flush", "cache"])?;
        }
        Ok(())
    }
}
