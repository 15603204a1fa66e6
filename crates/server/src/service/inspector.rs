//! The two ways of looking at clients' objects: in a process apart, or in the server itself.
//!
//! Not here: looking (`proxy`, `identity`).

use crate::identity::Diag;
use crate::inspections::Inspections;
use crate::proxies::Proxies;
use std::sync::{Arc, Mutex};

/// The way in which the server looks at clients' objects.
#[derive(Debug)]
pub(super) enum Inspector {
    /// A process for each user looks, and the server does not wait for it.
    Apart { proxies: Arc<Proxies>, inspections: Arc<Inspections> },
    /// The calling thread looks at once: in a server of one user's, whose programs could end it
    /// anyhow, and in tests.
    Here(Box<Mutex<Diag>>),
}
