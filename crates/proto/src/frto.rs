//! F-RTO (RFC 5682, section 3, in the form for SACK): detects a spurious retransmission timeout by
//! sending new data after the first acknowledgement and checking whether original segments arrive.
//!
//! Not here: marks, windows and their restoration ([`crate::recovery`]). The steps are those of
//! Linux's `tcp_process_loss`.

/// The facts of an acknowledgement after a timeout.
#[derive(Clone, Copy, Debug, Default)]
pub struct Facts {
    /// Bytes that were sent once only, before the timeout, have arrived.
    pub original_arrived: bool,
    /// The acknowledgement number rose.
    pub advanced: bool,
    /// The acknowledgement covers all that was outstanding at the timeout.
    pub recovered: bool,
    /// SACK reported new bytes, or the acknowledgement was a duplicate.
    pub duplicate: bool,
    /// New data has been sent since the timeout.
    pub sent_new: bool,
    /// There is new data to send, and the peer's window allows it.
    pub can_send_new: bool,
}

/// The sender's next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SenderAction {
    /// Recover in the conventional way: retransmit the lost segments.
    Conventional,
    /// Send new data, and no retransmission, until the next acknowledgement (step 2b).
    SendNew,
    /// Undo the effects of the timeout, which was spurious (step 3b).
    Spurious,
}

/// The state of the detection.
#[derive(Clone, Copy, Debug, Default)]
pub struct Frto {
    open: bool,
}

impl Frto {
    /// Tells that a timeout happened. `possible` is true if F-RTO is enabled and may run for this
    /// timeout; otherwise nothing is detected until the next one.
    pub fn on_timeout(&mut self, possible: bool) {
        self.open = possible;
    }

    /// Returns true while it is undecided if the timeout was spurious.
    pub fn is_open(&self) -> bool {
        self.open
    }

    /// Processes an acknowledgement and returns the next step.
    pub fn on_ack(&mut self, facts: &Facts) -> SenderAction {
        if !self.open {
            return SenderAction::Conventional;
        }
        if facts.original_arrived {
            self.open = false;
            return SenderAction::Spurious;
        }
        if facts.sent_new {
            // Step 3a: the new data caused a duplicate acknowledgement, so the bytes before it are
            // missing.
            if facts.duplicate {
                self.open = false;
            }
        } else if facts.advanced && !facts.recovered {
            // Step 2b needs new data that may be sent. Without such data F-RTO cannot decide, and
            // recovery is conventional.
            if facts.can_send_new {
                return SenderAction::SendNew;
            }
            self.open = false;
        }
        if facts.recovered {
            self.open = false;
        }
        SenderAction::Conventional
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked() -> Frto {
        let mut frto = Frto::default();
        frto.on_timeout(true);
        frto
    }

    #[test]
    fn spurious_timeout_is_found_by_an_original_after_new_data() {
        let mut frto = asked();
        let advanced = Facts { advanced: true, can_send_new: true, ..Facts::default() };
        assert_eq!(frto.on_ack(&advanced), SenderAction::SendNew);
        let original = Facts { advanced: true, original_arrived: true, sent_new: true, ..advanced };
        assert_eq!(frto.on_ack(&original), SenderAction::Spurious);
        assert!(!frto.is_open());
    }

    #[test]
    fn a_duplicate_after_new_data_says_the_loss_was_real() {
        let mut frto = asked();
        let advanced = Facts { advanced: true, can_send_new: true, ..Facts::default() };
        assert_eq!(frto.on_ack(&advanced), SenderAction::SendNew);
        let duplicate = Facts { duplicate: true, sent_new: true, ..Facts::default() };
        assert_eq!(frto.on_ack(&duplicate), SenderAction::Conventional);
        assert!(!frto.is_open());
    }

    #[test]
    fn without_new_data_nothing_can_be_found_out() {
        let mut frto = asked();
        let advanced = Facts { advanced: true, ..Facts::default() };
        assert_eq!(frto.on_ack(&advanced), SenderAction::Conventional);
        assert!(!frto.is_open());
    }

    #[test]
    fn a_first_duplicate_leaves_the_question_open() {
        let mut frto = asked();
        let duplicate = Facts { duplicate: true, ..Facts::default() };
        assert_eq!(frto.on_ack(&duplicate), SenderAction::Conventional);
        assert!(frto.is_open());
    }

    #[test]
    fn nothing_is_asked_about_a_second_timeout() {
        let mut frto = asked();
        frto.on_timeout(false);
        let original = Facts { original_arrived: true, ..Facts::default() };
        assert_eq!(frto.on_ack(&original), SenderAction::Conventional);
    }
}
