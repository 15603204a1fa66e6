//! Zeroed memory, and the scratch memory for bodies that cannot be sent.

use sojourn_ipc::raw::bytes_of_mut;

/// Memory for a body that cannot be sent, because C writes the body before it gets the error.
#[derive(Debug, Default)]
pub(crate) struct Scratch(Vec<u64>);

impl Scratch {
    /// Returns `len` zeroed bytes aligned to 8, valid until the next call; null if there is no
    /// memory.
    #[cold]
    pub(crate) fn room(&mut self, len: usize) -> *mut u8 {
        self.0 = Vec::new();
        match zeroed(len) {
            Some(words) => {
                self.0 = words;
                bytes_of_mut(&mut self.0).as_mut_ptr()
            }
            None => core::ptr::null_mut(),
        }
    }
}

/// Returns `len` bytes of zeroes as words; `None` if there is no memory. The pages are not touched.
pub(crate) fn zeroed(len: usize) -> Option<Vec<u64>> {
    let words = len.div_ceil(8).max(1);
    let layout = core::alloc::Layout::array::<u64>(words).ok()?;
    // SAFETY: the layout's size is not zero.
    let start = unsafe { std::alloc::alloc_zeroed(layout) }.cast::<u64>();
    if start.is_null() {
        return None;
    }
    // SAFETY: allocated just now with the layout of that many words, all of them zero.
    Some(unsafe { Vec::from_raw_parts(start, words, words) })
}
