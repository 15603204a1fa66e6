//! The targets of the project, with the results of this run.

use serde::Serialize;

use crate::table::Table;

/// One target.
#[derive(Debug, Serialize)]
pub(crate) struct TargetResult {
    /// The target in words.
    pub(crate) target: String,
    /// The measured value, for the table.
    pub(crate) measured: String,
    /// True if the target is reached; `None` if the rows for it were not measured.
    pub(crate) reached: Option<bool>,
}

impl TargetResult {
    /// Judges the target that `a / b` is at most `limit`.
    pub(crate) fn at_most(target: String, a: Option<f64>, b: Option<f64>, limit: f64) -> Self {
        Self::judge(target, a, b, |ratio| ratio <= limit)
    }

    /// Judges the target that `a / b` is at least `limit`.
    pub(crate) fn at_least(target: String, a: Option<f64>, b: Option<f64>, limit: f64) -> Self {
        Self::judge(target, a, b, |ratio| ratio >= limit)
    }

    fn judge(target: String, a: Option<f64>, b: Option<f64>, good: impl Fn(f64) -> bool) -> Self {
        match (a, b) {
            (Some(a), Some(b)) if b > 0.0 => {
                let ratio = a / b;
                Self { target, measured: format!("{ratio:.2}"), reached: Some(good(ratio)) }
            }
            _ => Self { target, measured: "not measured".into(), reached: None },
        }
    }
}

/// Formats the closing table of a run.
pub(crate) fn render(targets: &[TargetResult]) -> String {
    let mut table = Table::new(["target", "measured", "reached"]);
    for one in targets {
        let verdict = match one.reached {
            Some(true) => "yes",
            Some(false) => "NO",
            None => "-",
        };
        table.row([one.target.as_str(), one.measured.as_str(), verdict]);
    }
    table.render()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_inclusive_and_absence_is_not_success() {
        let of = |a, b| TargetResult::at_most("t".into(), a, b, 2.0).reached;
        assert_eq!(of(Some(2.0), Some(1.0)), Some(true));
        assert_eq!(of(Some(2.1), Some(1.0)), Some(false));
        assert_eq!(of(None, Some(1.0)), None);
        assert_eq!(of(Some(1.0), Some(0.0)), None);
        assert_eq!(
            TargetResult::at_least("t".into(), Some(3.0), Some(1.0), 3.0).reached,
            Some(true)
        );
    }
}
