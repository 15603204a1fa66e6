//! Unknown names of settings, and the setting that is most likely meant.

use super::settings::{SETTINGS, Setting};

/// Returns the setting whose name is nearest to `name`, if it is near enough to be a misspelling.
pub(super) fn nearest_setting(name: &str) -> Option<&'static Setting> {
    let setting = SETTINGS.iter().min_by_key(|setting| distance(setting.name, name))?;
    (distance(setting.name, name) <= 1 + name.len() / 4).then_some(setting)
}

/// Returns the error message for a name that no setting has.
pub(super) fn unknown(name: &str) -> String {
    match nearest_setting(name) {
        Some(nearest_setting) => {
            format!("there is no such setting; did you mean `{}`?", nearest_setting.name)
        }
        None => {
            let names: Vec<_> = SETTINGS.iter().map(|setting| setting.name).collect();
            format!("there is no such setting; there are: {}", names.join(", "))
        }
    }
}

/// Returns the Levenshtein distance of two names: the least number of bytes to insert, remove or
/// replace to turn one into the other.
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut corner = row[0];
        row[0] = i + 1;
        for (j, y) in b.bytes().enumerate() {
            let replaced = corner + usize::from(x != y);
            corner = row[j + 1];
            row[j + 1] = replaced.min(corner + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}
