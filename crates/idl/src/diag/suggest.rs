//! "Did you mean": the nearest of the names that would have been right.

/// The candidate nearest to `wrong` if it is near enough to be what was meant.
pub fn nearest<'a>(wrong: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if wrong.len() > 64 {
        return None;
    }
    let allowed = match wrong.chars().count() {
        0..=2 => 1,
        3..=5 => 2,
        _ => 3,
    };
    candidates
        .into_iter()
        .filter(|c| c.len() <= 64)
        .map(|c| (distance(&wrong.to_lowercase(), &c.to_lowercase()), c))
        .filter(|(d, c)| *d <= allowed && *d < c.chars().count())
        .min_by_key(|(d, _)| *d)
        .map(|(_, c)| c)
}

/// `a, b, c` or, of very many, the first dozen.
pub fn listing<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let all: Vec<&str> = names.into_iter().collect();
    if all.len() > 12 {
        return format!("{}, ...", all[..12].join(", "));
    }
    all.join(", ")
}

/// Edits (insert, delete, replace, swap neighbours) from `a` to `b`.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let width = b.len() + 1;
    let mut before_last: Vec<usize> = vec![0; width];
    let mut last: Vec<usize> = (0..width).collect();
    for i in 1..=a.len() {
        let mut row = vec![i; width];
        for j in 1..width {
            let replace = last[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            row[j] = replace.min(last[j] + 1).min(row[j - 1] + 1);
            let swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
            if swapped {
                row[j] = row[j].min(before_last[j - 2] + 1);
            }
        }
        before_last = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_slip_and_not_the_stranger() {
        let keys = ["size_is", "length_is", "string", "range"];
        assert_eq!(nearest("sise_is", keys), Some("size_is"));
        assert_eq!(nearest("Strnig", keys), Some("string"));
        assert_eq!(nearest("uuid", keys), None);
        assert_eq!(nearest("", keys), None);
    }

    #[test]
    fn a_swap_is_one_edit() {
        assert_eq!(distance("ab", "ba"), 1);
        assert_eq!(distance("", "abc"), 3);
    }
}
