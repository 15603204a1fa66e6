//! The ways in which a row runs its programs.

use serde::Serialize;

/// A way to run programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum RunMode {
    /// Without Sojourn.
    Plain,
    /// Without Sojourn, in a control group for whose TCP sockets the sockmap programs are attached.
    Sockmap,
    /// Under `sojourn run`, with its default settings.
    Sojourn,
    /// Under `sojourn run`, with `spin = never`.
    Asleep,
}

impl RunMode {
    /// The ways for TCP, where both sides may spin.
    pub(crate) const TCP: &[Self] = &[Self::Plain, Self::Sockmap, Self::Sojourn];
    /// The ways for sessions that sockmap does not know.
    pub(crate) const LOCAL: &[Self] = &[Self::Plain, Self::Sojourn];
    /// All ways.
    pub(crate) const ALL: &[Self] = &[Self::Plain, Self::Sockmap, Self::Sojourn, Self::Asleep];

    /// Returns the name for tables and folders.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Sockmap => "sockmap",
            Self::Sojourn => "sojourn",
            Self::Asleep => "sojourn-asleep",
        }
    }

    /// Returns true if Sojourn takes part.
    pub(crate) fn is_ours(self) -> bool {
        matches!(self, Self::Sojourn | Self::Asleep)
    }
}
