//! Prints the system calls of programs, and how each would be rewritten.
//!
//! Run as `cargo run -p sojourn-abi --example sites -- /usr/bin/busybox`.

use sojourn_abi::elf::Image;
use sojourn_abi::sites::{Text, find};
use std::time::Instant;

fn main() {
    for path in std::env::args().skip(1) {
        let Ok(bytes) = std::fs::read(&path) else { continue };
        let Ok(image) = Image::read(&bytes) else { continue };
        for one in image.segments.iter().filter(|one| one.is_executable) {
            let start = one.offset as usize;
            let Some(text) = bytes.get(start..start + one.file_len as usize) else { continue };
            let begun = Instant::now();
            let found = find(Text { address: one.address, bytes: text });
            println!("{path}: {} bytes in {:?}, {:x?}", text.len(), begun.elapsed(), found.sets_gs);
            for site in found.sites {
                println!("  {:#x} {:?} {:?}", site.at, site.number, site.rewrite);
            }
        }
    }
}
