//! The reader of a fuzz target's bytes, for the targets of all crates.
//!
//! Debug and fuzzing builds only; not a part of the interface of this crate. Not here: the targets,
//! which give the bytes their meaning (`fuzz` of each crate).

/// The bytes of a program whose steps a target runs, taken from the front; zeros after their end.
#[derive(Clone, Debug)]
pub struct Program<'b>(&'b [u8]);

impl<'b> Program<'b> {
    /// Returns the program that `bytes` are.
    #[must_use]
    pub const fn new(bytes: &'b [u8]) -> Self {
        Self(bytes)
    }

    /// Takes the first byte of a step. `None`: the program has ended.
    pub fn step(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    /// Takes `N` bytes.
    pub fn take<const N: usize>(&mut self) -> [u8; N] {
        let mut taken = [0; N];
        let head = self.head(N);
        taken[..head.len()].copy_from_slice(head);
        taken
    }

    /// Takes one byte.
    pub fn byte(&mut self) -> u8 {
        self.step().unwrap_or(0)
    }

    /// Takes eight bytes as a number, the lowest first.
    pub fn word(&mut self) -> u64 {
        u64::from_le_bytes(self.take())
    }

    /// Takes a length of one byte and so many bytes, or all if there are fewer.
    pub fn bytes(&mut self) -> &'b [u8] {
        let len = usize::from(self.byte());
        self.head(len)
    }

    fn head(&mut self, len: usize) -> &'b [u8] {
        let (head, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        head
    }
}

#[cfg(test)]
mod tests {
    use super::Program;

    #[test]
    fn bytes_come_in_order_and_zeros_after_their_end() {
        let mut program = Program::new(&[9, 1, 0, 0, 0, 0, 0, 0, 0x80, 2, 5, 6, 3, 7]);
        assert_eq!(program.step(), Some(9));
        assert_eq!(program.word(), 1 << 63 | 1);
        assert_eq!(program.bytes(), [5, 6]);
        assert_eq!(program.bytes(), [7], "no more than there are");
        assert_eq!((program.step(), program.byte(), program.take()), (None, 0, [0; 3]));
    }
}
