#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;
use crate::sites::find;

const ADDRESS: u64 = 0x40_1000;

/// A text with a site of each kind.
fn text() -> Vec<u8> {
    let mut bytes = vec![0x90; 512];
    bytes.extend(b"\xb8\x27\0\0\0\x0f\x05\xc3");
    bytes.extend([0x90; 64]);
    bytes.extend(b"\xeb\x00\x0f\x05\x48\x3d\x01\xf0\xff\xff\x73\x01");
    bytes.extend([0x90; 64]);
    bytes.extend(b"\xe8\0\0\0\0\x0f\x05\xc3");
    bytes.extend([0x90; 64]);
    bytes
}

fn at(bytes: &[u8], address: u64) -> Text<'_> {
    Text { address, bytes }
}

fn key(bytes: &[u8]) -> Key {
    let program = FileState { device: 1, inode: 2, size: 3, modified_ns: 4, changed_ns: 5 };
    let loader = FileState { inode: 9, ..program };
    Key {
        build_id: BuildId(7),
        program,
        loader,
        offset: 4096,
        len: bytes.len() as u64,
        sample: sample(bytes),
    }
}

#[test]
fn what_was_kept_is_found_again_wherever_the_text_is() {
    let bytes = text();
    let mut found = find(at(&bytes, ADDRESS));
    found.sets_gs = Some(ADDRESS + 3);
    found.tests_integrity = true;
    let kinds: Vec<_> = found.sites.iter().map(|site| site.rewrite).collect();
    assert_eq!(kinds, [Rewrite::Before(5), Rewrite::Around(0, 6), Rewrite::Unchanged]);
    let file = encode(&key(&bytes), at(&bytes, ADDRESS), &found).unwrap();
    assert_eq!(decode(&file, &key(&bytes), at(&bytes, ADDRESS)), Some(found));
    let elsewhere = decode(&file, &key(&bytes), at(&bytes, 0x7000)).unwrap();
    assert_eq!(elsewhere.sites, find(at(&bytes, 0x7000)).sites);
    assert_eq!(elsewhere.sets_gs, Some(0x7003));
    assert!(elsewhere.tests_integrity);
}

#[test]
fn another_key_is_a_miss() {
    let bytes = text();
    let file = encode(&key(&bytes), at(&bytes, ADDRESS), &find(at(&bytes, ADDRESS))).unwrap();
    type ChangeFn = fn(&mut Key);
    let changes: [ChangeFn; 9] = [
        |key| key.sample += 1,
        |key| key.build_id.0 += 1,
        |key| key.offset += 1,
        |key| key.program.device += 1,
        |key| key.program.inode += 1,
        |key| key.program.size += 1,
        |key| key.program.modified_ns += 1,
        |key| key.program.changed_ns += 1,
        |key| key.loader.modified_ns += 1,
    ];
    for change in changes {
        let mut other = key(&bytes);
        change(&mut other);
        assert_eq!(decode(&file, &other, at(&bytes, ADDRESS)), None, "{other:?}");
    }
    // The text is shorter than its key says.
    assert_eq!(decode(&file, &key(&bytes), at(&bytes[..600], ADDRESS)), None);
}

#[test]
fn a_torn_or_damaged_file_is_a_miss() {
    let bytes = text();
    let file = encode(&key(&bytes), at(&bytes, ADDRESS), &find(at(&bytes, ADDRESS))).unwrap();
    let is_used = |file: &[u8]| decode(file, &key(&bytes), at(&bytes, ADDRESS)).is_some();
    for len in 0..file.len() {
        assert!(!is_used(&file[..len]), "{len}");
        let mut torn = file.clone();
        torn[len..].fill(0);
        assert!(!is_used(&torn) || torn == file, "zeroes from {len} on");
        let mut damaged = file.clone();
        damaged[len] ^= 1 << (len % 8);
        assert!(!is_used(&damaged), "byte {len}");
    }
    assert!(is_used(&file));
}

/// Each byte of the sites has any value, with a checksum that fits: whatever is accepted has its
/// bytes in the text, and patches that do not overlap.
#[test]
fn a_hostile_file_names_no_place_that_is_not_a_call() {
    let bytes = text();
    let file = encode(&key(&bytes), at(&bytes, ADDRESS), &find(at(&bytes, ADDRESS))).unwrap();
    let end = file.len() - 8;
    let mut accepted = 0;
    for place in HEAD..end {
        for value in 0..=255u8 {
            let mut hostile = file[..end].to_vec();
            hostile[place] = value;
            hostile.extend(checksum(&hostile).to_le_bytes());
            let Some(found) = decode(&hostile, &key(&bytes), at(&bytes, ADDRESS)) else { continue };
            accepted += 1;
            let mut free = ADDRESS;
            for site in &found.sites {
                let Range { start: first, end } = site.moved();
                assert!(first >= free && end <= ADDRESS + bytes.len() as u64);
                free = end;
                let call = (site.at - ADDRESS) as usize;
                let is_call = bytes[call..].starts_with(&[0x0f, 0x05]);
                assert!(is_call || site.rewrite == Rewrite::Unchanged);
            }
        }
    }
    // The unchanged file is among them once for each byte, and other numbers of calls are.
    assert!(accepted > end - HEAD, "{accepted}");
}

#[test]
fn a_changed_text_is_a_miss() {
    let bytes = text();
    let file = encode(&key(&bytes), at(&bytes, ADDRESS), &find(at(&bytes, ADDRESS))).unwrap();
    for place in 512..519 {
        let mut changed = bytes.clone();
        changed[place] ^= 1;
        assert_eq!(decode(&file, &key(&bytes), at(&changed, ADDRESS)), None, "{place}");
    }
}

#[test]
fn a_sample_is_of_the_whole_text() {
    let bytes = text();
    assert_eq!((sample(&bytes), sample(&[])), (sample(&text()), 0));
    for place in [0, bytes.len() / 2, bytes.len() - 63] {
        let mut other = bytes.clone();
        other[place..].fill(0xaa);
        assert_ne!(sample(&other), sample(&bytes), "from {place} on");
    }
    assert_ne!(sample(&bytes[..5]), sample(&bytes[..4]));
}

#[test]
fn later_states_of_a_program_replace_the_file_of_earlier_ones() {
    let first = key(&text());
    let mut second = first;
    second.program.size += 1;
    second.program.changed_ns += 1;
    second.loader.inode += 1;
    assert_eq!(first.slot(1024), second.slot(1024));
    assert!(first.slot(10) < 10);
}
