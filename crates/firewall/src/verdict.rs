//! Verdicts: what becomes of a packet that a rule matches, or that a map has.
//!
//! Not here: rules (`rule`), maps (`sets`), and where a jump leads (`chains`).

use crate::attributes::{find, number, text};

/// The action of a rule on a packet that matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Goes on with the next rule.
    Continue,
    Accept,
    Return,
    Jump(String),
    Goto(String),
    /// An action that only the kernel can do, or that drops the packet.
    Other,
}

/// Reads a verdict (`NFTA_DATA_VERDICT`). `None` for a value that is not one, or a malformed
/// verdict.
pub(crate) fn verdict(data: &[u8]) -> Option<Action> {
    let verdict = find(data, 2)?;
    let chain = || text(verdict, 2);
    Some(match number(verdict, 1)?.cast_signed() {
        1 => Action::Accept,
        -1 => Action::Continue,
        -3 => Action::Jump(chain()?),
        -4 => Action::Goto(chain()?),
        -5 => Action::Return,
        _ => Action::Other,
    })
}
