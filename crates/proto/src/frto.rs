//! F-RTO (RFC 5682, section 3, in the form for SACK): finds out whether a retransmission timeout
//! was spurious, by sending new data after the first acknowledgement and looking whether originals
//! arrive.
//!
//! Not here: marks, windows and their restoration ([`crate::recovery`]). The steps are those of
//! Linux's `tcp_process_loss`.

/// What an acknowledgement after a timeout tells.
#[derive(Clone, Copy, Debug, Default)]
pub struct Facts {
    /// Bytes that were sent once only, before the timeout, have arrived.
    pub original_arrived: bool,
    /// The acknowledgement number rose.
    pub advanced: bool,
    /// The acknowledgement covers all that was outstanding at the timeout.
    pub recovered: bool,
    /// Something was newly reported by SACK, or it was a duplicate acknowledgement.
    pub duplicate: bool,
    /// Something new has been sent since the timeout.
    pub sent_new: bool,
    /// There is new data to send, and the peer's window allows it.
    pub can_send_new: bool,
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Go on as after any timeout: send again what is lost.
    Conventional,
    /// Send new data, and nothing again, until the next acknowledgement (step 2b).
    SendNew,
    /// The timeout was spurious (step 3b): all is as it was before.
    Spurious,
}

/// Whether the question is open.
#[derive(Clone, Copy, Debug, Default)]
pub struct Frto {
    open: bool,
}

impl Frto {
    /// A timeout happened. `possible`: it is the first one for these data, and F-RTO is wanted.
    pub fn on_timeout(&mut self, possible: bool) {
        self.open = possible;
    }

    /// Whether it is not decided yet if the timeout was spurious.
    pub fn is_open(&self) -> bool {
        self.open
    }

    /// An acknowledgement came.
    pub fn on_ack(&mut self, facts: &Facts) -> Step {
        if !self.open {
            return Step::Conventional;
        }
        if facts.original_arrived {
            self.open = false;
            return Step::Spurious;
        }
        if facts.sent_new {
            // Step 3a: the new data made the peer repeat itself, so what is before it is missing.
            if facts.duplicate {
                self.open = false;
            }
        } else if facts.advanced && !facts.recovered {
            if facts.can_send_new {
                return Step::SendNew;
            }
            self.open = false;
        }
        if facts.recovered {
            self.open = false;
        }
        Step::Conventional
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
        assert_eq!(frto.on_ack(&advanced), Step::SendNew);
        let original = Facts { advanced: true, original_arrived: true, sent_new: true, ..advanced };
        assert_eq!(frto.on_ack(&original), Step::Spurious);
        assert!(!frto.is_open());
    }

    #[test]
    fn a_duplicate_after_new_data_says_the_loss_was_real() {
        let mut frto = asked();
        let advanced = Facts { advanced: true, can_send_new: true, ..Facts::default() };
        assert_eq!(frto.on_ack(&advanced), Step::SendNew);
        let duplicate = Facts { duplicate: true, sent_new: true, ..Facts::default() };
        assert_eq!(frto.on_ack(&duplicate), Step::Conventional);
        assert!(!frto.is_open());
    }

    #[test]
    fn without_new_data_nothing_can_be_found_out() {
        let mut frto = asked();
        let advanced = Facts { advanced: true, ..Facts::default() };
        assert_eq!(frto.on_ack(&advanced), Step::Conventional);
        assert!(!frto.is_open());
    }

    #[test]
    fn a_first_duplicate_leaves_the_question_open() {
        let mut frto = asked();
        let duplicate = Facts { duplicate: true, ..Facts::default() };
        assert_eq!(frto.on_ack(&duplicate), Step::Conventional);
        assert!(frto.is_open());
    }

    #[test]
    fn nothing_is_asked_about_a_second_timeout() {
        let mut frto = asked();
        frto.on_timeout(false);
        let original = Facts { original_arrived: true, ..Facts::default() };
        assert_eq!(frto.on_ack(&original), Step::Conventional);
    }
}
