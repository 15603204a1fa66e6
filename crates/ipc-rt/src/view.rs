//! A part of a message's body whose size is known at compile time.
//!
//! Not here: taking it from the body (`decode`).

use super::pod::{Pod, Words, load};
use super::{Cause, DecodeError};

/// `N` bytes of the body, to be read at offsets known at compile time.
#[derive(Clone, Copy, Debug)]
pub struct View<'m, const N: usize> {
    pub(super) bytes: &'m [u8; N],
    pub(super) offset: usize,
}

impl<'m, const N: usize> View<'m, N> {
    /// Returns the number at `AT`.
    #[inline(always)]
    #[must_use]
    pub fn get<const AT: usize, T: Pod>(self) -> T {
        const { assert!(AT + size_of::<T>() <= N, "a field ends outside its block") };
        load(self.bytes, AT).unwrap_or(T::ZERO)
    }

    /// Returns the two 32-bit words at `AT`.
    #[inline(always)]
    #[must_use]
    pub fn pair<const AT: usize>(self) -> Words {
        super::pod::split(self.get::<AT, u64>())
    }

    /// Returns the boolean at `AT`.
    ///
    /// # Errors
    /// [`Cause::Bool`] for a byte other than 0 and 1.
    #[inline(always)]
    pub fn boolean<const AT: usize>(self) -> Result<bool, DecodeError> {
        match self.get::<AT, u8>() {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(DecodeError::new(Cause::Bool, self.offset + AT)),
        }
    }

    /// Checks that the `LEN` bytes at `AT` are zero.
    ///
    /// # Errors
    /// [`Cause::Padding`] if not.
    #[inline(always)]
    pub fn zero<const AT: usize, const LEN: usize>(self) -> Result<(), DecodeError> {
        if *self.bytes::<AT, LEN>() == [0; LEN] {
            Ok(())
        } else {
            Err(DecodeError::new(Cause::Padding, self.offset + AT))
        }
    }

    /// Returns the `LEN` bytes at `AT`.
    #[inline(always)]
    #[must_use]
    pub fn bytes<const AT: usize, const LEN: usize>(self) -> &'m [u8; LEN] {
        const { assert!(AT + LEN <= N, "an array ends outside its block") };
        // SAFETY: inside the view by the assertion; bytes need no alignment.
        unsafe { &*self.bytes.as_ptr().add(AT).cast::<[u8; LEN]>() }
    }

    /// Returns the plain values at `AT`.
    #[inline(always)]
    #[must_use]
    pub fn pods<const AT: usize, T: Pod, const L: usize>(self) -> [T; L] {
        const { assert!(AT + size_of::<[T; L]>() <= N, "an array ends outside its block") };
        // SAFETY: inside the view by the assertion; every bit pattern is a T; unaligned read.
        unsafe { self.bytes.as_ptr().add(AT).cast::<[T; L]>().read_unaligned() }
    }

    /// Returns the `M` bytes at `AT` as a view of their own.
    #[inline(always)]
    #[must_use]
    pub fn sub<const AT: usize, const M: usize>(self) -> View<'m, M> {
        View { bytes: self.bytes::<AT, M>(), offset: self.offset + AT }
    }

    /// Reads the `COUNT` elements of `M` bytes at `AT`, each by `read`.
    ///
    /// # Errors
    /// Those of `read`.
    #[inline]
    pub fn array<const AT: usize, const M: usize, const COUNT: usize, R>(
        self,
        mut read: impl FnMut(View<'m, M>) -> Result<R, DecodeError>,
    ) -> Result<[R; COUNT], DecodeError> {
        const { assert!(AT + M * COUNT <= N, "an array ends outside its block") };
        try_array(|index| {
            let at = AT + index * M;
            let part = self.bytes[at..].first_chunk::<M>();
            let bytes = part.ok_or(DecodeError::new(Cause::Short, self.offset + at))?;
            read(View { bytes, offset: self.offset + at })
        })
    }

    /// Checks a condition on byte `at` of this view, in generated code.
    ///
    /// # Errors
    /// `cause` unless `condition` holds.
    #[inline(always)]
    pub fn ensure(self, condition: bool, cause: Cause, at: usize) -> Result<(), DecodeError> {
        if condition { Ok(()) } else { Err(DecodeError::new(cause, self.offset + at)) }
    }

    /// Returns the error `cause` at byte `at` of this view.
    #[cold]
    #[must_use]
    pub fn error(self, cause: Cause, at: usize) -> DecodeError {
        DecodeError::new(cause, self.offset + at)
    }
}

/// Returns an array whose elements are made by `make`, which may fail.
///
/// # Errors
/// The first error of `make`.
#[inline]
pub fn try_array<R, E, const N: usize>(
    mut make: impl FnMut(usize) -> Result<R, E>,
) -> Result<[R; N], E> {
    let mut failed = None;
    let values: [Option<R>; N] = core::array::from_fn(|index| {
        if failed.is_some() {
            return None;
        }
        make(index).map_err(|error| failed = Some(error)).ok()
    });
    match failed {
        Some(error) => Err(error),
        None => Ok(values.map(|v| match v {
            Some(v) => v,
            None => unreachable!("every element was made, or the error was returned"),
        })),
    }
}
