//! Hosts and links for tests: hosts are network namespaces of this process, links join two of them.
//!
//! A [`Link`] is direct (a veth pair with its offloads) or leads through a thread of the test,
//! which applies [`Conditions`] to frames, because not every kernel has netem. Hosts further apart
//! are joined through a host that forwards ([`Host::router`]). Dropping the values removes
//! everything. Leftovers of a killed test are removed when the next test makes its first host.
//! Needs root's rights and `ip` (iproute2): see [`is_possible`].
//!
//! ```no_run
//! # use sojourn_lab::net::{Conditions, End, Host, Link};
//! # use std::time::Duration;
//! # fn main() -> anyhow::Result<()> {
//! let (a, b) = (Host::new()?, Host::new()?);
//! let delay = Duration::from_millis(5);
//! let conditions = Conditions { loss: 0.01, delay, ..Conditions::default() };
//! let link = Link::through(&a, &b, 1500, 1, conditions)?;
//! let listener = b.enter(|| std::net::TcpListener::bind((link.v4(End::B), 80)))??;
//! let mut curl = std::process::Command::new("curl");
//! a.place(&mut curl);
//! # drop(listener); Ok(()) }
//! ```

mod conditions;
mod host;
mod link;
mod namespaces;
mod packet;
mod relay;

pub use conditions::{Conditions, Counts};
pub use host::Host;
pub use link::{End, Link};
pub use namespaces::{is_possible, leftovers, sweep, sweep_own};
