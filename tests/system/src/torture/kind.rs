//! The kinds of disturbances.
//!
//! Not here: their effects (`strikes`).

/// A kind of disturbance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Recall,
    RecallStorm,
    KillProgram,
    KillServer,
    EndServer,
    KillServersProcess,
    KillKeeper,
    StopProgram,
    StopServer,
    StopServersProcess,
    ProgramDescriptors,
    ProgramMemory,
    ServerDescriptors,
    ServerMemory,
    FullDisk,
    HostilePeers,
    HostileClient,
    Weather,
    Carrier,
}

/// All kinds, in the order of the table.
pub(super) const ALL: [Kind; 19] = [
    Kind::Recall,
    Kind::RecallStorm,
    Kind::KillProgram,
    Kind::KillServer,
    Kind::EndServer,
    Kind::KillServersProcess,
    Kind::KillKeeper,
    Kind::StopProgram,
    Kind::StopServer,
    Kind::StopServersProcess,
    Kind::ProgramDescriptors,
    Kind::ProgramMemory,
    Kind::ServerDescriptors,
    Kind::ServerMemory,
    Kind::FullDisk,
    Kind::HostilePeers,
    Kind::HostileClient,
    Kind::Weather,
    Kind::Carrier,
];

impl Kind {
    /// Returns the kind in words, for the table.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Recall => "all sessions sent home once",
            Self::RecallStorm => "all sessions sent home again and again",
            Self::KillProgram => "a program killed",
            Self::KillServer => "the server killed, and started again",
            Self::EndServer => "the server ended in order, and started again",
            Self::KillServersProcess => "a process of the server's killed",
            Self::KillKeeper => "the keeper killed",
            Self::StopProgram => "a program stopped for a while",
            Self::StopServer => "the server stopped for a while",
            Self::StopServersProcess => "a process of the server's stopped for a while",
            Self::ProgramDescriptors => "no more descriptors for a program",
            Self::ProgramMemory => "no more memory for a program",
            Self::ServerDescriptors => "no more descriptors for the server",
            Self::ServerMemory => "no more memory for the server",
            Self::FullDisk => "a full disk, half of the time with the server killed",
            Self::HostilePeers => "a program with twenty hostile peers beside",
            Self::HostileClient => "a client that sends the server random bytes",
            Self::Weather => "the link changed",
            Self::Carrier => "the link without a carrier for a while",
        }
    }

    /// Returns the weight of the kind in the random choice.
    fn weight(self, is_between_hosts: bool) -> u64 {
        match self {
            Self::Recall | Self::RecallStorm => 20,
            Self::KillProgram | Self::StopProgram => 10,
            Self::HostilePeers => 2,
            Self::KillServersProcess | Self::StopServersProcess => 5,
            Self::KillServer | Self::StopServer | Self::FullDisk => 5,
            Self::EndServer | Self::ServerDescriptors | Self::ServerMemory => 3,
            Self::ProgramDescriptors | Self::ProgramMemory | Self::HostileClient => 5,
            Self::KillKeeper if is_between_hosts => 3,
            Self::Weather | Self::Carrier if is_between_hosts => 5,
            Self::KillKeeper | Self::Weather | Self::Carrier => 0,
        }
    }

    /// Chooses a kind by a random number.
    pub(super) fn any(number: u64, is_between_hosts: bool) -> Self {
        let total: u64 = ALL.iter().map(|kind| kind.weight(is_between_hosts)).sum();
        let mut left = number % total;
        let is_it = |kind: &&Self| {
            let weight = kind.weight(is_between_hosts);
            let is_here = left < weight;
            left = left.saturating_sub(weight);
            is_here
        };
        ALL.iter().find(is_it).copied().unwrap_or(Self::Recall)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_comes_where_it_can() {
        let of = |is_between_hosts| {
            let mut found: Vec<Kind> =
                (0..1000).map(|number| Kind::any(number, is_between_hosts)).collect();
            found.sort_unstable();
            found.dedup();
            found
        };
        assert_eq!(of(true), ALL);
        assert_eq!(of(false).len(), ALL.len() - 3);
    }
}
