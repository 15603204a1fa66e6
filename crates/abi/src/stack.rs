//! What a program finds on its stack when it begins: its arguments, environment and auxiliary
//! vector, as the System V ABI's AMD64 supplement lays them out ("Process Initialization").

/// `AT_NULL` ends the vector; getauxval(3) has the others.
const NULL: u64 = 0;
const PHDR: u64 = 3;
const PHENT: u64 = 4;
const PHNUM: u64 = 5;
const BASE: u64 = 7;
const ENTRY: u64 = 9;
const EXECFN: u64 = 31;
/// `AT_RSEQ_FEATURE_SIZE` and `AT_RSEQ_ALIGN`: restartable sequences are the loader's own.
const RSEQ: [u64; 2] = [27, 28];

/// What the vector says of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Where its program headers are.
    pub headers_at: u64,
    /// How many.
    pub headers: u64,
    /// Where its interpreter is; 0: it has none.
    pub interpreter: u64,
    /// Its own first instruction.
    pub entry: u64,
    /// Where the path is that it was started by.
    pub path: u64,
}

/// The loader's own vector with what differs for the program.
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

/// The words from the stack pointer up; an odd number of them is preceded by nothing, so the stack
/// pointer is to be aligned for all of them.
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
