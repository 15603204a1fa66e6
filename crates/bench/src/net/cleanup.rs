//! What happens when the run is interrupted or takes too long: hosts, the programs on them, and
//! folders are removed.

use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

use crate::local::process;

static FOLDERS: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// From now on signals that end the process, and the time limit, clean up first. To be called
/// before there is a second thread.
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

/// What there is to be removed besides hosts.
pub(super) fn note(folders: Vec<PathBuf>) {
    if let Ok(mut all) = FOLDERS.lock() {
        all.extend(folders);
    }
}
