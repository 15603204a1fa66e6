//! Tests of an inbox against a simple model.
use super::*;
use proptest::prelude::*;
use std::cell::RefCell;
use std::rc::Rc;

/// The answers of receivers: status and data.
type Got = Rc<RefCell<Vec<(u32, Vec<u8>)>>>;

struct Double {
    got: Got,
    is_gone: bool,
}

impl Receiver for Double {
    fn answer(self, status: u32, _: SocketAddrV4, data: &[u8]) -> Result<(), Gone> {
        if self.is_gone {
            return Err(Gone);
        }
        self.got.borrow_mut().push((status, data.to_vec()));
        Ok(())
    }
}

#[derive(Clone, Debug)]
enum Step {
    FromNetwork(u8),
    FromHere(u8),
    Fails(u32),
    Receives { is_gone: bool },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => any::<u8>().prop_map(Step::FromNetwork),
        3 => any::<u8>().prop_map(Step::FromHere),
        1 => (1_u32..200).prop_map(Step::Fails),
        5 => any::<bool>().prop_map(|is_gone| Step::Receives { is_gone }),
    ];
    proptest::collection::vec(step, 0..150)
}

/// A simple model of an inbox.
#[derive(Default)]
struct Model {
    queue: Vec<(u32, Vec<u8>)>,
    error: Option<u32>,
    waiting: Vec<bool>,
    got: Vec<(u32, Vec<u8>)>,
}

impl Model {
    fn comes(&mut self, what: (u32, Vec<u8>)) {
        while !self.waiting.is_empty() {
            if !self.waiting.remove(0) {
                self.got.push(what);
                return;
            }
        }
        match what.0 {
            0 if self.queue.len() < QUEUE_MAX => self.queue.push(what),
            0 => {}
            error => self.error = Some(error),
        }
    }

    fn receives(&mut self, is_gone: bool) {
        let has_error = self.error.is_some();
        if !has_error && self.queue.is_empty() {
            self.waiting.push(is_gone);
        } else if !is_gone {
            let got = match self.error.take() {
                Some(error) => (error, Vec::new()),
                None => self.queue.remove(0),
            };
            self.got.push(got);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_datagram_goes_to_one_receiver_in_order(steps in steps()) {
        let got = Got::default();
        let (mut inbox, mut model) = (Inbox::new(4), Model::default());
        let mut buffer = Datagram::empty();
        let from = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 9);
        for step in steps {
            match step {
                Step::FromNetwork(byte) => {
                    buffer.bytes[28..30].fill(byte);
                    (buffer.from, buffer.payload) = (from, 28..30);
                    inbox.arrive(&mut buffer);
                    model.comes((0, vec![byte; 2]));
                }
                Step::FromHere(byte) => {
                    inbox.arrive_from_here(from, &[byte; 3]);
                    model.comes((0, vec![byte; 3]));
                }
                Step::Fails(status) => {
                    inbox.fail(status);
                    model.comes((status, Vec::new()));
                }
                Step::Receives { is_gone } => {
                    inbox.receive(Double { got: Rc::clone(&got), is_gone });
                    model.receives(is_gone);
                }
            }
            prop_assert_eq!(&*got.borrow(), &model.got);
            prop_assert!(inbox.waiting.is_empty() || inbox.queue.is_empty());
            prop_assert_eq!(inbox.queue.len() + inbox.spare.len(), QUEUE_MAX, "no memory is lost");
        }
    }
}
