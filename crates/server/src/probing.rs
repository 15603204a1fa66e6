//! Questions of the front process to the prober, their answers, and the prober's reports, as bytes.
//!
//! Pure. Each message has one fixed form, and its reader checks all of it: neither process believes
//! the other. Not here: asking (`prober`), answering (`apart::probe`).

use crate::holders::{Object, Question};
use sojourn_session::{Inode, ProcessId, ReasonT};

/// Bytes of a question about one object, and of its answer.
pub(crate) const ASK_LEN: usize = 16;
/// The most questions about holders in one message.
pub(crate) const QUESTIONS_MAX: usize = 256;
/// The most bytes of a message about holders.
pub(crate) const LOOK_MAX: usize = NUMBER_LEN + QUESTIONS_MAX * QUESTION_LEN;
/// Bytes of the report that a pipe was opened once more.
pub(crate) const OPENED_LEN: usize = 4;
const NUMBER_LEN: usize = 8;
const QUESTION_LEN: usize = 16;

const PIN: u32 = 1;
const UNPIN: u32 = 2;
const USER: u32 = 3;

/// A question about one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProbeRequest {
    /// Pin the pipe that goes beside the question (`pins`); the answer is the number of its watch.
    Pin,
    /// Let go of a pin on the pipe of this watch; there is no answer.
    Unpin(u32),
    /// Tell the user of the process with this number.
    User(ProcessId),
}

/// A verdict about an end: see [`crate::holders::find_holders`].
pub(crate) type Verdict = Result<(), ReasonT>;

impl ProbeRequest {
    /// Encodes the question; `number` comes back with the answer.
    pub(crate) fn to_bytes(self, number: u32) -> [u8; ASK_LEN] {
        let (what, argument) = match self {
            Self::Pin => (PIN, 0),
            Self::Unpin(watch) => (UNPIN, watch),
            Self::User(pid) => (USER, pid.0),
        };
        words([what, number, argument, 0])
    }

    /// Decodes a question.
    pub(crate) fn read(bytes: &[u8]) -> Option<NumberedRequest> {
        let [what, number, argument, rest] = numbers(bytes)?;
        let ask = match (what, argument, rest) {
            (PIN, 0, 0) => Self::Pin,
            (UNPIN, watch, 0) => Self::Unpin(watch),
            (USER, pid, 0) => Self::User(ProcessId(pid)),
            _ => return None,
        };
        Some(NumberedRequest { number, request: ask })
    }
}

/// A question as it was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NumberedRequest {
    /// Comes back with the answer.
    pub(crate) number: u32,
    pub(crate) request: ProbeRequest,
}

/// An answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProbeAnswer {
    /// The question's.
    pub(crate) number: u32,
    /// A value, or the kernel's error.
    pub(crate) value: Result<u32, u32>,
}

/// Questions about holders, as they were sent.
#[derive(Debug)]
pub(crate) struct HolderQuestions {
    pub(crate) number: u64,
    pub(crate) questions: Vec<Question>,
}

/// The answer to [`HolderQuestions`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct HolderVerdicts {
    pub(crate) number: u64,
    pub(crate) verdicts: Vec<Verdict>,
}

/// Encodes the answer to the question of that number: a value, or the kernel's error.
pub(crate) fn answer(number: u32, value: Result<u32, u32>) -> [u8; ASK_LEN] {
    match value {
        Ok(value) => words([number, 0, value, 0]),
        Err(error) => words([number, 1, error, 0]),
    }
}

/// Decodes an answer.
pub(crate) fn read_answer(bytes: &[u8]) -> Option<ProbeAnswer> {
    match numbers(bytes)? {
        [number, 0, value, 0] => Some(ProbeAnswer { number, value: Ok(value) }),
        [number, 1, error, 0] => Some(ProbeAnswer { number, value: Err(error) }),
        _ => None,
    }
}

/// Encodes questions about holders, [`QUESTIONS_MAX`] at most.
pub(crate) fn questions(number: u64, all: &[Question]) -> Vec<u8> {
    let mut bytes = number.to_ne_bytes().to_vec();
    for Question { pid, object } in all {
        let (what, inode) = match *object {
            Object::Socket { inode } => (0u32, inode),
            Object::Pipe { inode, writes } => (1 + u32::from(writes), inode),
            Object::Fifo { inode, writes } => (3 + u32::from(writes), inode),
        };
        bytes.extend(pid.0.to_ne_bytes());
        bytes.extend(what.to_ne_bytes());
        bytes.extend(inode.0.to_ne_bytes());
    }
    bytes
}

/// Decodes questions about holders.
pub(crate) fn read_questions(bytes: &[u8]) -> Option<HolderQuestions> {
    let (number, rest) = bytes.split_first_chunk::<NUMBER_LEN>()?;
    let (all, left) = rest.as_chunks::<QUESTION_LEN>();
    if !left.is_empty() || all.len() > QUESTIONS_MAX {
        return None;
    }
    let question = |bytes: &[u8; QUESTION_LEN]| {
        let [pid, what, low, high] = numbers(bytes)?;
        let [a, b, c, d] = low.to_ne_bytes();
        let [e, f, g, h] = high.to_ne_bytes();
        let inode = Inode(u64::from_ne_bytes([a, b, c, d, e, f, g, h]));
        let object = match what {
            0 => Object::Socket { inode },
            1 | 2 => Object::Pipe { inode, writes: what == 2 },
            3 | 4 => Object::Fifo { inode, writes: what == 4 },
            _ => return None,
        };
        Some(Question { pid: ProcessId(pid), object })
    };
    let questions = all.iter().map(question).collect::<Option<Vec<_>>>()?;
    Some(HolderQuestions { number: u64::from_ne_bytes(*number), questions })
}

/// Encodes verdicts about the questions of that number.
pub(crate) fn verdicts(number: u64, all: &[Verdict]) -> Vec<u8> {
    let mut bytes = number.to_ne_bytes().to_vec();
    bytes.extend(all.iter().map(|verdict| match verdict {
        Ok(()) => ReasonT::None as u8,
        Err(reason) => *reason as u8,
    }));
    bytes
}

/// Decodes `count` verdicts.
pub(crate) fn read_verdicts(bytes: &[u8], count: usize) -> Option<HolderVerdicts> {
    let (number, rest) = bytes.split_first_chunk::<NUMBER_LEN>()?;
    if rest.len() != count {
        return None;
    }
    let verdict = |byte: &u8| match ReasonT::try_from(i32::from(*byte)).ok()? {
        ReasonT::None => Some(Ok(())),
        reason => Some(Err(reason)),
    };
    let verdicts = rest.iter().map(verdict).collect::<Option<Vec<_>>>()?;
    Some(HolderVerdicts { number: u64::from_ne_bytes(*number), verdicts })
}

/// Encodes that the pipe of that watch was opened once more; 0: any pipe may have been.
pub(crate) fn opened(watch: u32) -> [u8; OPENED_LEN] {
    watch.to_ne_bytes()
}

/// Decodes [`opened`].
pub(crate) fn read_opened(bytes: &[u8]) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.try_into().ok()?))
}

fn words(all: [u32; 4]) -> [u8; ASK_LEN] {
    let mut bytes = [0; ASK_LEN];
    for (place, word) in bytes.as_chunks_mut::<4>().0.iter_mut().zip(all) {
        *place = word.to_ne_bytes();
    }
    bytes
}

fn numbers(bytes: &[u8]) -> Option<[u32; 4]> {
    let bytes: &[u8; ASK_LEN] = bytes.try_into().ok()?;
    let mut all = [0; 4];
    for (number, bytes) in all.iter_mut().zip(bytes.as_chunks::<4>().0) {
        *number = u32::from_ne_bytes(*bytes);
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_and_answers_about_one_object_travel_whole_or_not_at_all() {
        for ask in
            [ProbeRequest::Pin, ProbeRequest::Unpin(7), ProbeRequest::User(ProcessId(u32::MAX))]
        {
            let bytes = ask.to_bytes(9);
            assert_eq!(
                ProbeRequest::read(&bytes),
                Some(NumberedRequest { number: 9, request: ask })
            );
            assert!((0..ASK_LEN).all(|len| ProbeRequest::read(&bytes[..len]).is_none()));
        }
        assert_eq!(ProbeRequest::read(&words([4, 0, 0, 0])), None);
        assert_eq!(ProbeRequest::read(&words([PIN, 0, 1, 0])), None);
        for value in [Ok(3), Err(13)] {
            let bytes = answer(5, value);
            assert_eq!(read_answer(&bytes), Some(ProbeAnswer { number: 5, value }));
            assert_eq!(read_answer(&bytes[1..]), None);
        }
        assert_eq!(read_answer(&words([5, 2, 0, 0])), None);
        assert_eq!(read_opened(&opened(7)), Some(7));
        assert_eq!(read_opened(&opened(7)[1..]), None);
    }

    #[test]
    fn questions_about_holders_travel_with_their_verdicts() {
        let inode = Inode(0x0123_4567_89ab_cdef);
        let objects = [
            Object::Socket { inode },
            Object::Pipe { inode, writes: false },
            Object::Pipe { inode, writes: true },
            Object::Fifo { inode, writes: false },
            Object::Fifo { inode, writes: true },
        ];
        let asked = objects.map(|object| Question { pid: ProcessId(4711), object });
        let bytes = questions(3, &asked);
        let HolderQuestions { number, questions: read } = read_questions(&bytes).unwrap();
        assert_eq!((number, read.len()), (3, asked.len()));
        assert!(read.iter().zip(asked).all(|(one, other)| one.object == other.object));
        assert!(read.iter().all(|one| one.pid == ProcessId(4711)));
        assert!(read_questions(&bytes[..bytes.len() - 1]).is_none());
        let too_many = vec![asked[0]; QUESTIONS_MAX + 1];
        assert!(read_questions(&questions(3, &too_many)).is_none());
        let given = [Ok(()), Err(ReasonT::SeveralHolders), Err(ReasonT::Closed)];
        let bytes = verdicts(3, &given);
        assert_eq!(
            read_verdicts(&bytes, 3),
            Some(HolderVerdicts { number: 3, verdicts: given.to_vec() })
        );
        assert_eq!(read_verdicts(&bytes, 2), None);
        let mut nonsense = bytes;
        nonsense[8] = 255;
        assert_eq!(read_verdicts(&nonsense, 3), None);
    }
}
