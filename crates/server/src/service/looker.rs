//! Who looks at what clients send: a process apart, or the server itself.
//!
//! Not here: looking (`proxy`, `identity`).

use crate::identity::Diag;
use crate::looks::Looks;
use crate::proxies::Proxies;
use std::sync::{Arc, Mutex};

/// Who looks at what clients send.
#[derive(Debug)]
pub(super) enum Looker {
    /// A process for each user, which the server does not wait for.
    Apart { proxies: Arc<Proxies>, looks: Arc<Looks> },
    /// The caller, at once: for tests without processes.
    Here(Box<Mutex<Diag>>),
}
