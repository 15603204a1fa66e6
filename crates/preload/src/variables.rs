//! Environment lists of `NAME=VALUE` strings as exec(3) takes them, read and copied without
//! allocating.
//!
//! Nothing here allocates because a child of vfork(2) shares its parent's memory. Not here: the
//! variables that are put into such lists (`follow`, `loaded`).

use core::ffi::{CStr, c_char};

/// A string that ends with a zero byte.
pub(crate) type Text = *const c_char;
/// An array of strings that ends with a null pointer.
pub(crate) type List = *const *const c_char;

/// The variable in which ld.so(8) finds the libraries to preload.
pub(crate) const PRELOAD: &[u8] = b"LD_PRELOAD=";
/// The file name of this library.
pub(crate) const LIBRARY: &[u8] = b"libsojourn_preload.so";
/// The most variables that a list may have to be copied. Longer environments are passed on as they
/// are.
pub(crate) const MOST: usize = 1000;

/// Returns true if a list is null or its beginning can be read. The kernel accepts a null list as
/// well.
pub(crate) fn is_list(list: List) -> bool {
    // SAFETY: plain data, which is read only if it is accessible.
    list.is_null() || unsafe { crate::buffers::structure(list) }.is_some()
}

/// Iterates over the strings of a list, which [`is_list`] has accepted.
pub(crate) fn all(list: List) -> impl Iterator<Item = Text> + Clone {
    let len = if list.is_null() { 0 } else { usize::MAX };
    (0..len).map_while(move |at| {
        // SAFETY: the list ends with a null pointer, at which the iteration stops.
        let variable = unsafe { *list.add(at) };
        (!variable.is_null()).then_some(variable)
    })
}

/// Returns the value of the first variable that begins with `name`, which includes its `=`.
pub(crate) fn value_of<'e>(list: List, name: &[u8]) -> Option<&'e [u8]> {
    let variable = all(list).find(|variable| starts_with(*variable, name))?;
    // SAFETY: a string of the environment, which begins with `name`.
    Some(&unsafe { CStr::from_ptr(variable) }.to_bytes()[name.len()..])
}

/// Splits the value of [`PRELOAD`] into the paths of its libraries.
pub(crate) fn libraries(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|byte| matches!(byte, b':' | b' '))
}

/// Returns true if `string` begins with `with`.
pub(crate) fn starts_with(string: Text, with: &[u8]) -> bool {
    // SAFETY: a string that ends with a zero, behind which no byte is compared.
    with.iter().enumerate().all(|(at, byte)| unsafe { *string.add(at) as u8 == *byte })
}

/// Copies the strings for which `keep` returns true, without the null pointer at the end. Returns
/// their count; `None` if there is no room for all.
pub(crate) fn copied<const N: usize>(
    from: List,
    to: &mut [Text; N],
    keep: impl Fn(Text) -> bool,
) -> Option<usize> {
    let mut count = 0;
    for variable in all(from).filter(|variable| keep(*variable)) {
        *to.get_mut(count).filter(|_| count < MOST)? = variable;
        count += 1;
    }
    Some(count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::ptr::null;

    #[test]
    fn a_value_is_what_is_behind_its_whole_name() {
        let list =
            [c"A=1".as_ptr(), c"LD_PRELOAD_X=no".as_ptr(), c"LD_PRELOAD=a b".as_ptr(), null()];
        assert_eq!(value_of(list.as_ptr(), PRELOAD), Some(&b"a b"[..]));
        assert_eq!(value_of(list.as_ptr(), b"B="), None);
        assert_eq!(value_of(null(), b"A="), None);
    }

    #[test]
    fn no_list_is_copied_in_part() {
        let mut list = vec![c"A=1".as_ptr(); MOST + 1];
        list.push(null());
        let mut to = [null(); MOST + 2];
        assert_eq!(copied(list.as_ptr(), &mut to, |_| true), None);
        assert_eq!(copied(list[1..].as_ptr(), &mut to, |_| true), Some(MOST));
        assert_eq!(copied(list.as_ptr(), &mut to, |_| false), Some(0));
    }
}
