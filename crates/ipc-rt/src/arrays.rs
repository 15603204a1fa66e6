//! Arrays and strings of a received message, in whichever form they travel.
//!
//! Plain values in the body or in private string items are lent, not copied. What the peer can
//! still write is copied first and looked at afterwards.

use std::borrow::Cow;
use std::ffi::{CStr, CString};

use super::item::Item;
use super::pod::{Pod, Words, bytes_of_mut, cast, to_vec};
use super::slots::Slot;
use super::{Cause, DecodeError, Decoder, View};

/// The header of an array or string that is not null.
#[derive(Clone, Copy, Debug)]
pub struct Header {
    /// Elements transmitted, or characters without terminator.
    pub count: u32,
    form: u32,
    offset: usize,
}

/// Elements of no bytes may be this many: each costs work but no bytes.
const EMPTY_MAX: u32 = 1 << 16;

impl Header {
    /// Checks that the count is `expected`, where `docs/reference/idl-wire.md` demands it.
    ///
    /// # Errors
    /// [`Cause::Count`] if it is not.
    #[inline]
    pub fn expect(self, expected: i128) -> Result<Self, DecodeError> {
        if i128::from(self.count) == expected { Ok(self) } else { Err(self.error(Cause::Count)) }
    }

    /// Checks that the count is `bound` at most.
    ///
    /// # Errors
    /// [`Cause::Count`] if it is more.
    #[inline]
    pub fn at_most(self, bound: i128) -> Result<Self, DecodeError> {
        if i128::from(self.count) <= bound { Ok(self) } else { Err(self.error(Cause::Count)) }
    }

    #[cold]
    fn error(self, cause: Cause) -> DecodeError {
        DecodeError::new(cause, self.offset)
    }
}

impl<'m, const N: usize> View<'m, N> {
    /// Returns the header at `AT`; `None` is null.
    ///
    /// # Errors
    /// [`Cause::Form`] for a form that does not exist or a null with a count.
    #[inline]
    pub fn header_or_null<const AT: usize>(self) -> Result<Option<Header>, DecodeError> {
        let Words(count, form) = self.pair::<AT>();
        match form {
            1..=3 => Ok(Some(Header { count, form, offset: self.offset + AT })),
            0 if count == 0 => Ok(None),
            _ => Err(self.error(Cause::Form, AT)),
        }
    }

    /// Returns the header at `AT`, which must not be null.
    ///
    /// # Errors
    /// [`Cause::Form`].
    #[inline]
    pub fn header<const AT: usize>(self) -> Result<Header, DecodeError> {
        match self.header_or_null::<AT>()? {
            Some(header) => Ok(header),
            None => Err(self.error(Cause::Form, AT)),
        }
    }

    /// Checks size and first element in the second half of a varying array's header, which is at
    /// `AT` (8 bytes after the header itself).
    ///
    /// # Errors
    /// [`Cause::Count`] if they are not `size` and `first` or the elements do not fit.
    #[inline]
    pub fn varying<const AT: usize>(
        self,
        header: Header,
        size: i128,
        first: i128,
    ) -> Result<(), DecodeError> {
        let Words(size_sent, first_sent) = self.pair::<AT>();
        let end = u64::from(first_sent) + u64::from(header.count);
        let fits = end <= u64::from(size_sent);
        let agree = i128::from(size_sent) == size && i128::from(first_sent) == first;
        self.ensure(fits && agree, Cause::Count, AT)
    }
}

impl<'m> Decoder<'m> {
    /// Takes the string item or grant that the header names, if there is one.
    #[inline]
    fn item(&mut self, header: Header) -> Option<&'m Item<'m>> {
        if header.form == 2 {
            self.now.items += 1;
            self.items.get(usize::from(self.now.items) - 1)
        } else {
            self.now.grants += 1;
            self.grants.get(usize::from(self.now.grants) - 1)
        }
    }

    /// Reads an array of plain values.
    ///
    /// # Errors
    /// [`Cause::Short`], [`Cause::Item`], [`Cause::Padding`], [`Cause::Depth`].
    #[inline(always)]
    pub fn pods<T: Pod>(&mut self, header: Header) -> Result<Cow<'m, [T]>, DecodeError> {
        if header.form != 1 {
            return pods_beside(header, self.item(header));
        }
        // At most 32 bits times 8: cannot overflow.
        let bytes = self.level_of_bytes(header.count as usize * size_of::<T>())?;
        Ok(lend(bytes))
    }

    /// Takes the bytes of an object that refers to nothing.
    #[inline]
    fn level_of_bytes(&mut self, len: usize) -> Result<&'m [u8], DecodeError> {
        if len > 0 {
            self.descend()?;
            self.ascend();
        }
        self.take(len)
    }

    /// Copies an array of plain values to `target` and returns their number.
    ///
    /// # Errors
    /// As [`Decoder::pods`]; [`Cause::Count`] if there are more than `target` holds.
    #[inline]
    pub fn pods_into<T: Pod>(
        &mut self,
        header: Header,
        target: &mut [T],
    ) -> Result<usize, DecodeError> {
        let count = header.count as usize;
        let Some(target) = target.get_mut(..count) else {
            return Err(header.error(Cause::Count));
        };
        let len = size_of_val(target);
        if header.form == 1 {
            let bytes = self.level_of_bytes(len)?;
            sojourn_shm::copy::slice(bytes, bytes_of_mut(target));
        } else {
            sized(header, self.item(header), Some(len))?.copy_into(bytes_of_mut(target));
        }
        Ok(count)
    }

    /// Reads an array of elements of `M` bytes, each by `read`. `flat`: their bytes are all there
    /// is of them and any are valid, so that they may travel as an item.
    ///
    /// # Errors
    /// As [`Decoder::pods`]; [`Cause::Form`] for an item if not `flat`; those of `read`.
    #[inline]
    pub fn array<const M: usize, R>(
        &mut self,
        header: Header,
        flat: bool,
        slots: &[Slot],
        mut read: impl for<'x> FnMut(&mut Self, View<'x, M>) -> Result<R, DecodeError>,
    ) -> Result<Vec<R>, DecodeError> {
        if M == 0 && header.count > EMPTY_MAX {
            return Err(header.error(Cause::Count));
        }
        if header.form == 1 {
            return self.elements::<M, R>(header.count as usize, slots, &mut read);
        }
        if !flat {
            return Err(header.error(Cause::Form));
        }
        let item = sized(header, self.item(header), (header.count as usize).checked_mul(M))?;
        let copy;
        let bytes = match item {
            Item::Private(bytes) => *bytes,
            Item::Shared(_) => {
                copy = item.to_vec();
                &copy
            }
        };
        let chunks = bytes.as_chunks::<M>().0.iter();
        chunks.map(|chunk| read(self, View { bytes: chunk, offset: header.offset })).collect()
    }

    /// Reads a string.
    ///
    /// # Errors
    /// As [`Decoder::pods`]; [`Cause::Terminator`] unless its one zero is where the length says.
    #[inline(always)]
    pub fn string(&mut self, header: Header) -> Result<Cow<'m, CStr>, DecodeError> {
        if header.form != 1 {
            return string_beside(header, self.item(header));
        }
        let bytes = self.level_of_bytes(header.count as usize + 1)?;
        match CStr::from_bytes_with_nul(bytes) {
            Ok(text) => Ok(Cow::Borrowed(text)),
            Err(_) => Err(header.error(Cause::Terminator)),
        }
    }

    /// Reads a wide string, without its terminator.
    ///
    /// # Errors
    /// As [`Decoder::string`].
    pub fn wide(&mut self, header: Header) -> Result<Cow<'m, [u16]>, DecodeError> {
        let wrong = || header.error(Cause::Terminator);
        let with_zero = Header { count: header.count.checked_add(1).ok_or_else(wrong)?, ..header };
        let mut characters = self.pods::<u16>(with_zero)?;
        let zero = characters.iter().position(|c| *c == 0);
        if zero != Some(header.count as usize) {
            return Err(wrong());
        }
        match &mut characters {
            Cow::Borrowed(all) => *all = &all[..header.count as usize],
            Cow::Owned(all) => all.truncate(header.count as usize),
        }
        Ok(characters)
    }
}

/// Returns the item, which must have `len` bytes.
fn sized<'m>(
    header: Header,
    item: Option<&'m Item<'m>>,
    len: Option<usize>,
) -> Result<&'m Item<'m>, DecodeError> {
    item.filter(|item| Some(item.len()) == len).ok_or_else(|| header.error(Cause::Item))
}

#[cold]
fn pods_beside<'m, T: Pod>(
    header: Header,
    item: Option<&'m Item<'m>>,
) -> Result<Cow<'m, [T]>, DecodeError> {
    let len = (header.count as usize).checked_mul(size_of::<T>());
    Ok(match sized(header, item, len)? {
        Item::Private(bytes) => lend(bytes),
        shared @ Item::Shared(_) => Cow::Owned(copied(shared)),
    })
}

#[cold]
fn string_beside<'m>(
    header: Header,
    item: Option<&'m Item<'m>>,
) -> Result<Cow<'m, CStr>, DecodeError> {
    let item = sized(header, item, Some(header.count as usize + 1))?;
    let text = match item {
        Item::Private(bytes) => CStr::from_bytes_with_nul(bytes).ok().map(Cow::Borrowed),
        Item::Shared(_) => CString::from_vec_with_nul(item.to_vec()).ok().map(Cow::Owned),
    };
    text.ok_or(header.error(Cause::Terminator))
}

/// Returns bytes as values: lent if aligned, otherwise copied.
#[inline]
fn lend<T: Pod>(bytes: &[u8]) -> Cow<'_, [T]> {
    match cast(bytes) {
        Some(values) => Cow::Borrowed(values),
        None => unaligned(bytes),
    }
}

#[cold]
fn unaligned<T: Pod>(bytes: &[u8]) -> Cow<'_, [T]> {
    Cow::Owned(to_vec(bytes))
}

fn copied<T: Pod>(item: &Item<'_>) -> Vec<T> {
    let mut values = vec![T::ZERO; item.len() / size_of::<T>()];
    item.copy_into(bytes_of_mut(&mut values));
    values
}
