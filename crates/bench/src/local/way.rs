//! The ways in which a row runs its programs.

use serde::Serialize;

/// How programs are run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum RunMode {
    /// As if Sojourn were not there.
    Plain,
    /// Plain, in a control group whose TCP sockets an eBPF program short-cuts.
    Sockmap,
    /// Under `sojourn run`, with its default settings.
    Sojourn,
    /// The same, never spinning.
    Asleep,
}

impl RunMode {
    /// What TCP is compared by, where both sides may spin.
    pub(crate) const TCP: &[Self] = &[Self::Plain, Self::Sockmap, Self::Sojourn];
    /// The same for what the eBPF program does not know.
    pub(crate) const LOCAL: &[Self] = &[Self::Plain, Self::Sojourn];
    /// Everything.
    pub(crate) const ALL: &[Self] = &[Self::Plain, Self::Sockmap, Self::Sojourn, Self::Asleep];

    /// For tables and folders.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Sockmap => "sockmap",
            Self::Sojourn => "sojourn",
            Self::Asleep => "sojourn-asleep",
        }
    }

    /// Whether Sojourn takes part.
    pub(crate) fn is_ours(self) -> bool {
        matches!(self, Self::Sojourn | Self::Asleep)
    }
}
