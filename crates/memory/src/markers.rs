//! The instructions by which a traced program says where it is.
//!
//! A marker is an x86-64 instruction that loads itself (`mov r64, [rip - 7]`): no compiler makes
//! it, it changes nothing but a register, and its load tells which physical address its own code
//! has. The register says which marker it is. C programs include `include/sojourn/markers.h`.

/// A marker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Marker {
    /// The trace begins: from here on the caches are fed (register `rax`).
    Trace,
    /// The measured part begins (register `rcx`).
    Begin,
    /// The measured part ends, and so does the trace (register `rdx`).
    End,
}

/// Bytes of a marker.
pub const BYTES: usize = 7;

impl Marker {
    /// Returns the marker that the instruction is, if it is one.
    #[must_use]
    pub fn of(instruction: &[u8]) -> Option<Self> {
        match instruction {
            [0x48, 0x8b, 0x05, 0xf9, 0xff, 0xff, 0xff] => Some(Self::Trace),
            [0x48, 0x8b, 0x0d, 0xf9, 0xff, 0xff, 0xff] => Some(Self::Begin),
            [0x48, 0x8b, 0x15, 0xf9, 0xff, 0xff, 0xff] => Some(Self::End),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_load_of_itself_is_a_marker() {
        let trace = [0x48, 0x8b, 0x05, 0xf9, 0xff, 0xff, 0xff];
        assert_eq!(Marker::of(&trace), Some(Marker::Trace));
        let mut other = trace;
        other[3] = 0xf8;
        assert_eq!(Marker::of(&other), None);
        assert_eq!(Marker::of(&trace[..6]), None);
    }
}
