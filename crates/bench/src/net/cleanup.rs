//! The clean-up of a run that is interrupted or takes too long: removes hosts, the programs on
//! them, and folders.

use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

use crate::local::process;

static FOLDERS: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// Makes signals that end the process, and the time limit, clean up first. To be called while there
/// is only one thread, because the signals have to be blocked in all threads.
pub(super) fn watch(limit: Duration) {
    process::on_end(limit, |why| {
        eprintln!("ended early: {why}");
        sojourn_lab::net::sweep_own();
        let Ok(folders) = FOLDERS.lock() else { return };
        for folder in folders.iter() {
            let _ = std::fs::remove_dir_all(folder);
        }
    });
}

/// Records folders that have to be removed too.
pub(super) fn note(folders: Vec<PathBuf>) {
    if let Ok(mut all) = FOLDERS.lock() {
        all.extend(folders);
    }
}
