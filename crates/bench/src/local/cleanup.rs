//! The clean-up of a run that is interrupted or takes too long.
//!
//! The eBPF programs are held by descriptors alone and end with this process. Where there are no
//! control groups, the started programs die with this process too (`process::prepare_child`), but
//! not the programs that those have started.

use std::sync::Mutex;
use std::time::Duration;

use super::groups;
use super::process;
use super::world::{Leftovers, World};

static LEFTOVERS: Mutex<Leftovers> = Mutex::new(Leftovers { folders: Vec::new(), group: None });

/// Makes signals that end the process, and the time limit, clean up first. To be called while there
/// is only one thread, because the signals have to be blocked in all threads.
pub(crate) fn watch(limit: Duration) {
    process::on_end(limit, |why| {
        eprintln!("ended early: {why}");
        clean();
    });
}

/// Records the folders and the control group that have to be cleaned up.
pub(crate) fn note(world: &World) {
    if let Ok(mut leftovers) = LEFTOVERS.lock() {
        *leftovers = world.leftovers();
    }
}

fn clean() {
    let Ok(leftovers) = LEFTOVERS.lock() else { return };
    if let Some(group) = &leftovers.group {
        groups::remove(group);
    }
    for folder in &leftovers.folders {
        // The measuring thread may put a file into the folder between two attempts, so the removal
        // is repeated.
        while std::fs::remove_dir_all(folder).is_err() && folder.exists() {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
