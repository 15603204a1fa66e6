//! An entry of the catalogue, and how it is shown.

use crate::diag::codes::Code;

/// The explanation of a code.
#[derive(Clone, Copy, Debug)]
pub struct Explanation {
    /// Which.
    pub code: Code,
    /// In a few words.
    pub title: &'static str,
    /// In a paragraph, with the way out.
    pub text: &'static str,
    /// Gives this diagnostic.
    pub bad: Sample,
    /// Compiles without a word.
    pub good: Sample,
}

/// An input.
#[derive(Clone, Copy, Debug)]
pub enum Sample {
    /// An IDL file.
    Idl(&'static str),
    /// An IDL file and an ACF.
    Acf(&'static str, &'static str),
    /// An IDL file compared with the dump of an older one.
    Against {
        /// The older one, or the dump itself if it begins with `{`.
        old: &'static str,
        /// The newer one.
        new: &'static str,
    },
    /// Bytes that no source text can show; with a description.
    Made(fn() -> Vec<u8>, &'static str),
    /// No file at all.
    Missing,
}

impl Sample {
    fn show(&self) -> String {
        match self {
            Self::Idl(idl) => indent(idl),
            Self::Acf(idl, acf) => format!("{}  -- .acf --\n{}", indent(idl), indent(acf)),
            Self::Against { old, new } => {
                format!("  -- before --\n{}  -- now --\n{}", indent(old), indent(new))
            }
            Self::Made(_, description) => format!("    ({description})\n"),
            Self::Missing => "    (no such file)\n".to_owned(),
        }
    }
}

fn indent(text: &str) -> String {
    text.lines().map(|line| format!("    {line}\n")).collect()
}

impl Explanation {
    /// The entry as text for people.
    #[must_use]
    pub fn explain(&self) -> String {
        format!(
            "{}: {}\n\n{}\n\nThis is refused or remarked upon:\n\n{}\nThis is right:\n\n{}",
            self.code,
            self.title,
            self.text,
            self.bad.show(),
            self.good.show(),
        )
    }
}

pub(super) const fn idl(
    code: Code,
    title: &'static str,
    text: &'static str,
    bad: &'static str,
    good: &'static str,
) -> Explanation {
    Explanation { code, title, text, bad: Sample::Idl(bad), good: Sample::Idl(good) }
}
