//! The memory of the frames of a measurement. Not here: the content of a frame.

const PAGE: usize = 4096;
/// Bytes of memory for frames that must be in no cache.
const COLD_BYTES: usize = 64 << 20;

/// Places for frames of one size, each at the same offset within a page.
pub(super) struct Frames {
    bytes: Vec<u8>,
    /// Offset of the first place.
    start: usize,
    size: usize,
    /// Bytes from one place to the next.
    stride: usize,
    places: usize,
    at: usize,
}

impl Frames {
    /// Makes one place, or, if `is_cold`, as many places as take more memory than the caches hold.
    pub(super) fn new(size: usize, offset: usize, is_cold: bool) -> Self {
        let stride = (size + offset).next_multiple_of(PAGE) + PAGE;
        let places = if is_cold { (COLD_BYTES / stride).max(2) } else { 1 };
        let bytes = vec![0; places * stride + PAGE];
        let start = bytes.as_ptr().align_offset(PAGE) + offset;
        Self { bytes, start, size, stride, places, at: 0 }
    }

    /// Returns the place that was used last.
    pub(super) fn here(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start + self.at * self.stride..][..self.size]
    }

    /// Returns the next place.
    pub(super) fn next(&mut self) -> &mut [u8] {
        self.at = (self.at + 1) % self.places;
        self.here()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_lie_where_they_should() {
        for (size, offset, is_cold) in [(1, 0, false), (4096, 16, false), (65_521, 255, true)] {
            let mut frames = Frames::new(size, offset, is_cold);
            let mut places = std::collections::HashSet::new();
            for _ in 0..2000 {
                let frame = frames.next();
                assert_eq!(frame.len(), size);
                assert_eq!(frame.as_ptr() as usize % PAGE, offset);
                places.insert(frame.as_ptr());
            }
            assert_eq!(places.len() > 100, is_cold);
        }
    }
}
