#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;
use proptest::prelude::*;

const ADDRESS: u64 = 0x40_1000;

/// Returns the sites in `code`, with bytes before it in which decoders fall into step.
fn found(code: &[u8]) -> Vec<Site> {
    let mut bytes = vec![0x90; 512];
    bytes.extend(code);
    bytes.extend([0x90; 64]);
    let mut sites = find(Text { address: ADDRESS, bytes: &bytes }).sites;
    for site in &mut sites {
        site.at -= ADDRESS + 512;
    }
    sites
}

fn one(at: u64, number: Option<u32>, rewrite: Rewrite) -> Vec<Site> {
    vec![Site { at, number, rewrite }]
}

#[test]
fn a_number_before_makes_room() {
    // mov eax, 39; syscall; ret
    assert_eq!(found(b"\xb8\x27\0\0\0\x0f\x05\xc3"), one(5, Some(39), Rewrite::Before(5)));
    // mov rax, 1 (7 bytes); syscall; ret
    let wide = b"\x48\xc7\xc0\x01\0\0\0\x0f\x05\xc3";
    assert_eq!(found(wide), one(7, Some(1), Rewrite::Before(7)));
}

#[test]
fn what_looks_like_a_number_is_none() {
    // mov dword [rsp-0x48], 0x10; syscall: the last five bytes before `syscall` are not a `mov
    // eax`, but all eight bytes of the instruction may be moved.
    let code = b"\xc7\x44\x24\xb8\x10\0\0\0\x0f\x05\xc3";
    assert_eq!(found(code), one(8, None, Rewrite::Before(8)));
}

#[test]
fn what_follows_makes_room() {
    // jmp +0; syscall; cmp rax, -4095; jae
    let code = b"\xeb\x00\x0f\x05\x48\x3d\x01\xf0\xff\xff\x73\x01";
    assert_eq!(found(code), one(2, None, Rewrite::Around(0, 6)));
    // The same code, but the jump leads to the comparison.
    let code = b"\xeb\x02\x0f\x05\x48\x3d\x01\xf0\xff\xff\x73\x01";
    assert_eq!(found(code), one(2, None, Rewrite::Unchanged));
}

#[test]
fn both_sides_make_room() {
    // ret; mov rax, r8; syscall; ret, as in musl.
    let code = b"\xc3\x4c\x89\xc0\x0f\x05\xc3";
    assert_eq!(found(code), one(4, None, Rewrite::Around(3, 0)));
    // A jump may lead to the `mov`, but not to the `syscall`.
    let code = b"\xeb\x00\x4c\x89\xc0\x0f\x05\xeb\xf9";
    assert_eq!(found(code), one(5, None, Rewrite::Around(3, 0)));
    let code = b"\xeb\x03\x4c\x89\xc0\x0f\x05\xeb\xf9";
    assert_eq!(found(code), one(5, None, Rewrite::Unchanged));
    // ret; pop rax; syscall; pop rdx; pop rdx; ret
    let code = b"\xc3\x58\x0f\x05\x5a\x5a\xc3";
    assert_eq!(found(code), one(2, None, Rewrite::Around(1, 2)));
}

/// A jump of two bytes is seen as far as it reaches.
#[test]
fn the_farthest_short_jumps_are_seen() {
    // jmp forwards; nops; ret; mov rax, r8; syscall; ret
    let forwards =
        |by: u8| [&[0xeb, by], &[0x90; 123][..], b"\xc3\x4c\x89\xc0\x0f\x05\xc3"].concat();
    assert_eq!(found(&forwards(0x7f)), one(129, None, Rewrite::Unchanged));
    assert_eq!(found(&forwards(0x7b)), one(129, None, Rewrite::Around(3, 0)));
    // ret; mov rax, r8; syscall; ret; nops; jmp backwards
    let backwards =
        |by: u8| [b"\xc3\x4c\x89\xc0\x0f\x05\xc3", &[0x90; 123][..], &[0xeb, by]].concat();
    assert_eq!(found(&backwards(0x80)), one(4, None, Rewrite::Unchanged));
    assert_eq!(found(&backwards(0x83)), one(4, None, Rewrite::Around(3, 0)));
}

#[test]
fn what_cannot_be_moved_is_left() {
    // call; syscall; ret
    assert_eq!(found(b"\xe8\0\0\0\0\x0f\x05\xc3"), one(5, None, Rewrite::Unchanged));
    // lea rax, [rip]; syscall; jmp
    let code = b"\x48\x8d\x05\0\0\0\0\x0f\x05\xeb\x00";
    assert_eq!(found(code), one(7, None, Rewrite::Unchanged));
    // mov eax, 15; syscall: signal handlers return to this address.
    assert_eq!(found(b"\xb8\x0f\0\0\0\x0f\x05"), one(5, Some(15), Rewrite::Unchanged));
}

#[test]
fn the_bytes_within_other_instructions_are_no_call() {
    // mov ecx, 0x050f
    assert_eq!(found(b"\xb9\x0f\x05\0\0\xc3"), []);
    // movabs rax, 0x50f
    assert_eq!(found(b"\x48\xb8\x0f\x05\0\0\0\0\0\0\xc3"), []);
}

#[test]
fn a_zeroed_register_is_a_number() {
    // xor eax, eax; mov edx, 1; syscall
    let code = b"\x31\xc0\xba\x01\0\0\0\x0f\x05\xc3";
    assert_eq!(found(code), one(7, Some(0), Rewrite::Before(5)));
}

#[test]
fn who_sets_gs_is_found() {
    let mut bytes = vec![0x90; 300];
    assert_eq!(find(Text { address: 0, bytes: &bytes }).sets_gs, None);
    // wrgsbase rdi
    bytes.extend(b"\xf3\x48\x0f\xae\xdf\xc3");
    assert_eq!(find(Text { address: 0, bytes: &bytes }).sets_gs, Some(302));
    // rdgsbase
    bytes[303] = 0xae;
    bytes[304] = 0xcf;
    assert_eq!(find(Text { address: 0, bytes: &bytes }).sets_gs, None);
}

proptest! {
    /// For any bytes: sites are in the text, in order, contain the two bytes, and the instructions
    /// to be moved are in the text and do not reach into another site.
    #[test]
    fn sites_lie_within_the_text(
        bytes in proptest::collection::vec(
            prop_oneof![3 => any::<u8>(), 1 => Just(0x0f), 1 => Just(5), 1 => Just(0xb8)], 0..900)
    ) {
        let found = find(Text { address: ADDRESS, bytes: &bytes });
        let (mut before, mut last_at) = (0, 0);
        for site in &found.sites {
            prop_assert!(site.at >= last_at);
            last_at = site.at;
            if site.rewrite != Rewrite::Unchanged {
                prop_assert!(site.moved().start >= before);
            }
            before = site.moved().end.max(before);
            let at = (site.at - ADDRESS) as usize;
            let (first, last) = match site.rewrite {
                Rewrite::Before(len) => (at - usize::from(len), at),
                Rewrite::Around(before, after) => {
                    (at - usize::from(before), at + 2 + usize::from(after))
                }
                Rewrite::Unchanged => continue,
            };
            prop_assert_eq!(&bytes[at..at + 2], &[0x0f, 0x05][..]);
            prop_assert!(last <= bytes.len());
            prop_assert!(last + 2 * usize::from(last == at) - first >= 5);
        }
    }
}

#[test]
fn an_integrity_test_is_known_by_its_message() {
    assert!(tests_integrity(b"\0FIPS integrity test failed.\n\0"));
    assert!(!tests_integrity(b"\0FIPS integrity self-test passed\0"));
}
