//! Rust names for IDL names.
//!
//! Types in camel case, operations, parameters and fields in snake case, constants in capitals.
//! Names that end up alike are told apart by a number. Generated code keeps names that end in an
//! underscore for itself.

use std::collections::HashSet;

/// Words that cannot be identifiers at all, not even raw.
const NEVER: [&str; 5] = ["self", "super", "crate", "Self", "_"];

const KEYWORDS: [&str; 47] = [
    "abstract", "as", "async", "await", "become", "box", "break", "const", "continue", "do", "dyn",
    "else", "enum", "extern", "false", "final", "fn", "for", "gen", "if", "impl", "in", "let",
    "loop", "macro", "match", "mod", "move", "mut", "override", "priv", "pub", "ref", "return",
    "static", "struct", "trait", "true", "try", "type", "typeof", "unsafe", "unsized", "use",
    "virtual", "where", "yield",
];

/// The words of a name: split at underscores and where lower case turns to upper.
fn words(name: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    for part in name.split('_').filter(|p| !p.is_empty()) {
        let letters: Vec<char> = part.chars().collect();
        let mut word = String::new();
        for (i, c) in letters.iter().enumerate() {
            let before = i.checked_sub(1).map(|j| letters[j]);
            let after = letters.get(i + 1);
            let begins = c.is_uppercase()
                && (before.is_some_and(|b| b.is_lowercase() || b.is_ascii_digit())
                    || before.is_some_and(char::is_uppercase)
                        && after.is_some_and(|a| a.is_lowercase()));
            if begins {
                words.push(core::mem::take(&mut word));
            }
            word.push(*c);
        }
        words.push(word);
    }
    words
}

/// `account_t`, `accountT` → `AccountT`.
pub(super) fn camel(name: &str) -> String {
    let mut out = String::new();
    for word in words(name) {
        let mut chars = word.chars();
        let first = chars.next().map(|c| c.to_ascii_uppercase());
        let glued = out.chars().last().is_some_and(|c| c.is_ascii_digit())
            && first.is_some_and(|c| c.is_ascii_digit());
        if glued {
            out.push('_');
        }
        out.extend(first);
        // A single capital before a word (`ICalc`) stays; the rest is lower case.
        out.push_str(&chars.as_str().to_ascii_lowercase());
    }
    match out.chars().next() {
        None => "Unnamed".to_owned(),
        Some(c) if c.is_ascii_digit() => format!("N{out}"),
        Some(_) if NEVER.contains(&out.as_str()) => format!("{out}Type"),
        Some(_) => out,
    }
}

/// `accountName`, `AccountName` → `account_name`; keywords become raw.
pub(super) fn snake(name: &str) -> String {
    let out = plain_snake(name);
    if NEVER.contains(&out.as_str()) {
        format!("{out}_value")
    } else if KEYWORDS.contains(&out.as_str()) {
        format!("r#{out}")
    } else {
        out
    }
}

/// As [`snake`], to be a part of a longer name.
pub(super) fn plain_snake(name: &str) -> String {
    let out = words(name).join("_").to_ascii_lowercase();
    match out.chars().next() {
        None => "unnamed".to_owned(),
        Some(c) if c.is_ascii_digit() => format!("n{out}"),
        Some(_) => out,
    }
}

/// `maxAccounts` → `MAX_ACCOUNTS`.
pub(super) fn capitals(name: &str) -> String {
    plain_snake(name).to_ascii_uppercase()
}

/// Members of an enumeration: camel case, without the words all of them begin with.
pub(super) fn variants(names: &[&str]) -> Vec<String> {
    let split: Vec<Vec<String>> = names.iter().map(|n| words(n)).collect();
    let mut common = 0;
    if split.len() > 1 {
        while split.iter().all(|w| w.len() > common + 1 && w[common] == split[0][common]) {
            common += 1;
        }
    }
    let short: Vec<String> =
        split.iter().map(|w| camel(&w[common.min(w.len())..].join("_"))).collect();
    unique(short)
}

/// Tells equal names apart by a number.
pub(super) fn unique(names: Vec<String>) -> Vec<String> {
    let mut seen = HashSet::new();
    names
        .into_iter()
        .map(|name| {
            let mut candidate = name.clone();
            let mut n = 2;
            while !seen.insert(candidate.clone()) {
                candidate = format!("{name}_{n}");
                n += 1;
            }
            candidate
        })
        .collect()
}

/// Methods of generated clients and traits that an operation must not hide, and methods of traits
/// that every type has, which are found before a client's.
const TAKEN: [&str; 10] = [
    "bind",
    "bind_by",
    "with_deadline",
    "into_inner",
    "transport",
    "client_gone",
    "client_connected",
    "client_notified",
    "into",
    "try_into",
];

/// Name of the method that an operation becomes.
pub(super) fn op_name(name: &str) -> String {
    let snake = snake(name);
    if TAKEN.contains(&snake.as_str()) { format!("{snake}_op") } else { snake }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_the_language() {
        assert_eq!(camel("account_t"), "AccountT");
        assert_eq!(camel("FOO_BAR"), "FooBar");
        assert_eq!(camel("ICalc"), "ICalc");
        assert_eq!(camel("self"), "SelfType");
        assert_eq!(snake("fooBar"), "foo_bar");
        assert_eq!(snake("HTTPServer"), "http_server");
        assert_eq!(snake("type"), "r#type");
        assert_eq!(snake("self"), "self_value");
        assert_eq!(snake("x_"), "x");
        assert_eq!(capitals("maxAccounts"), "MAX_ACCOUNTS");
        assert_eq!(variants(&["COLOR_RED", "COLOR_GREEN"]), ["Red", "Green"]);
        assert_eq!(variants(&["only"]), ["Only"]);
        assert_eq!(unique(vec!["a".into(), "a".into()]), ["a", "a_2"]);
    }
}
