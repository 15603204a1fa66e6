//! How large a body will be: the pass over the arguments before a message is begun.
//!
//! It also refuses what may not travel, so that writing cannot fail half way. It takes the same
//! decisions as `encode`, in any order, since only sums and counts come out.

use super::EncodeError;
use super::item::{FDS_MAX, ITEMS_MAX};
use super::shared::{LazyNumbers, Shared};

/// Most levels of objects; the primary block is level 0.
pub(super) const LEVELS_MAX: u32 = 32;

/// Which arrays of a message go by reference: decided once for a message, so that measuring and
/// writing cannot disagree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forms {
    by_reference: bool,
    auto: usize,
}

impl Forms {
    /// No array goes by reference: everything is in the body.
    pub const BODY: Self = Self { by_reference: false, auto: usize::MAX };

    /// Arrays go by reference above their thresholds, `auto` bytes where the interface sets none.
    #[must_use]
    pub const fn above(auto: usize) -> Self {
        Self { by_reference: true, auto }
    }

    /// Arrays go by reference above their thresholds, this machine's where the interface sets none.
    #[inline]
    #[must_use]
    pub fn machine() -> Self {
        Self::above(super::threshold::reference_threshold())
    }

    /// Returns true if an array of `bytes` bytes goes by reference under `threshold`.
    #[inline]
    pub(super) fn refers(self, bytes: usize, threshold: usize) -> bool {
        self.by_reference && bytes >= threshold && bytes > 0
    }

    #[inline]
    pub(super) fn auto(self) -> usize {
        self.auto
    }
}

/// The result of measuring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measured {
    /// Bytes of the body.
    pub body_len: usize,
    /// Which arrays go by reference; none, if there are more of them than a message can take.
    pub forms: Forms,
}

/// Adds up a body.
#[derive(Debug)]
pub struct Measure {
    body_len: usize,
    level: u32,
    items: usize,
    fds: usize,
    forms: Forms,
    numbers: LazyNumbers,
}

/// Measures what `visit` visits, in the body alone if there are too many string items for one
/// message.
///
/// # Errors
/// Those of `visit`, and [`EncodeError::Descriptors`].
#[inline]
pub fn measure(
    primary: usize,
    forms: Forms,
    visit: impl Fn(&mut Measure) -> Result<(), EncodeError>,
) -> Result<Measured, EncodeError> {
    let mut m = Measure::new(primary, forms);
    visit(&mut m)?;
    if m.items > ITEMS_MAX || m.fds > FDS_MAX {
        return measure_crowded(primary, visit);
    }
    Ok(Measured { body_len: m.body_len, forms })
}

/// Measures again, for the body alone. Takes the closure by value, so that what it holds need not
/// be in memory in the common case.
#[cold]
#[inline(never)]
fn measure_crowded(
    primary: usize,
    visit: impl Fn(&mut Measure) -> Result<(), EncodeError>,
) -> Result<Measured, EncodeError> {
    let mut m = Measure::new(primary, Forms::BODY);
    visit(&mut m)?;
    if m.fds > FDS_MAX {
        return Err(EncodeError::Descriptors);
    }
    Ok(Measured { body_len: m.body_len, forms: Forms::BODY })
}

impl Measure {
    #[inline]
    fn new(primary: usize, forms: Forms) -> Self {
        Self {
            body_len: primary,
            level: 0,
            items: 0,
            fds: 0,
            forms,
            numbers: LazyNumbers::default(),
        }
    }

    /// Returns the threshold of arrays for which the interface sets none.
    #[inline]
    #[must_use]
    pub fn auto(&self) -> usize {
        self.forms.auto()
    }

    /// Counts a descriptor, if there is one.
    #[inline]
    pub fn fd(&mut self, present: bool) {
        self.fds += usize::from(present);
    }

    /// Adds an object of `bytes` bytes, without what it refers to.
    #[inline]
    fn add(&mut self, bytes: usize) {
        // Saturated, it is larger than any message can be. A size that wraps here belongs to no
        // slice.
        let padded = bytes.wrapping_add(7) & !7;
        self.body_len = self.body_len.saturating_add(padded);
    }

    /// Adds an array of plain values or a string: `bytes` with the terminator.
    ///
    /// # Errors
    /// [`EncodeError::TooLong`] if `count` does not fit the header; [`EncodeError::Depth`].
    #[inline]
    pub fn flat(
        &mut self,
        count: usize,
        bytes: usize,
        threshold: usize,
    ) -> Result<(), EncodeError> {
        if count > u32::MAX as usize {
            return Err(EncodeError::TooLong);
        }
        if bytes == 0 {
            return Ok(());
        }
        if self.forms.refers(bytes, threshold) {
            self.items += 1;
            return Ok(());
        }
        if self.level >= LEVELS_MAX {
            return Err(EncodeError::Depth);
        }
        self.add(bytes);
        Ok(())
    }

    /// Adds an object of `count` elements of `size` bytes, and what `visit` says it refers to.
    ///
    /// # Errors
    /// As [`Measure::flat`], and those of `visit`.
    #[inline]
    pub fn object(
        &mut self,
        count: usize,
        size: usize,
        visit: impl FnOnce(&mut Self) -> Result<(), EncodeError>,
    ) -> Result<(), EncodeError> {
        if count > u32::MAX as usize {
            return Err(EncodeError::TooLong);
        }
        if count == 0 {
            return Ok(());
        }
        if self.level >= LEVELS_MAX {
            return Err(EncodeError::Depth);
        }
        self.add(count.saturating_mul(size).min(usize::MAX - 7));
        self.level += 1;
        visit(self)?;
        self.level -= 1;
        Ok(())
    }

    /// Returns the object behind a `ptr` pointer, if it has not been met before.
    pub fn shared<'v, T>(&mut self, pointer: &'v Option<Shared<T>>) -> Option<&'v T> {
        let object = pointer.as_ref()?;
        let is_new = self.numbers.get().name(Shared::address(object), 0).is_new;
        is_new.then_some(&**object)
    }

    /// Runs `visit` on a value that does not live as long as the message: see
    /// [`super::Writer::copying`].
    ///
    /// # Errors
    /// Those of `visit`.
    pub fn copying(
        &mut self,
        visit: impl FnOnce(&mut Self) -> Result<(), EncodeError>,
    ) -> Result<(), EncodeError> {
        let outer = core::mem::replace(&mut self.forms, Forms::BODY);
        let result = visit(self);
        self.forms = outer;
        result
    }
}

/// Checks a condition on values that are to travel.
///
/// # Errors
/// `error` if the condition does not hold.
#[inline]
pub fn ensure(condition: bool, error: EncodeError) -> Result<(), EncodeError> {
    if condition { Ok(()) } else { Err(error) }
}
