//! Two programs on two hosts that talk to each other until they are told to end, and the rules of
//! their hosts.
//!
//! Not here: hosts, links and sandboxes (`sojourn-lab`), and the tests.

#![allow(
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    reason = "it is for tests, which end by panicking"
)]

use crate::{Admin, LIMIT};
use sojourn_lab::control_group::ControlGroup;
use sojourn_lab::net::{End, Host, Link};
use sojourn_lab::{Mode, Running, Sandbox};
use std::time::{Duration, Instant};

/// The listener's port.
pub const PORT: u16 = 4000;

/// Gives a host rules of nft(8). Returns false, and prints the reason, if it cannot have them.
#[must_use]
pub fn rule(host: &Host, text: &str) -> bool {
    let done = host.run("nft", &[text], LIMIT);
    match done {
        Ok(done) if done.status == 0 => true,
        why => {
            eprintln!("skipped: no rules: {why:?}");
            false
        }
    }
}

/// The port and the family by which the listener is called.
#[derive(Clone, Copy, Debug)]
pub struct Called {
    /// The port that the caller calls; the listener's own is [`PORT`].
    pub port: u16,
    /// True for IPv6.
    pub is_v6: bool,
}

/// Two programs that talk to each other through `port`; the one at `accelerated` is under Sojourn.
#[derive(Debug)]
pub struct Talk {
    worlds: [Sandbox; 2],
    accelerated: End,
    running: [Running; 2],
    /// The server of the program under Sojourn.
    pub admin: Admin,
    end: String,
}

impl Talk {
    /// Starts both; the listener's program is at A.
    ///
    /// # Panics
    /// As all of this, where the lab cannot do it.
    #[must_use]
    pub fn start(link: &Link, accelerated: End, port: u16, is_v6: bool) -> Self {
        let worlds = [End::A, End::B].map(|end| Sandbox::on(link.host(end)).unwrap());
        Self::within(worlds, link, accelerated, Called { port, is_v6 })
    }

    /// Starts both in sandboxes of their own.
    #[must_use]
    pub fn within(worlds: [Sandbox; 2], link: &Link, accelerated: End, called: Called) -> Self {
        Self::start_in(worlds, link, accelerated, called, None)
    }

    /// Starts both. The listener's program starts in that control group.
    #[must_use]
    pub fn grouped(
        worlds: [Sandbox; 2],
        link: &Link,
        accelerated: End,
        called: Called,
        group: &ControlGroup,
    ) -> Self {
        Self::start_in(worlds, link, accelerated, called, Some(group))
    }

    fn start_in(
        mut worlds: [Sandbox; 2],
        link: &Link,
        accelerated: End,
        called: Called,
        group: Option<&ControlGroup>,
    ) -> Self {
        let Called { port, is_v6 } = called;
        for world in &mut worlds {
            world.set("MOVE_AFTER_CALLS", "4");
        }
        let end = worlds[0].folder().join("end").to_string_lossy().into_owned();
        let ip = if is_v6 { format!("[{}]", link.v6(End::A)) } else { link.v4(End::A).to_string() };
        let start = |at: End, role: &str, port: u16| {
            let world = &worlds[at as usize];
            let mode = if at == accelerated { Mode::Sojourn } else { Mode::Plain };
            let mut command = world.command(mode, world.built().path("lab-peer"));
            command.args([role, "tcp", &format!("{ip}:{port}"), "--until", &end]);
            if let (End::A, Some(group)) = (at, group) {
                group.place(&mut command).unwrap();
            }
            Running::start(command).unwrap()
        };
        let running = [start(End::A, "serve", PORT), start(End::B, "call", port)];
        let admin = Admin::new(&worlds[accelerated as usize]).unwrap();
        Self { worlds, accelerated, running, admin, end }
    }

    /// Returns how often sessions have moved.
    pub fn moves(&mut self) -> u64 {
        self.admin.moves().unwrap().joins
    }

    /// Waits until the server reports this reason for a session.
    pub fn wait_for_reason(&self, word: &str) {
        let world = &self.worlds[self.accelerated as usize];
        let deadline = Instant::now() + LIMIT;
        loop {
            let output = world.sojourn(&["ss", "--json"]).unwrap();
            if output.contains(&format!("\"{word}\"")) {
                return;
            }
            assert!(Instant::now() < deadline, "{word}: {output}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Returns what `sojourn ss --why` says.
    #[must_use]
    pub fn why(&self) -> String {
        self.worlds[self.accelerated as usize].sojourn(&["ss", "--why"]).unwrap()
    }

    /// Waits until there is a session that is away, or none.
    pub fn wait_until_away(&mut self, is_away: bool) {
        let deadline = Instant::now() + LIMIT;
        while self.admin.away().unwrap().is_empty() == is_away {
            assert!(Instant::now() < deadline, "away: {is_away}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Ends the conversation; both programs must have found every byte right.
    pub fn finish(self) {
        std::fs::write(&self.end, "").unwrap();
        let ended = self.running.map(|peer| peer.finish(LIMIT).unwrap());
        assert!(ended.iter().all(|peer| peer.status == 0), "{ended:#?}");
    }
}
