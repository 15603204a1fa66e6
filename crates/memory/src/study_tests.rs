//! Tests of `study`: against each memory system alone, and a trace whose figures are kept.

use super::*;
use proptest::prelude::*;

fn reference() -> impl Strategy<Value = Reference> {
    let modes = prop_oneof![Just(Mode::User), Just(Mode::System)];
    let accesses = prop_oneof![Just(Access::Fetch), Just(Access::Read), Just(Access::Write)];
    (modes, accesses, 0_u64..0x4_0000, 1_u64..16)
        .prop_map(|(mode, access, address, bytes)| Reference { mode, access, address, bytes })
}

proptest! {
    // Each case makes all caches anew, which is most of its time.
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// The short way for fetches from the last block changes nothing.
    #[test]
    fn the_study_counts_what_each_memory_system_counts_alone(
        references in prop::collection::vec((reference(), 1_usize..4), 0..300),
    ) {
        let mut study = Study::new();
        let mut alone = Station::new(Variant::DirectMapped);
        let mut full = Station::new(Variant::FullyAssociative);
        let mut today = Hierarchy::new();
        for (reference, times) in references {
            for _ in 0..times {
                study.refer(&reference);
                alone.refer(&reference);
                full.refer(&reference);
                today.refer(&reference);
            }
        }
        let report = study.report();
        prop_assert_eq!(report.direct_mapped, alone.totals);
        prop_assert_eq!(report.fully_associative, full.totals);
        prop_assert_eq!(report.today, today.totals);
        let mcpi = Mcpi::of(&report.direct_mapped);
        let instructions = report.direct_mapped.instructions().max(1) as f64;
        prop_assert!((mcpi.sum() * instructions - alone.totals.cycles() as f64).abs() < 1e-6);
    }
}

#[test]
fn the_measured_part_begins_with_warm_caches_and_without_counts() {
    let mut study = Study::new();
    let fetch = Reference { mode: Mode::User, access: Access::Fetch, address: 64, bytes: 4 };
    study.refer(&fetch);
    assert_eq!(study.report().two_way.user.fetch_misses, 1);
    study.begin();
    assert_eq!(study.report(), Report::default());
    study.refer(&fetch);
    let report = study.report();
    assert_eq!((report.two_way.user.instructions, report.two_way.user.fetch_misses), (1, 0));
    assert_eq!(report.working_set.user_instructions, 16);
}

/// A trace of pseudo-random numbers (xorshift), of which only the counts are kept: a change of the
/// model shows here. The counts were computed first by a separate program, which goes through lists
/// and runs the write buffer cycle by cycle.
#[test]
fn golden() {
    let mut study = Study::new();
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    for _ in 0..20_000 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let mode = if state & 1 == 0 { Mode::User } else { Mode::System };
        let access = match state >> 1 & 3 {
            0 | 1 => Access::Fetch,
            2 => Access::Read,
            _ => Access::Write,
        };
        let address = state >> 20 & 0x1_ffff;
        study.refer(&Reference { mode, access, address, bytes: 1 << (state >> 3 & 3) });
    }
    let text = serde_json::to_string_pretty(&study.report()).unwrap();
    assert_eq!(text.trim(), include_str!("golden.json").trim());
}
