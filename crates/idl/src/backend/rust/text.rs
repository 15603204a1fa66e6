//! Small helpers for generated text.

/// Whether `text` mentions the identifier `name`.
pub(super) fn mentions(text: &str, name: &str) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(name).any(|(at, _)| {
        let before = text[..at].chars().next_back().is_some_and(is_word);
        let after = text[at + name.len()..].chars().next().is_some_and(is_word);
        !before && !after
    })
}

/// `name`, or `_` if `text` does not mention it.
pub(super) fn used<'n>(text: &str, name: &'n str) -> &'n str {
    if mentions(text, name) { name } else { "_" }
}

/// Marks the parameters that `body` does not mention as unused: `name: T` → `_name: T`.
pub(super) fn unused_params(params: &[(String, String)], body: &str) -> String {
    params.iter().fold(String::new(), |mut out, (name, ty)| {
        let bare = name.strip_prefix("r#").unwrap_or(name);
        let shown = if mentions(body, name) { name.clone() } else { format!("_{bare}") };
        out.push_str(&format!("{shown}: {ty}, "));
        out
    })
}

/// `&v_.field` as a place to call methods on.
pub(super) fn unref(text: &str) -> &str {
    text.strip_prefix('&').unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_are_whole_words() {
        assert!(mentions("get(d_, v_)", "d_"));
        assert!(!mentions("and_then", "d_"));
        assert_eq!(used("b_.put()", "b_"), "b_");
        assert_eq!(used("", "b_"), "_");
        let params = [("a".to_owned(), "i32".to_owned()), ("r#type".to_owned(), "u8".to_owned())];
        assert_eq!(unused_params(&params, "a + 1"), "a: i32, _type: u8, ");
    }
}
