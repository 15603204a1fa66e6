//! The folders of control groups by their numbers.
//!
//! The kernel opens a group by its number only for who may read every file, so the folders are
//! walked through, and all that are seen are remembered. Any user may make control groups below its
//! own, and sockets in each: however many are asked for, walking takes a small part of the time.
//! Not here: the programs of groups (`cgroups`).

use std::collections::{HashMap, VecDeque};
use std::ffi::OsString;
use std::os::unix::fs::{DirEntryExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Folders that are remembered. Those near the root come first: nobody can hide the groups of
/// others behind its own, which lie deeper.
const FOLDERS_MAX: usize = 1 << 16;
/// A walk may begin when this many times its predecessor's duration has passed, unless that was
/// quick.
const PAUSE: u32 = 16;
const QUICK: Duration = Duration::from_millis(5);

/// The number of a control group: its folder's inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct GroupId(pub(crate) u64);

/// A folder, below another one.
#[derive(Debug)]
struct Folder {
    /// Its place in the list; the first one is the root, and its own.
    parent: usize,
    name: OsString,
}

/// The folders that the last walk has seen.
#[derive(Debug, Default)]
pub(crate) struct Folders {
    all: Vec<Folder>,
    places: HashMap<GroupId, usize>,
    next_walk: Option<Instant>,
    walks: usize,
}

impl Folders {
    /// Returns the folder of a group of the hierarchy at `mount`. `None`: there is none, or it is
    /// not known yet whether there is.
    pub(crate) fn find(&mut self, mount: &Path, id: GroupId) -> Option<PathBuf> {
        let begun = Instant::now();
        if !self.places.contains_key(&id) && self.next_walk.is_none_or(|next| next <= begun) {
            self.walk(mount);
            let took = begun.elapsed();
            self.next_walk = begun.checked_add(if took < QUICK { took } else { took * PAUSE });
        }
        self.path(mount, *self.places.get(&id)?)
    }

    fn path(&self, mount: &Path, mut at: usize) -> Option<PathBuf> {
        let mut names = VecDeque::new();
        while at > 0 {
            let Folder { parent, name } = self.all.get(at)?;
            names.push_front(name);
            at = *parent;
        }
        let mut path = mount.to_owned();
        path.extend(names);
        Some(path)
    }

    /// Sees the folders anew, level by level.
    fn walk(&mut self, mount: &Path) {
        *self = Self { walks: self.walks + 1, ..Self::default() };
        let Ok(root) = mount.metadata() else { return };
        self.add(GroupId(root.ino()), 0, OsString::new());
        let mut at = 0;
        while let Some(path) = self.path(mount, at) {
            for entry in std::fs::read_dir(path).into_iter().flatten().flatten() {
                if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    continue;
                }
                if self.all.len() >= FOLDERS_MAX {
                    return;
                }
                self.add(GroupId(entry.ino()), at, entry.file_name());
            }
            at += 1;
        }
    }

    fn add(&mut self, id: GroupId, parent: usize, name: OsString) {
        self.places.insert(id, self.all.len());
        self.all.push(Folder { parent, name });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_are_found_and_walked_through_seldom() {
        let mount = std::env::temp_dir().join(format!("sojourn-folders-{}", std::process::id()));
        let deep = mount.join("one/two/three");
        std::fs::create_dir_all(&deep).unwrap();
        std::fs::create_dir(mount.join("other")).unwrap();
        let id = |path: &Path| GroupId(path.metadata().unwrap().ino());
        let mut folders = Folders::default();
        for path in [&mount, &deep, &mount.join("one"), &mount.join("other")] {
            assert_eq!(folders.find(&mount, id(path)).as_ref(), Some(path));
        }
        assert_eq!(folders.walks, 1);
        // As after a walk that took long.
        folders.next_walk = Instant::now().checked_add(Duration::from_secs(600));
        std::fs::create_dir(mount.join("new")).unwrap();
        for _ in 0..3 {
            assert_eq!(folders.find(&mount, id(&mount.join("new"))), None);
        }
        assert_eq!(folders.walks, 1, "whoever asks");
        folders.next_walk = Some(Instant::now());
        assert_eq!(folders.find(&mount, id(&mount.join("new"))), Some(mount.join("new")));
        assert_eq!(folders.find(&mount, id(&deep)), Some(deep));
        std::fs::remove_dir_all(&mount).unwrap();
    }
}
