//! What `idl/local.acf` names: conversions, pools, hand-written sides of operations.

use sojourn_ipc::rt;

use crate::local::{LocalClient, LocalServer, PlaceT, SpanT};

/// `user_marshal` of `span_t`: any duration that has whole seconds and nanoseconds.
pub mod span {
    use super::SpanT;
    use std::time::Duration;

    /// To the wire.
    #[must_use]
    pub fn to_wire(local: &Duration) -> SpanT {
        SpanT { seconds: local.as_secs(), nanoseconds: local.subsec_nanos() }
    }

    /// From the wire; the last second of time is refused.
    #[must_use]
    pub fn from_wire(wire: SpanT) -> Option<Duration> {
        (wire.seconds < u64::MAX).then(|| Duration::new(wire.seconds, wire.nanoseconds))
    }
}

/// `represent_as` of `place_t`. Keeps both forms, so that conversion is exact.
#[derive(Clone, Debug, PartialEq)]
pub struct Polar {
    /// Distance from the origin.
    pub distance: f64,
    exact: PlaceT,
}

impl From<&Polar> for PlaceT {
    fn from(local: &Polar) -> Self {
        local.exact
    }
}

impl From<PlaceT> for Polar {
    fn from(wire: PlaceT) -> Self {
        Self { distance: wire.x.hypot(wire.y), exact: wire }
    }
}

/// `allocate(pool)`.
pub static POOL: rt::Pool<i64> = rt::Pool::new(2);

/// `allocate(fn)`.
#[must_use]
pub fn provide(count: usize) -> Vec<i32> {
    Vec::with_capacity(count.max(64))
}

/// `impl(client)`: adds one, then asks the server by the generated stub.
///
/// # Errors
/// As the generated stub.
pub fn by_hand<T: rt::Transport>(
    client: &mut LocalClient<T>,
    a: i32,
) -> Result<i32, rt::CallError> {
    client.by_hand_generated(a + 1)
}

/// `impl(server)`.
///
/// # Errors
/// None.
pub fn server_by_hand<S: LocalServer + ?Sized>(
    _server: &S,
    _caller: &rt::Caller,
    a: i32,
) -> Result<i32, rt::Fault> {
    Ok(-a)
}
