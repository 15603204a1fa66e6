//! The rows in C: stubs by hand, by `rpcgen`, and by `sojourn-idl`. Their loops are in C too
//! (`../c/`), so that no row pays for calls between the languages.
#![allow(unsafe_code, reason = "calls the C rows")]

use crate::idl::cases::Case;
use crate::idl::codec::{Kind, Language, Subject};

/// A C row: does `count` calls; returns the sum of the last one, or all ones if a message was
/// damaged.
type Loop = unsafe extern "C" fn(u64) -> u64;

unsafe extern "C" {
    fn bench_prepare();
    fn bench_hand_paper(count: u64) -> u64;
    fn bench_hand_stat(count: u64) -> u64;
    fn bench_hand_list(count: u64) -> u64;
    fn bench_hand_put(count: u64) -> u64;
    fn bench_hand_record(count: u64) -> u64;
    fn bench_hand_tree(count: u64) -> u64;
}

unsafe extern "C" {
    fn bench_ours_paper(count: u64) -> u64;
    fn bench_ours_stat(count: u64) -> u64;
    fn bench_ours_list(count: u64) -> u64;
    fn bench_ours_put(count: u64) -> u64;
    fn bench_ours_record(count: u64) -> u64;
    fn bench_ours_tree(count: u64) -> u64;
}

#[cfg(have_rpcgen)]
unsafe extern "C" {
    fn bench_rpcgen_paper(count: u64) -> u64;
    fn bench_rpcgen_stat(count: u64) -> u64;
    fn bench_rpcgen_list(count: u64) -> u64;
    fn bench_rpcgen_put(count: u64) -> u64;
    fn bench_rpcgen_record(count: u64) -> u64;
    fn bench_rpcgen_tree(count: u64) -> u64;
}

fn subjects(row: &'static str, kind: Kind, loops: [Loop; 6]) -> Vec<Subject> {
    prepare();
    let subject = |(case, run): (Case, Loop)| {
        let run = move |count| {
            let _one_at_a_time = ONE.lock();
            // SAFETY: the C rows take any count; the lock keeps their static buffers to one thread.
            let sum = unsafe { run(count) };
            (sum != u64::MAX).then_some(sum)
        };
        Subject { row, kind, language: Language::C, case, run: Box::new(run) }
    };
    Case::ALL.into_iter().zip(loops).map(subject).collect()
}

/// Locked during a C row, because the C rows work in static buffers.
static ONE: std::sync::Mutex<()> = std::sync::Mutex::new(());

fn prepare() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    // SAFETY: `bench_prepare` fills in static data, once, before any row runs.
    ONCE.call_once(|| unsafe { bench_prepare() });
}

/// Returns the row of stubs written by hand.
pub(super) fn hand() -> Vec<Subject> {
    let loops: [Loop; 6] = [
        bench_hand_paper,
        bench_hand_stat,
        bench_hand_list,
        bench_hand_put,
        bench_hand_record,
        bench_hand_tree,
    ];
    subjects("hand-coded, C", Kind::Hand, loops)
}

/// Returns the row of stubs that `sojourn-idl` generates.
pub(super) fn ours() -> Vec<Subject> {
    let loops: [Loop; 6] = [
        bench_ours_paper,
        bench_ours_stat,
        bench_ours_list,
        bench_ours_put,
        bench_ours_record,
        bench_ours_tree,
    ];
    subjects("sojourn-idl, C", Kind::Ours, loops)
}

/// Returns the row of stubs that `rpcgen` generates.
#[cfg(have_rpcgen)]
pub(super) fn rpcgen() -> Vec<Subject> {
    let loops: [Loop; 6] = [
        bench_rpcgen_paper,
        bench_rpcgen_stat,
        bench_rpcgen_list,
        bench_rpcgen_put,
        bench_rpcgen_record,
        bench_rpcgen_tree,
    ];
    subjects("rpcgen / XDR, C", Kind::Rpcgen, loops)
}
