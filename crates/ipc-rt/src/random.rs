//! The random values of generated tests: `docs/reference/idl-random.md`, and mutations of messages.

use core::any::{Any, TypeId};
use std::collections::HashMap;

use super::loopback::Message;
use super::{EncodeError, Forms, Shared};
use std::os::fd::OwnedFd;

/// A stream of values.
#[derive(Debug)]
pub struct Random {
    state: u64,
    depth: u32,
    /// The last finished object behind a `ptr` pointer, by type.
    finished: HashMap<TypeId, Box<dyn Any>>,
}

impl Random {
    /// The stream of operation `opnum` in direction `dir` (1 request, 2 reply).
    #[must_use]
    pub fn stream(seed: u64, opnum: u16, dir: u64) -> Self {
        let mut x = seed
            .wrapping_mul(0x9E37_79B9_7F4A_7C15)
            .wrapping_add(u64::from(opnum).wrapping_mul(0xBF58_476D_1CE4_E5B9))
            .wrapping_add(dir.wrapping_mul(0x94D0_49BB_1331_11EB));
        x ^= x >> 30;
        x = x.wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x ^= x >> 27;
        x = x.wrapping_mul(0x94D0_49BB_1331_11EB);
        x ^= x >> 31;
        Self { state: x.max(1), depth: 0, finished: HashMap::new() }
    }

    /// The next 64 bits.
    #[allow(clippy::should_implement_trait, reason = "an endless stream is no iterator")]
    pub fn next(&mut self) -> u64 {
        self.state ^= self.state >> 12;
        self.state ^= self.state << 25;
        self.state ^= self.state >> 27;
        self.state.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// The upper `width` bits (1 to 64) of the next 64.
    pub fn bits(&mut self, width: u32) -> u64 {
        self.next() >> (64 - width)
    }

    /// A number below `n`; 0 for `n` = 0.
    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n.max(1)
    }

    /// A floating-point value, exact in 32 bits.
    pub fn float(&mut self) -> f32 {
        let centred = i32::try_from(self.bits(24)).unwrap_or(0) - 0x80_0000;
        centred as f32 / 16.0
    }

    /// An integer from `low` to `high`.
    pub fn ranged(&mut self, low: i128, high: i128) -> i128 {
        let count = high - low + 1;
        match u64::try_from(count) {
            Ok(count) => low + i128::from(self.below(count)),
            Err(_) => low + i128::from(self.next()),
        }
    }

    /// A counter: a small number within its range.
    pub fn counter(&mut self, low: i128, high: i128) -> i128 {
        let most = (9_u64 >> self.depth.min(63)).max(1);
        let count = u64::try_from(high - low + 1).unwrap_or(u64::MAX).min(most);
        low + i128::from(self.below(count))
    }

    /// Returns true if a `unique` pointer is present.
    pub fn present(&mut self) -> bool {
        self.depth < 4 && self.bits(2) != 0
    }

    /// The number of characters of a string with room for `bound`, terminator included.
    pub fn string_len(&mut self, bound: Option<i128>) -> usize {
        let most = bound.map_or(17, |bound| bound.clamp(1, 17) as u64);
        self.below(most) as usize
    }

    /// Characters that are not zero.
    pub fn narrow(&mut self, bound: Option<i128>) -> std::ffi::CString {
        let len = self.string_len(bound);
        let bytes: Vec<u8> = (0..len).map(|_| 1 + self.below(255) as u8).collect();
        std::ffi::CString::new(bytes).unwrap_or_default()
    }

    /// Wide characters that are not zero.
    pub fn wide(&mut self, bound: Option<i128>) -> Vec<u16> {
        let len = self.string_len(bound);
        (0..len).map(|_| 1 + self.below(65535) as u16).collect()
    }

    /// Draws one level further down.
    pub fn deeper<R>(&mut self, draw: impl FnOnce(&mut Self) -> R) -> R {
        self.depth += 1;
        let value = draw(self);
        self.depth -= 1;
        value
    }

    /// `count` elements, one level further down.
    pub fn many<R>(&mut self, count: usize, mut draw: impl FnMut(&mut Self) -> R) -> Vec<R> {
        self.deeper(|r| (0..count).map(|_| draw(r)).collect())
    }

    /// A `ptr` pointer; an object met before may come again if `shares`.
    pub fn shared<T: 'static>(
        &mut self,
        shares: bool,
        draw: impl FnOnce(&mut Self) -> T,
    ) -> Option<Shared<T>> {
        if self.depth >= 4 {
            return None;
        }
        let choice = self.bits(2);
        if choice == 0 {
            return None;
        }
        if choice == 1
            && shares
            && let Some(last) = self.finished.get(&TypeId::of::<T>())
        {
            return last.downcast_ref::<Shared<T>>().cloned();
        }
        let object = Shared::new(self.deeper(draw));
        if shares {
            self.finished.insert(TypeId::of::<T>(), Box::new(object.clone()));
        }
        Some(object)
    }

    /// Any descriptor, or none.
    pub fn descriptor(&mut self) -> Option<OwnedFd> {
        if self.bits(1) == 0 { None } else { any_descriptor() }
    }

    /// An interface reference of `uuid`, of any if `None`.
    pub fn interface(&mut self, uuid: Option<super::Uuid>) -> Option<super::Interface> {
        if self.bits(1) == 0 {
            return None;
        }
        let uuid = uuid.unwrap_or_else(|| core::array::from_fn(|_| self.bits(8) as u8));
        Some(super::Interface { uuid, socket: any_descriptor().into() })
    }

    /// Changes a few bits, words or the length of a body.
    pub fn mutate(&mut self, body: &mut Vec<u64>) {
        for _ in 0..=self.below(2) {
            let at = self.below(body.len() as u64) as usize;
            match (self.below(8), body.get_mut(at)) {
                (0, _) => body.truncate(at),
                (1, _) => body.push(0),
                (2, Some(word)) => *word = self.next(),
                (3, Some(word)) => *word = 0,
                (4, Some(word)) => *word = word.wrapping_add(1),
                (5, Some(word)) => *word ^= 1 << (32 + self.below(3)),
                (_, Some(word)) => *word ^= 1 << self.below(64),
                (_, None) => body.push(self.next()),
            }
        }
    }
}

/// Returns true if an array of `size` elements, `length` of them from `first` on, may be drawn.
#[must_use]
pub fn fits(size: i128, first: i128, length: i128) -> bool {
    (0..=64).contains(&size) && first >= 0 && length >= 0 && first + length <= size
}

/// A duplicate of a descriptor, if there is one.
#[must_use]
pub fn duplicate(fd: &Option<OwnedFd>) -> Option<OwnedFd> {
    fd.as_ref().and_then(|fd| fd.try_clone().ok())
}

/// Returns true if two messages have the same body.
///
/// # Errors
/// What differs, for people.
pub fn same(
    want: Result<Message, EncodeError>,
    got: Result<Message, EncodeError>,
) -> Result<(), String> {
    match (want, got) {
        (Ok(want), Ok(got)) if want.body == got.body => Ok(()),
        (Ok(want), Ok(got)) => {
            let at = want.body.iter().zip(&got.body).position(|(a, b)| a != b);
            let at = at.unwrap_or(want.body.len().min(got.body.len())) * 8;
            Err(format!(
                "bodies of {} and {} words differ at byte {at}",
                want.body.len(),
                got.body.len()
            ))
        }
        (want, got) => Err(format!("not encoded: {:?}, {:?}", want.err(), got.err())),
    }
}

/// Mutates the messages that `message` makes (in either form) and reads them by `read`, which
/// answers `None` if they are refused and what they encode to if not.
///
/// # Panics
/// If something is read that encodes to other bytes, or an unchanged message is refused.
pub fn attack(
    seed: u64,
    message: &dyn Fn(Forms) -> Result<Message, EncodeError>,
    read: &dyn Fn(&mut Message) -> Option<Result<Message, EncodeError>>,
) {
    let mut random = Random::stream(seed, 0, 3);
    for round in 0..12 {
        let by_reference = round % 4 == 3;
        let mut attacked = match message(if by_reference { Forms::above(8) } else { Forms::BODY }) {
            Ok(message) => message,
            Err(error) => panic!("seed {seed}: not encoded: {error}"),
        };
        if round > 0 {
            random.mutate(&mut attacked.body);
        }
        match read(&mut attacked) {
            None => assert!(round > 0, "seed {seed}: refused as it was sent"),
            Some(Err(error)) => panic!("seed {seed}: read what cannot be sent: {error}"),
            Some(Ok(again)) if !by_reference => {
                assert_eq!(again.body, attacked.body, "seed {seed}: read as something else");
            }
            Some(Ok(_)) => {}
        }
    }
}

/// Some open file; tests never look at which.
fn any_descriptor() -> Option<OwnedFd> {
    std::fs::File::open("/dev/null").ok().map(Into::into)
}
