//! Requests of the Redis protocol (RESP): arrays of bulk strings.
//!
//! A request is read where its bytes lie: each number is copied once and then checked, and each
//! word is copied to where it stays. Not here: how bytes arrive (`connection`).

use sojourn_buffers::Loan;

/// The longest line, the most words, and the longest word that are accepted.
const LINE_MAX: usize = 32;
const WORDS_MAX: usize = 1024;
const WORD_MAX: usize = 512 << 20;

/// Bytes that have arrived.
pub(crate) trait Arrived {
    fn len(&self) -> usize;
    /// Copies bytes from byte `from` on; returns their number.
    fn copy_to(&self, from: usize, target: &mut [u8]) -> usize;
}

impl Arrived for Loan<'_> {
    fn len(&self) -> usize {
        Loan::len(self)
    }

    fn copy_to(&self, from: usize, target: &mut [u8]) -> usize {
        Loan::copy_to(self, from, target)
    }
}

impl Arrived for [u8] {
    fn len(&self) -> usize {
        <[u8]>::len(self)
    }

    fn copy_to(&self, from: usize, target: &mut [u8]) -> usize {
        let rest = self.get(from..).unwrap_or_default();
        let len = rest.len().min(target.len());
        target[..len].copy_from_slice(&rest[..len]);
        len
    }
}

/// What a look at the bytes has found.
#[derive(Debug, PartialEq)]
pub(crate) enum Look {
    /// A request, and the number of its bytes.
    Whole(Vec<Vec<u8>>, usize),
    /// The request has at least so many bytes.
    Needs(usize),
    /// No request.
    Wrong,
}

/// Looks for one request at the beginning.
pub(crate) fn look(bytes: &(impl Arrived + ?Sized)) -> Look {
    let mut at = 0;
    let count = match line(bytes, b'*', &mut at) {
        Ok(count) if count <= WORDS_MAX => count,
        Ok(_) => return Look::Wrong,
        Err(look) => return look,
    };
    let mut words = Vec::with_capacity(count);
    for _ in 0..count {
        let len = match line(bytes, b'$', &mut at) {
            Ok(len) if len <= WORD_MAX => len,
            Ok(_) => return Look::Wrong,
            Err(look) => return look,
        };
        if bytes.len() < at + len + 2 {
            return Look::Needs(at + len + 2);
        }
        let mut word = vec![0; len];
        bytes.copy_to(at, &mut word);
        words.push(word);
        at += len + 2;
    }
    Look::Whole(words, at)
}

/// Reads a line that has a number behind that sign, and goes behind the line.
fn line(bytes: &(impl Arrived + ?Sized), sign: u8, at: &mut usize) -> Result<usize, Look> {
    let mut line = [0; LINE_MAX];
    let len = bytes.copy_to(*at, &mut line);
    let Some(end) = line[..len].windows(2).position(|two| two == b"\r\n") else {
        return Err(if len < LINE_MAX { Look::Needs(bytes.len() + 1) } else { Look::Wrong });
    };
    let number = match line[..end].split_first() {
        Some((first, digits)) if *first == sign => std::str::from_utf8(digits).ok(),
        _ => None,
    };
    *at += end + 2;
    number.and_then(|digits| digits.parse().ok()).ok_or(Look::Wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_whole_or_says_what_it_needs() {
        let text = b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n";
        assert_eq!(look(&text[..]), Look::Whole(vec![b"GET".to_vec(), b"k".to_vec()], text.len()));
        for len in 0..text.len() {
            let Look::Needs(needs) = look(&text[..len]) else { panic!("{len}") };
            assert!(needs > len && needs <= text.len(), "{len}: {needs}");
        }
    }

    #[test]
    fn what_is_no_request_is_refused() {
        for text in ["GET k\r\n", "*x\r\n", "*1\r\n+1\r\n", "*9999\r\n", "*1\r\n$-5\r\n"] {
            assert_eq!(look(text.as_bytes()), Look::Wrong, "{text}");
        }
        assert_eq!(look(&[b'*'; 40][..]), Look::Wrong);
    }
}
