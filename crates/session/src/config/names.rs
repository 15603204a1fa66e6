//! Names that no setting has, and the setting that is most likely meant.

use super::settings::{SETTINGS, Setting};

/// The setting that is most likely meant.
pub(super) fn near(name: &str) -> Option<&'static Setting> {
    let setting = SETTINGS.iter().min_by_key(|setting| distance(setting.name, name))?;
    (distance(setting.name, name) <= 1 + name.len() / 4).then_some(setting)
}

/// What to say of a name that no setting has.
pub(super) fn unknown(name: &str) -> String {
    match near(name) {
        Some(near) => format!("there is no such setting; did you mean `{}`?", near.name),
        None => {
            let names: Vec<_> = SETTINGS.iter().map(|setting| setting.name).collect();
            format!("there is no such setting; there are: {}", names.join(", "))
        }
    }
}

/// How many letters must be put in, taken out or replaced to make one name the other.
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
