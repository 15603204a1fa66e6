//! What happens when the run is interrupted or takes too long: nothing of it stays behind.
//!
//! The eBPF programs are held by descriptors alone and go with the process. Without control groups
//! the programs that were started die with it too (`process::prepare_child`), but not what they
//! have started.

use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

use super::groups;
use super::process;
use super::world::World;

static LEFTOVERS: Mutex<(Vec<PathBuf>, Option<PathBuf>)> = Mutex::new((Vec::new(), None));

/// From now on signals that end the process, and the time limit, clean up first. To be called
/// before there is a second thread.
pub(crate) fn watch(limit: Duration) {
    process::on_end(limit, |why| {
        eprintln!("ended early: {why}");
        clean();
    });
}

/// What there is to clean up.
pub(crate) fn note(world: &World) {
    if let Ok(mut leftovers) = LEFTOVERS.lock() {
        *leftovers = world.leftovers();
    }
}

fn clean() {
    let Ok(leftovers) = LEFTOVERS.lock() else { return };
    if let Some(group) = &leftovers.1 {
        groups::remove(group);
    }
    for folder in &leftovers.0 {
        // Again, if the measuring thread has put something into it meanwhile.
        while std::fs::remove_dir_all(folder).is_err() && folder.exists() {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
