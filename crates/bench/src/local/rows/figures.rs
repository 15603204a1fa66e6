//! Conversion of the results of `lab-bench`, and of single times, to samples.

use crate::local::row::{Sample, Times, Unit};
use crate::stats::percentile;
use serde_json::Value;

/// Returns the percentiles of a histogram of `lab-bench`, which is a list of pairs (time, count).
fn times(measured: &Value) -> Option<Times> {
    let pairs = measured["histogram"].as_array()?;
    let pair = |pair: &Value| Some((pair[0].as_f64()?, pair[1].as_f64()?));
    let pairs: Vec<(f64, f64)> = pairs.iter().filter_map(pair).collect();
    let total: f64 = pairs.iter().map(|(_, count)| count).sum();
    let at = |fraction: f64| {
        let mut seen = 0.0;
        let found = pairs.iter().find(|(_, count)| {
            seen += count;
            seen >= fraction * total
        });
        found.map_or(0.0, |(ns, _)| *ns)
    };
    Some(Times { p50: at(0.5), p90: at(0.9), p99: at(0.99) })
}

/// Makes a sample of the results of `lab-bench`, compared by the median time or by the rate, as
/// `unit` says.
pub(crate) fn of_lab(case: String, measured: &Value, unit: Unit) -> Sample {
    let figure = |name: &str| measured[name].as_f64();
    let operations = figure("operations").unwrap_or(0.0);
    let seconds = figure("ns").unwrap_or(0.0).max(1.0) / 1e9;
    let times = times(measured);
    let value = match unit {
        Unit::Ns => times.map_or(0.0, |times| times.p50),
        Unit::PerS => operations / seconds,
        Unit::BytesPerS | Unit::Bytes => figure("bytes").unwrap_or(0.0) / seconds,
    };
    Sample {
        times,
        rate: Some(operations / seconds),
        cpu_ns: figure("cpu_ns").map(|cpu| cpu / operations.max(1.0)),
        ..Sample::new(case, unit, value, operations)
    }
}

/// Returns the percentiles of single times.
pub(super) fn times_of(sorted: &[f64]) -> Times {
    let at = |fraction| percentile(sorted, fraction);
    Times { p50: at(0.5), p90: at(0.9), p99: at(0.99) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn percentiles_of_a_histogram() {
        let measured = json!({
            "operations": 100, "ns": 1e9, "cpu_ns": 500, "histogram": [[10, 50], [20, 45], [90, 5]]
        });
        let times = times(&measured).unwrap();
        assert_eq!((times.p50, times.p90, times.p99), (10.0, 20.0, 90.0));
        let sample = of_lab("case".into(), &measured, Unit::Ns);
        assert_eq!((sample.value, sample.rate, sample.cpu_ns), (10.0, Some(100.0), Some(5.0)));
    }
}
