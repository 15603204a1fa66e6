//! Reasons, settings and flags, read from the text of the source files that define them.
//!
//! The text is parsed, because this package depends on no crate of the program. Each reader fails
//! if it finds nothing, or fewer entries than the source itself counts, so that a change of the
//! source's form cannot pass unnoticed.

use super::files::read;
use anyhow::{Context, Result, bail};

const REASONS: &str = "crates/session/src/reason.rs";
const SETTINGS: &str = "crates/session/src/config/settings.rs";
/// Source files with flags, each with the structure whose fields are the flags.
const FLAGS: [(&str, &str); 2] =
    [("crates/server/src/flags.rs", "struct Flags"), ("crates/cli/src/args.rs", "struct Run")];

/// Returns the codes of all reasons.
pub(super) fn reasons() -> Result<Vec<String>> {
    reasons_in(&read(REASONS)?).context(REASONS)
}

fn reasons_in(text: &str) -> Result<Vec<String>> {
    let (_, rest) = text.split_once("ALL: [ReasonText; ").context("no table of reasons")?;
    let (count, rest) = rest.split_once(']').context("no number of reasons")?;
    let (table, _) = rest.split_once("\n];").context("the table of reasons does not end")?;
    let entries = table.split("text(").skip(1);
    let words: Option<Vec<String>> =
        entries.map(|entry| Some(strings(entry).next()?.into())).collect();
    let words = words.context("a reason without a word")?;
    if words.len() != count.parse::<usize>()? {
        bail!("{} reasons found, {count} expected", words.len());
    }
    Ok(words)
}

/// Returns the names of all settings.
pub(super) fn settings() -> Result<Vec<String>> {
    settings_in(&read(SETTINGS)?).context(SETTINGS)
}

fn settings_in(text: &str) -> Result<Vec<String>> {
    let (_, rest) = text.split_once("SETTINGS: &[Setting] = &[").context("no table of settings")?;
    let (table, _) = rest.split_once("\n];").context("the table of settings does not end")?;
    let short = table.split("setting!(").skip(1).map(|entry| {
        let (name, _) = entry.split_once(',').unwrap_or_default();
        name.trim().to_owned()
    });
    let long = table.split("name: ").skip(1).filter_map(|entry| strings(entry).next());
    let names: Vec<String> = short.chain(long.map(str::to_owned)).collect();
    if names.is_empty() || names.iter().any(|name| !is_name(name)) {
        bail!("not all names of settings were understood: {names:?}");
    }
    Ok(names)
}

/// Returns the long flags of `sojournd` and `sojourn run`, with their dashes.
pub(super) fn flags() -> Result<Vec<String>> {
    let mut flags = Vec::new();
    for (path, holder) in FLAGS {
        flags.extend(flags_in(&read(path)?, holder).context(path)?);
    }
    Ok(flags)
}

/// Returns the fields of a structure that an attribute `#[arg(long…)]` makes a flag.
fn flags_in(text: &str, holder: &str) -> Result<Vec<String>> {
    let start = format!("{holder} {{");
    let (_, rest) = text.split_once(&start).with_context(|| format!("no {holder}"))?;
    let (fields, _) = rest.split_once("\n}").with_context(|| format!("{holder} does not end"))?;
    let mut flags = Vec::new();
    for attribute in fields.split("#[arg(").skip(1) {
        let (words, rest) = attribute.split_once(")]").context("an attribute does not end")?;
        let is_flag = words.split(',').any(|word| word.trim() == "long");
        let (head, _) = rest.split_once(':').context("an attribute without a field")?;
        let name = head.trim().rsplit(' ').next().unwrap_or_default();
        if is_flag {
            flags.push(format!("--{}", name.replace('_', "-")));
        }
    }
    if flags.is_empty() {
        bail!("no flag in {holder}");
    }
    Ok(flags)
}

/// Returns the texts between quotation marks.
fn strings(text: &str) -> impl Iterator<Item = &str> {
    text.split('"').skip(1).step_by(2)
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_lowercase() || c == '_')
}

/// Returns the sections about reasons: third-level headings that are one word in backticks.
pub(super) fn sections(page: &str) -> Vec<String> {
    let headings = page.lines().filter_map(|line| line.strip_prefix("### `")?.strip_suffix('`'));
    headings.map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "pub const ALL: [ReasonText; 2] = [\n text(A, \"none\", \"x.\"),\n \
                         text(\n B,\n\
                         \"not-hot\",\n \"y.\",\n ),\n];\n";

    #[test]
    fn reasons_are_read_from_their_table() {
        assert_eq!(reasons_in(TABLE).ok(), Some(vec!["none".into(), "not-hot".into()]));
        assert!(reasons_in(&TABLE.replace("; 2", "; 3")).is_err());
        assert!(reasons_in("").is_err());
    }

    #[test]
    fn settings_are_read_in_both_forms() {
        let table = "SETTINGS: &[Setting] = &[\n setting!(\n tcp,\n \"on|off\",\n x\n ),\n \
                     Setting {\n name: \"ring_bytes\",\n help: \"x\",\n },\n];\n";
        assert_eq!(settings_in(table).ok(), Some(vec!["tcp".into(), "ring_bytes".into()]));
        assert!(settings_in("SETTINGS: &[Setting] = &[\n];").is_err());
    }

    #[test]
    fn flags_are_fields_that_are_long() {
        let text = "struct Run {\n /// X\n #[arg(short, long)]\n pub(crate) quiet: bool,\n \
                    #[arg(long, value_name = \"S\")]\n pub(crate) idle_exit: u8,\n \
                    #[arg(value_name = \"P\")]\n pub(crate) program: String,\n}\n";
        assert_eq!(
            flags_in(text, "struct Run").ok(),
            Some(vec!["--quiet".into(), "--idle-exit".into()])
        );
        assert!(flags_in(text, "struct Other").is_err());
    }

    #[test]
    fn the_real_tables_are_understood() {
        // Cargo runs tests with the package's folder as their working directory.
        let real = |path: &str| std::fs::read_to_string(format!("../{path}")).unwrap();
        assert!(reasons_in(&real(REASONS)).unwrap().contains(&"not-hot".to_owned()));
        assert!(settings_in(&real(SETTINGS)).unwrap().contains(&"move_after_calls".to_owned()));
        let flags = FLAGS.map(|(path, holder)| flags_in(&real(path), holder).unwrap());
        assert!(
            flags[0].contains(&"--network".to_owned()) && flags[1].contains(&"--quiet".to_owned())
        );
    }
}
