//! Random and mutated bytes: the compiler answers, and neither panics nor hangs.
//!
//! The same inputs every time: a failure can be repeated. `fuzz/` holds the open-ended version.
#![allow(clippy::unwrap_used, reason = "a failed helper fails its test")]

use std::time::{Duration, Instant};

use sojourn_idl::fuzz_parse;

/// Whole test, so that a hang shows as a failure.
const TIME_MAX: Duration = Duration::from_secs(120);

/// xorshift64*
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    fn below(&mut self, n: usize) -> usize {
        usize::try_from(self.next() % (n.max(1) as u64)).unwrap()
    }
}

fn run(input: &[u8]) {
    if let Err(panic) = std::panic::catch_unwind(|| fuzz_parse(input)) {
        eprintln!("input: {:?}", String::from_utf8_lossy(input));
        std::panic::resume_unwind(panic);
    }
}

#[test]
fn arbitrary_bytes() {
    let mut random = Random(1);
    let start = Instant::now();
    for round in 0..2000 {
        let length = random.below(200);
        let mut bytes = Vec::new();
        for _ in 0..length {
            let any = u8::try_from(random.next() & 0xFF).unwrap();
            // Half of the rounds stay within what the lexer knows.
            bytes.push(if round % 2 == 0 { any } else { any % 96 + 32 });
        }
        run(&bytes);
        assert!(start.elapsed() < TIME_MAX);
    }
}

const WORDS: &[&str] = &[
    "interface",
    "i",
    "{",
    "}",
    "(",
    ")",
    "[",
    "]",
    ";",
    ",",
    "typedef",
    "struct",
    "union",
    "enum",
    "switch",
    "case",
    "default",
    ":",
    "long",
    "char",
    "void",
    "*",
    "in",
    "out",
    "size_is",
    "length_is",
    "string",
    "unique",
    "ref",
    "ptr",
    "const",
    "=",
    "1",
    "0",
    "0x7fffffffffffffff",
    "n",
    "a",
    "b",
    "import",
    "\"other.idl\"",
    "o",
    "+",
    "-",
    "<<",
    "?",
    "switch_is",
    "switch_type",
    "context_handle",
    "range",
    "wchar_t",
    "hyper",
    "unsigned",
    "library",
    "opaque",
    "oneway",
    "iid_is",
    "IUnknown",
    "uuid_t",
    "REFIID",
    "descriptor",
    "handle_t",
    "ignore",
    "first_is",
    "last_is",
    "max_is",
    "float",
    "double",
    "boolean",
    "\0",
    "deferred",
    "timeout",
    "/** d */",
    "// c\n",
    "..",
    "cpp_quote",
    "\"s\"",
    "L\"w\"",
    "'c'",
    "pointer_default",
    "s",
    "u",
    "e",
    "object",
    "local",
    "coclass",
    "dispinterface",
    "namespace",
    ".",
    "<",
    ">",
    "wire_marshal",
    "SAFEARRAY",
    "BSTR",
    "\"oaidl.idl\";",
    "\n#define a",
    "\n#define f(a, b) a ## b b\n",
    "f",
    "\n#if",
    "\n#else\n",
    "\n#endif\n",
    "\n#include \"other.idl\"\n",
    "defined",
    "##",
    "\\\n",
    "sizeof",
];

#[test]
fn sequences_of_the_languages_words() {
    let mut random = Random(2);
    let start = Instant::now();
    for _ in 0..4000 {
        let mut text = String::new();
        for _ in 0..random.below(60) {
            text.push_str(WORDS[random.below(WORDS.len())]);
            text.push(' ');
        }
        run(text.as_bytes());
        assert!(start.elapsed() < TIME_MAX);
    }
}

#[test]
fn mutations_of_the_examples() {
    let here = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let (examples, own) = (here.join("../../idl/examples"), here.join("tests/c"));
    let mut random = Random(3);
    let start = Instant::now();
    for name in ["calc", "files", "paper", "common", "com"] {
        let dir = if name == "com" { &own } else { &examples };
        let mut seed = std::fs::read(dir.join(format!("{name}.idl"))).unwrap();
        if let Ok(acf) = std::fs::read(dir.join(format!("{name}.acf"))) {
            seed.push(0);
            seed.extend(acf);
        }
        run(&seed);
        for _ in 0..250 {
            let mut bytes = seed.clone();
            for _ in 0..=random.below(4) {
                mutate(&mut bytes, &mut random);
            }
            run(&bytes);
            assert!(start.elapsed() < TIME_MAX);
        }
    }
}

fn mutate(bytes: &mut Vec<u8>, random: &mut Random) {
    let at = random.below(bytes.len());
    let to = (at + random.below(40)).min(bytes.len());
    match random.below(5) {
        0 => bytes[at] = u8::try_from(random.next() & 0xFF).unwrap(),
        1 => drop(bytes.drain(at..to)),
        2 => {
            let copy: Vec<u8> = bytes[at..to].to_vec();
            let place = random.below(bytes.len());
            bytes.splice(place..place, copy);
        }
        3 => {
            let word = WORDS[random.below(WORDS.len())];
            bytes.splice(at..at, word.bytes());
        }
        _ => bytes.truncate(at.max(1)),
    }
}
