//! The contents of a program's stack at its start: the arguments, the environment and the auxiliary
//! vector, in the layout of the System V ABI's AMD64 supplement ("Process Initialization").

/// The types of the auxiliary vector that matter here; `AT_NULL` ends the vector, and getauxval(3)
/// explains the others.
const NULL: u64 = 0;
const PHDR: u64 = 3;
const PHENT: u64 = 4;
const PHNUM: u64 = 5;
const BASE: u64 = 7;
const ENTRY: u64 = 9;
/// `AT_EXECFN`: the address of the path that the program was started with.
pub const EXECFN: u64 = 31;
/// `AT_RSEQ_FEATURE_SIZE` and `AT_RSEQ_ALIGN`: left out, because the loader's own C library uses
/// restartable sequences.
const RSEQ: [u64; 2] = [27, 28];

/// An entry of the auxiliary vector, as it is in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct AuxEntry {
    /// Its type.
    pub kind: u64,
    /// The value: a number, or an address.
    pub value: u64,
}

/// The facts about a program that the vector contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// The address of the program headers (`AT_PHDR`).
    pub headers_at: u64,
    /// The number of program headers (`AT_PHNUM`).
    pub headers: u64,
    /// The address of the interpreter; 0 if there is none (`AT_BASE`).
    pub interpreter: u64,
    /// The address of the program's own first instruction (`AT_ENTRY`).
    pub entry: u64,
    /// The address of the path that the program was started with (`AT_EXECFN`).
    pub path: u64,
}

/// Returns the value of the entry of a type; 0 if there is none.
#[must_use]
pub fn value(auxiliary: &[AuxEntry], kind: u64) -> u64 {
    auxiliary.iter().find(|entry| entry.kind == kind).map_or(0, |entry| entry.value)
}

/// Returns the loader's own vector, with the program's facts in place of the loader's.
#[must_use]
pub fn auxiliary(own: &[AuxEntry], facts: Facts) -> Vec<AuxEntry> {
    let replaced = |AuxEntry { kind, value }: &AuxEntry| {
        let value = match *kind {
            NULL => return None,
            kind if RSEQ.contains(&kind) => return None,
            PHDR => facts.headers_at,
            PHENT => crate::elf::PROGRAM_HEADER as u64,
            PHNUM => facts.headers,
            BASE => facts.interpreter,
            ENTRY => facts.entry,
            EXECFN => facts.path,
            _ => *value,
        };
        Some(AuxEntry { kind: *kind, value })
    };
    own.iter().filter_map(replaced).chain([AuxEntry { kind: NULL, value: 0 }]).collect()
}

/// Returns the words from the stack pointer upwards. Nothing is added for alignment: the caller
/// chooses a stack pointer that is aligned.
#[must_use]
pub fn words(arguments: &[u64], environment: &[u64], auxiliary: &[AuxEntry]) -> Vec<u64> {
    let mut words = vec![arguments.len() as u64];
    words.extend(arguments);
    words.push(0);
    words.extend(environment);
    words.push(0);
    words.extend(auxiliary.iter().flat_map(|entry| [entry.kind, entry.value]));
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vector(entries: &[(u64, u64)]) -> Vec<AuxEntry> {
        entries.iter().map(|(kind, value)| AuxEntry { kind: *kind, value: *value }).collect()
    }

    #[test]
    fn the_vector_is_the_programs() {
        let own = [(3, 1), (4, 56), (5, 11), (6, 4096), (7, 2), (9, 3), (27, 20), (31, 4), (0, 0)];
        let facts = Facts { headers_at: 10, headers: 12, interpreter: 0, entry: 30, path: 40 };
        let expected = [(3, 10), (4, 56), (5, 12), (6, 4096), (7, 0), (9, 30), (31, 40), (0, 0)];
        assert_eq!(auxiliary(&vector(&own), facts), vector(&expected));
        assert_eq!((value(&vector(&own), 31), value(&vector(&own), 32)), (4, 0));
    }

    #[test]
    fn words_are_counted_and_ended() {
        let words = words(&[7, 8], &[9], &vector(&[(6, 4096), (0, 0)]));
        assert_eq!(words, [2, 7, 8, 0, 9, 0, 6, 4096, 0, 0]);
    }
}
