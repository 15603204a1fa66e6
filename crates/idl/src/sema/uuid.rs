//! Uuids and versions: as written, or derived from names.

use sha2::{Digest, Sha256};

use super::analyzer::Analyzer;
use crate::ast::{Args, Attr, find};
use crate::diag::{Diagnostic, Severity, codes};
use crate::ir::{Uuid, Version};

impl Analyzer<'_> {
    /// `uuid(...)`, checked; the same one twice is a mistake.
    pub(super) fn uuid(&mut self, attrs: &[Attr]) -> Option<Uuid> {
        let Some(Attr { args: Args::Uuid(text), .. }) = find(attrs, "uuid") else { return None };
        let Some(uuid) = parse(&text.text) else {
            self.error(
                codes::BAD_UUID,
                text.span,
                "this is no uuid".to_owned(),
                "a uuid has 32 hexadecimal digits: 8-4-4-4-12; leave the attribute out to have one derived from the name",
            );
            return None;
        };
        if let Some(first) = self.uuids.insert(uuid, text.span) {
            // Versions of one interface of COM may share theirs: a server has one of them.
            let severity = if self.is_com { Severity::Warning } else { Severity::Error };
            let message = "this uuid is taken already";
            self.sink.push(
                Diagnostic::new(severity, codes::DUPLICATE_UUID, Some(text.span), message)
                    .label(first, "first here")
                    .help("make a new one with `uuidgen`"),
            );
        }
        Some(uuid)
    }

    /// `version(major.minor)`; 0.0 if not given.
    pub(super) fn version(&mut self, attrs: &[Attr]) -> Version {
        let Some(Attr { args: Args::Version(text), .. }) = find(attrs, "version") else {
            return Version::default();
        };
        let (major, minor) = text.text.split_once('.').unwrap_or((&text.text, "0"));
        match (major.parse(), minor.parse()) {
            (Ok(major), Ok(minor)) => Version { major, minor },
            _ => {
                self.error(
                    codes::BAD_VERSION,
                    text.span,
                    format!("`{}` is no version", text.text),
                    "a version is major.minor, both at most 65535",
                );
                Version::default()
            }
        }
    }
}

pub(super) fn parse(text: &str) -> Option<Uuid> {
    let groups: Vec<&str> = text.split('-').collect();
    let lengths: Vec<usize> = groups.iter().map(|g| g.len()).collect();
    let digits = groups.concat();
    if lengths != [8, 4, 4, 4, 12] || !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    let mut uuid = [0; 16];
    for (byte, pair) in uuid.iter_mut().zip(digits.as_bytes().chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(uuid)
}

/// The uuid of an interface that has none: a hash of its name and major version (a compatible
/// addition must not change it), marked as version 5 is.
pub(super) fn derive(name: &str, version: Version) -> Uuid {
    let seed = format!("sojourn-interface:{name}:{}", version.major);
    let digest = Sha256::digest(seed.as_bytes());
    let mut uuid = [0; 16];
    uuid.copy_from_slice(&digest[..16]);
    uuid[6] = uuid[6] & 0x0F | 0x50;
    uuid[8] = uuid[8] & 0x3F | 0x80;
    uuid
}
