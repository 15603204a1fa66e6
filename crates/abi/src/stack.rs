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
const EXECFN: u64 = 31;
/// `AT_RSEQ_FEATURE_SIZE` and `AT_RSEQ_ALIGN`: left out, because the loader's own C library uses
/// restartable sequences.
const RSEQ: [u64; 2] = [27, 28];

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

/// Returns the loader's own vector, with the program's facts in place of the loader's.
#[must_use]
pub fn auxiliary(own: &[(u64, u64)], facts: Facts) -> Vec<(u64, u64)> {
    let header = crate::elf::PROGRAM_HEADER as u64;
    let replaced = |(kind, value): &(u64, u64)| match *kind {
        NULL => None,
        kind if RSEQ.contains(&kind) => None,
        PHDR => Some((PHDR, facts.headers_at)),
        PHENT => Some((PHENT, header)),
        PHNUM => Some((PHNUM, facts.headers)),
        BASE => Some((BASE, facts.interpreter)),
        ENTRY => Some((ENTRY, facts.entry)),
        EXECFN => Some((EXECFN, facts.path)),
        kind => Some((kind, *value)),
    };
    own.iter().filter_map(replaced).chain([(NULL, 0)]).collect()
}

/// Returns the words from the stack pointer upwards. Nothing is added for alignment: the caller
/// chooses a stack pointer that is aligned.
#[must_use]
pub fn words(arguments: &[u64], environment: &[u64], auxiliary: &[(u64, u64)]) -> Vec<u64> {
    let mut words = vec![arguments.len() as u64];
    words.extend(arguments);
    words.push(0);
    words.extend(environment);
    words.push(0);
    words.extend(auxiliary.iter().flat_map(|(kind, value)| [*kind, *value]));
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_vector_is_the_programs() {
        let own = [(3, 1), (4, 56), (5, 11), (6, 4096), (7, 2), (9, 3), (27, 20), (31, 4), (0, 0)];
        let facts = Facts { headers_at: 10, headers: 12, interpreter: 0, entry: 30, path: 40 };
        let expected = [(3, 10), (4, 56), (5, 12), (6, 4096), (7, 0), (9, 30), (31, 40), (0, 0)];
        assert_eq!(auxiliary(&own, facts), expected);
    }

    #[test]
    fn words_are_counted_and_ended() {
        let words = words(&[7, 8], &[9], &[(6, 4096), (0, 0)]);
        assert_eq!(words, [2, 7, 8, 0, 9, 0, 6, 4096, 0, 0]);
    }
}
