//! Judgement of two programs that exchanged data: decides if each program's end was an allowed one.
//!
//! A pure function of their progress records and output. Not here: killing programs (`strikes`).

use sojourn_lab::progress::{InputEnd, Outcome, ProgressRecord};

/// Texts of errors that a program may print if the other's end is all that was wrong: ECONNRESET,
/// EPIPE, ENOTCONN (from shutdown(2) on a reset session), and `lab-peer`'s own words.
const CUTS: [&str; 5] = [
    "(os error 104)",
    "(os error 32)",
    "(os error 107)",
    "the other side failed",
    "the end in round",
];
/// Texts that must never be printed.
const FAULTS: [&str; 5] =
    ["should be", "beyond the end", "nothing happened", "panicked", "the end after"];

/// The fate of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Every byte arrived, in both directions, and then the end.
    Whole,
    /// One program was killed; the other saw the end, after all bytes that came before it.
    Cut,
    /// No program was killed, but both saw the session end; no byte was wrong.
    Lost(String),
    /// An end that no kernel allows.
    Wrong(String),
}

/// The facts about two programs that have ended, or should have.
#[derive(Clone, Debug)]
pub(super) struct Ended<'e> {
    pub(super) told: [ProgressRecord; 2],
    /// The output of both programs.
    pub(super) said: &'e str,
    /// The side that was killed.
    pub(super) killed: Option<usize>,
    /// True if bytes arrive even if their sender is killed afterwards: pipes, Unix sockets.
    pub(super) keeps_what_was_sent: bool,
}

impl Ended<'_> {
    pub(super) fn judge(&self) -> Verdict {
        let said = self.said.trim();
        if let Some(fault) = FAULTS.iter().find(|fault| said.contains(**fault)) {
            return Verdict::Wrong(format!("{fault:?}: {said}"));
        }
        match self.killed {
            Some(killed) => self.judge_survivor(killed),
            None => self.judge_both(),
        }
    }

    fn is_cut(&self) -> bool {
        CUTS.iter().any(|cut| self.said.contains(cut))
    }

    fn judge_both(&self) -> Verdict {
        let [first, second] = self.told;
        let said = self.said.trim();
        match [first.outcome, second.outcome] {
            [Outcome::Well, Outcome::Well]
                if first.sent == second.received && second.sent == first.received =>
            {
                Verdict::Whole
            }
            // Silently missing bytes are worse than a reset.
            [Outcome::Well, Outcome::Well] => {
                Verdict::Wrong(format!("bytes are missing before the end: {:?}", self.told))
            }
            // A lost session: a program that reads an unexpected end takes it for the other
            // program's end.
            [Outcome::Well | Outcome::Failed, Outcome::Well | Outcome::Failed]
                if first.input != InputEnd::Open
                    || second.input != InputEnd::Open
                    || self.is_cut() =>
            {
                Verdict::Lost(format!("{:?} {said}", self.told))
            }
            _ => Verdict::Wrong(format!("nobody was killed: {:?} {said}", self.told)),
        }
    }

    fn judge_survivor(&self, killed: usize) -> Verdict {
        let (dead, survivor) = (self.told[killed], self.told[1 - killed]);
        let said = self.said.trim();
        let has_ended = survivor.outcome == Outcome::Well
            || survivor.outcome == Outcome::Failed && self.is_cut();
        if !has_ended {
            return Verdict::Wrong(format!("the other was killed: {:?} {said}", self.told));
        }
        let has_read_all = survivor.input != InputEnd::Open && self.keeps_what_was_sent;
        if has_read_all && survivor.received < dead.sent {
            let text = "bytes of a program that was killed then are missing";
            return Verdict::Wrong(format!("{text}: {:?} {said}", self.told));
        }
        Verdict::Cut
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(sent: u64, received: u64, input: InputEnd, outcome: Outcome) -> ProgressRecord {
        ProgressRecord { pid: 1, sent, received, input, outcome }
    }

    fn judge(told: [ProgressRecord; 2], said: &str, killed: Option<usize>) -> Verdict {
        Ended { told, said, killed, keeps_what_was_sent: true }.judge()
    }

    #[test]
    fn an_end_is_right_if_every_byte_came() {
        let well = |sent, received| told(sent, received, InputEnd::Eof, Outcome::Well);
        assert_eq!(judge([well(5, 7), well(7, 5)], "", None), Verdict::Whole);
        let one_less = judge([well(5, 7), well(7, 4)], "", None);
        assert!(matches!(one_less, Verdict::Wrong(_)), "{one_less:?}");
        let wrong = "byte 3 is 0x01 and should be 0x02";
        assert!(matches!(judge([well(5, 7), well(7, 5)], wrong, None), Verdict::Wrong(_)));
        let gone = told(5, 7, InputEnd::Open, Outcome::None);
        assert!(matches!(judge([well(5, 7), gone], "", None), Verdict::Wrong(_)));
    }

    #[test]
    fn a_survivor_has_what_was_sent() {
        let killed = told(100, 7, InputEnd::Open, Outcome::None);
        let reset = "Connection reset by peer (os error 104)";
        let survivor = |received| told(9, received, InputEnd::Failed, Outcome::Failed);
        assert_eq!(judge([survivor(100), killed], reset, Some(1)), Verdict::Cut);
        assert_eq!(judge([survivor(130), killed], reset, Some(1)), Verdict::Cut);
        assert!(matches!(judge([survivor(99), killed], reset, Some(1)), Verdict::Wrong(_)));
        let other = "Bad file descriptor (os error 9)";
        assert!(matches!(judge([survivor(100), killed], other, Some(1)), Verdict::Wrong(_)));
        let hangs = told(9, 100, InputEnd::Open, Outcome::None);
        assert!(matches!(judge([hangs, killed], "", Some(1)), Verdict::Wrong(_)));
    }
}
