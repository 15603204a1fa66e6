//! A smaller script that still differs.

use super::compare::Difference;
use super::script::Script;
use super::stage::Stage;
use anyhow::Result;

/// Most scripts that are tried.
const TRIES: u32 = 300;

/// A script that differs.
#[derive(Debug)]
pub struct Differing {
    /// The script.
    pub script: Script,
    /// What is different.
    pub difference: Difference,
}

/// Leaves out steps, many at once at first, as long as the script differs.
///
/// # Errors
/// As [`Stage::compare`].
pub fn shrink(stage: &Stage, script: &Script, found: Difference) -> Result<Differing> {
    let end = found.step + 1;
    let mut best = Differing { script: script.clone(), difference: found };
    let mut tries = 0;
    try_one(stage, &mut best, |step| step < end)?;
    let mut part = (best.script.steps.len() / 2).max(1);
    loop {
        let mut at = 0;
        let before = best.script.steps.len();
        while at < best.script.steps.len() && tries < TRIES {
            tries += 1;
            if !try_one(stage, &mut best, |step| step < at || step >= at + part)? {
                at += part;
            }
        }
        let is_stuck = part == 1 && best.script.steps.len() == before;
        if tries >= TRIES || is_stuck {
            return Ok(best);
        }
        part = (part / 2).max(1);
    }
}

fn try_one(stage: &Stage, best: &mut Differing, is_kept: impl Fn(usize) -> bool) -> Result<bool> {
    let smaller = best.script.with_steps(is_kept);
    let is_smaller = smaller.steps.len() < best.script.steps.len();
    let Some(difference) = stage.differs(&smaller, 1, 2)?.filter(|_| is_smaller) else {
        return Ok(false);
    };
    *best = Differing { script: smaller, difference };
    Ok(true)
}
