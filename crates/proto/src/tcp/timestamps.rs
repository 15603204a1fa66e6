//! The timestamps option of one connection (RFC 7323, 3 to 5): this end's clock, the peer's last
//! value, and the protection against wrapped sequence numbers (PAWS).
//!
//! Not here: round-trip times (`rtt`), which are computed from echoes that [`Stamps::echo_time`]
//! converts to the engine's time.

use crate::record::{TimestampUnit, TimestampsRecord};
use crate::time::{Duration, Instant};

/// The age from which `TS.Recent` is invalid (RFC 7323, 5.5).
const RECENT_AGE_MAX: Duration = Duration::from_secs(24 * 24 * 3_600);

/// A connection's timestamps.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stamps {
    unit: TimestampUnit,
    /// The difference between `TSval` and the engine's time in ticks.
    offset: u32,
    recent: u32,
    recent_at: Option<Instant>,
}

impl Stamps {
    pub(super) fn import(record: &TimestampsRecord, now: Instant) -> Stamps {
        let mut stamps = Stamps {
            unit: record.unit,
            offset: 0,
            recent: record.recent,
            recent_at: record.recent_valid.then(|| now - record.recent_age),
        };
        stamps.offset = record.value.wrapping_sub(stamps.value(now));
        stamps
    }

    pub(super) fn export(&self, now: Instant) -> TimestampsRecord {
        TimestampsRecord {
            unit: self.unit,
            value: self.value(now),
            recent: self.recent,
            recent_age: self.recent_at.map_or(Duration::ZERO, |at| now.since(at)),
            recent_valid: self.recent_at.is_some(),
        }
    }

    /// Returns the length of a tick.
    pub(super) fn tick(&self) -> Duration {
        match self.unit {
            TimestampUnit::Milliseconds => Duration::from_millis(1),
            TimestampUnit::Microseconds => Duration::from_micros(1),
        }
    }

    /// Returns the unit of the clock.
    pub(super) fn unit(&self) -> TimestampUnit {
        self.unit
    }

    /// Returns this end's `TSval` at `now`.
    pub(super) fn value(&self, now: Instant) -> u32 {
        (self.ticks(now) as u32).wrapping_add(self.offset)
    }

    /// Returns the `TSecr` to send.
    pub(super) fn recent(&self) -> u32 {
        self.recent
    }

    fn ticks(&self, now: Instant) -> u64 {
        now.as_micros() / self.tick().as_micros()
    }

    /// Returns the time at which this end's clock showed `echo`, rounded down to a tick; `None` if
    /// that time is in the future or before the origin of the engine's time.
    pub(super) fn echo_time(&self, now: Instant, echo: u32) -> Option<Instant> {
        let ago = self.value(now).wrapping_sub(echo);
        if echo == 0 || ago > i32::MAX as u32 {
            return None;
        }
        let ticks = self.ticks(now).checked_sub(u64::from(ago))?;
        Some(Instant::from_micros(ticks * self.tick().as_micros()))
    }

    /// Returns true if `value` is older than `TS.Recent` (RFC 7323, 5.3, R1). As in Linux, one tick
    /// back is allowed (`TCP_PAWS_WINDOW`).
    pub(super) fn is_old(&self, now: Instant, value: u32) -> bool {
        let Some(at) = self.recent_at else { return false };
        let behind = self.recent.wrapping_sub(value).cast_signed();
        behind > 1 && now.since(at) < RECENT_AGE_MAX
    }

    /// Returns the number of ticks by which `value` is older than `TS.Recent`.
    pub(super) fn behind(&self, value: u32) -> i32 {
        self.recent.wrapping_sub(value).cast_signed()
    }

    /// Updates `TS.Recent` with the value of an acceptable segment that begins at or before the
    /// last acknowledgement sent (RFC 7323, 4.3).
    pub(super) fn update(&mut self, now: Instant, value: u32) {
        let newer = value.wrapping_sub(self.recent).cast_signed() >= 0;
        let aged = self.recent_at.is_none_or(|at| now.since(at) >= RECENT_AGE_MAX);
        if newer || aged {
            self.recent = value;
            self.recent_at = Some(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamps(unit: TimestampUnit, value: u32, now: Instant) -> Stamps {
        let record = TimestampsRecord {
            unit,
            value,
            recent: 100,
            recent_age: Duration::ZERO,
            recent_valid: true,
        };
        Stamps::import(&record, now)
    }

    #[test]
    fn the_clock_goes_on_where_the_record_ended() {
        let now = Instant::from_micros(123_456);
        let stamps = stamps(TimestampUnit::Milliseconds, u32::MAX, now);
        assert_eq!(stamps.value(now), u32::MAX);
        assert_eq!(stamps.value(now + Duration::from_millis(2)), 1);
        assert_eq!(stamps.export(now).value, u32::MAX);
    }

    #[test]
    fn an_echo_is_a_time_of_this_clock() {
        let now = Instant::from_micros(50_000);
        let stamps = stamps(TimestampUnit::Microseconds, 7, now);
        assert_eq!(
            stamps.echo_time(now, 7u32.wrapping_sub(30)),
            Some(now - Duration::from_micros(30))
        );
        assert_eq!(stamps.echo_time(now, 8), None, "not yet sent");
        assert_eq!(stamps.echo_time(now, 0), None, "no echo");
        assert_eq!(stamps.echo_time(now, 7u32.wrapping_sub(50_001)), None, "before time began");
    }

    #[test]
    fn old_values_are_old_until_they_are_very_old() {
        let now = Instant::from_micros(1);
        let mut stamps = stamps(TimestampUnit::Milliseconds, 0, now);
        assert!(!stamps.is_old(now, 99), "one tick back");
        assert!(stamps.is_old(now, 98));
        assert!(!stamps.is_old(now + RECENT_AGE_MAX, 98), "RFC 7323, 5.5");
        stamps.update(now, 98);
        assert_eq!(stamps.recent(), 100, "it never goes back");
        stamps.update(now + RECENT_AGE_MAX, 98);
        assert_eq!(stamps.recent(), 98);
    }
}
