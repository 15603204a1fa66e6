//! What an ACF says of waiting, seen from outside: a server that looks whether its caller sleeps.
//!
//! Callers are processes of one thread, so that the kernel's word on the process is its word on the
//! waiter. The Rust caller is here, the C one in `c/waits.c`; `tests/waits.rs` starts them.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use sojourn_ipc::{Connection, Wait, rt};

use crate::generated::waits;
use crate::limits::{Failure, soon};

/// What a fault of these tests says: the first code of the user's own.
const REFUSED: rt::Fault = rt::Fault(0x1000);

/// How long a caller that should sleep may take to do so.
const ASLEEP: Duration = Duration::from_secs(10);
/// How long a caller that should not is watched. One that sleeps does so within microseconds.
const AWAKE: Duration = Duration::from_millis(60);

/// Looks at its callers.
#[derive(Debug, Default)]
pub struct Watcher {
    /// Never answered while the caller waits.
    kept: Mutex<Vec<waits::WaitsUnansweredDeferredReply>>,
}

/// Whether the caller is seen asleep within `limit`.
fn sleeps(caller: &rt::Caller, limit: Duration) -> Result<bool, rt::Fault> {
    let path = format!("/proc/{}/stat", caller.credentials.pid);
    let until = Instant::now() + limit;
    while Instant::now() < until {
        let stat = std::fs::read_to_string(&path).map_err(|_| rt::Fault::NO_RESOURCES)?;
        // The state follows the name, which stands in brackets and may hold any others.
        let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
        if state == Some('S') {
            return Ok(true);
        }
        std::thread::yield_now();
    }
    Ok(false)
}

impl waits::WaitsServer for Watcher {
    fn parked(&self, caller: &rt::Caller) -> Result<bool, rt::Fault> {
        sleeps(caller, ASLEEP)
    }

    fn spun(&self, caller: &rt::Caller) -> Result<bool, rt::Fault> {
        sleeps(caller, AWAKE)
    }

    fn bounded(&self, caller: &rt::Caller) -> Result<bool, rt::Fault> {
        sleeps(caller, ASLEEP)
    }

    fn as_connected(&self, caller: &rt::Caller) -> Result<bool, rt::Fault> {
        sleeps(caller, AWAKE)
    }

    fn refused(&self, _: &rt::Caller) -> Result<bool, rt::Fault> {
        Err(REFUSED)
    }

    fn unanswered(&self, _: &rt::Caller, reply: waits::WaitsUnansweredDeferredReply) {
        self.kept.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(reply);
    }
}

/// Says what is wrong unless all is well.
fn ensure(is_so: bool, what: &str) -> Result<(), Failure> {
    if is_so { Ok(()) } else { Err(what.into()) }
}

/// The connection waits as it was told to.
fn is_as_before(client: &mut waits::WaitsClient<Connection>, after: &str) -> Result<(), Failure> {
    let wait = client.transport().set_wait(Wait::Spin(None));
    ensure(wait == Wait::Spin(None), &format!("{after} leaves {wait:?}"))?;
    ensure(!client.as_connected()?, &format!("asleep after {after}"))
}

/// Calls every operation on a connection that spins and in the end on one that sleeps.
///
/// # Errors
/// Which call waited in another way than it must.
pub(crate) fn drive(mut connection: Connection) -> Result<(), Failure> {
    connection.set_wait(waits::waits_connect_options().wait);
    let mut client = waits::WaitsClient::bind_by(connection, soon())?;
    is_as_before(&mut client, "binding")?;
    ensure(client.parked()?, "parked() spins")?;
    is_as_before(&mut client, "parked()")?;
    ensure(client.bounded()?, "bounded() spins without bound")?;
    is_as_before(&mut client, "bounded()")?;
    let refused = client.refused();
    ensure(refused == Err(rt::CallError::Fault(REFUSED)), "refused() is not")?;
    is_as_before(&mut client, "a fault")?;
    ensure(client.unanswered() == Err(rt::CallError::Timeout), "unanswered() is answered")?;
    is_as_before(&mut client, "a deadline")?;
    client.transport().set_wait(Wait::Park);
    ensure(!client.spun()?, "spun() sleeps")?;
    ensure(client.transport().set_wait(Wait::Park) == Wait::Park, "spun() leaves another way")
}
