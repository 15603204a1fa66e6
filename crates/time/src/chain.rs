//! Chains of stamps: from moments to the times between them.
//!
//! A chain is divided without rest: the rows' times and the stamps' own time add up to the time
//! between its ends. Not here: which stamps make a chain (`ledger`).

use crate::event::Stamp;
use crate::row::Row;

/// A chain that cannot be: a later stamp has an earlier time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disordered;

/// The time of one row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowTime {
    /// The row.
    pub row: Row,
    /// Its time without the stamps' own (ns).
    pub ns: u64,
}

/// The stamp that ends a row.
#[derive(Clone, Copy)]
pub(crate) struct RowEnd {
    pub(crate) row: Row,
    pub(crate) stamp: Stamp,
    /// The cost of the stamp before it, if that is another processor's (ns).
    pub(crate) usual: u32,
}

/// The times of one chain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// The rows that were passed, in order.
    pub rows: Vec<RowTime>,
    /// The stamps' own time in it (ns).
    pub own_ns: u64,
    /// Spans in which more was to be taken off than there was; such a span is zero.
    pub clamped: u64,
}

impl Times {
    /// All rows together.
    #[must_use]
    pub fn total_ns(&self) -> u64 {
        self.rows.iter().map(|time| time.ns).sum()
    }
}

/// A span between two stamps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) net_ns: u64,
    pub(crate) own_ns: u64,
    pub(crate) is_clamped: bool,
}

/// The time between two stamps. On one processor the difference of the sums that stamps carry is
/// taken off; between two it is `usual`, the cost of the first stamp.
pub(crate) fn span(from: &Stamp, to: &Stamp, usual: u32) -> Result<Span, Disordered> {
    let whole = to.at.checked_sub(from.at).ok_or(Disordered)?;
    let own = match from.processor == to.processor {
        true => to.spent.wrapping_sub(from.spent),
        false => usual,
    };
    let own_ns = u64::from(own).min(whole);
    Ok(Span { net_ns: whole - own_ns, own_ns, is_clamped: own_ns < u64::from(own) })
}

/// Divides the time since `start` among rows, each of which ends at its stamp. A row whose stamp is
/// missing has no time: it is a part of the next row that has one.
pub(crate) fn divide(start: &Stamp, ends: &[RowEnd]) -> Result<Times, Disordered> {
    let mut times = Times::default();
    let mut before = *start;
    for RowEnd { row, stamp, usual } in ends {
        if !stamp.is_set() {
            continue;
        }
        let span = span(&before, stamp, *usual)?;
        times.rows.push(RowTime { row: *row, ns: span.net_ns });
        times.own_ns += span.own_ns;
        times.clamped += u64::from(span.is_clamped);
        before = *stamp;
    }
    Ok(times)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn stamps() -> impl Strategy<Value = Vec<Stamp>> {
        let one = (0_u64..10_000, 0_u32..2000, 0_u32..2);
        proptest::collection::vec(one, 2..6).prop_map(|steps| {
            let (mut at, mut spent) = (1, u32::MAX - 1500);
            let step = |(later, own, processor): &(u64, u32, u32)| {
                at += later;
                spent = spent.wrapping_add(*own);
                Stamp { at, spent, processor: *processor }
            };
            steps.iter().map(step).collect()
        })
    }

    proptest! {
        #[test]
        fn rows_and_own_time_are_the_whole(stamps in stamps(), skipped in 0_usize..6) {
            let ends: Vec<_> = Row::ALL.iter().zip(&stamps[1..]).enumerate().map(|(at, (row, stamp))| {
                let stamp = if at == skipped && at + 2 < stamps.len() { Stamp::default() } else { *stamp };
                RowEnd { row: *row, stamp, usual: 100 }
            }).collect();
            let times = divide(&stamps[0], &ends).unwrap();
            let whole = stamps.last().unwrap().at - stamps[0].at;
            prop_assert_eq!(times.total_ns() + times.own_ns, whole);
        }

        #[test]
        fn a_chain_that_goes_back_in_time_is_refused(stamps in stamps()) {
            let mut reversed = stamps.clone();
            reversed.reverse();
            let end = |(row, stamp): (&Row, &Stamp)| RowEnd { row: *row, stamp: *stamp, usual: 0 };
            let ends: Vec<_> = Row::ALL.iter().zip(&reversed[1..]).map(end).collect();
            let goes_back = stamps.last().unwrap().at > stamps[0].at;
            prop_assert_eq!(divide(&reversed[0], &ends).is_err(), goes_back);
        }
    }

    #[test]
    fn own_time_is_taken_off_and_never_more_than_there_is() {
        let stamp = |at, spent, processor| Stamp { at, spent, processor };
        let of = |from, to| span(&from, &to, 30).unwrap();
        assert_eq!(of(stamp(100, 5, 0), stamp(200, 45, 0)).net_ns, 60);
        assert_eq!(of(stamp(100, 5, 0), stamp(200, 900, 1)).net_ns, 70);
        let most = of(stamp(100, 5, 0), stamp(120, 45, 0));
        assert_eq!((most.net_ns, most.own_ns, most.is_clamped), (0, 20, true));
    }
}
