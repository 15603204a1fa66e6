//! Import circles: strongly connected components of a crate's files, and the shortest circle of
//! each.
//!
//! Not here: finding the imports (`resolve`), and which circles are allowed (`modules`).

use super::resolve::{FilePair, Import};
use super::tree::{FileId, Tree};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Imports between files: for each pair of importing and imported file, the first place of the
/// import.
pub(crate) type Imports = BTreeMap<FilePair, Import>;

/// Set of files each of which imports every other, directly or through files of the set.
#[derive(Debug)]
pub(crate) struct Circle {
    pub(crate) files: BTreeSet<FileId>,
    /// Shortest circle through files of the set. The path is closed: its last file is its first.
    pub(crate) path: Vec<FileId>,
}

impl Circle {
    /// Returns the shortest circle as text, with the source line of each of its imports.
    pub(crate) fn shortest(&self, tree: &Tree, imports: &Imports) -> String {
        let steps = self.path.windows(2).map(|pair| FilePair { from: pair[0], to: pair[1] });
        describe(tree, imports, steps)
    }

    /// Returns every import between two files of the circle as text.
    pub(crate) fn all(&self, tree: &Tree, imports: &Imports) -> String {
        let is_within =
            |files: &FilePair| self.files.contains(&files.from) && self.files.contains(&files.to);
        describe(tree, imports, imports.keys().copied().filter(is_within))
    }
}

fn describe(tree: &Tree, imports: &Imports, steps: impl Iterator<Item = FilePair>) -> String {
    let lines = steps.filter_map(|files| {
        let import = imports.get(&files)?;
        let FilePair { from, to } = files;
        let (from, to) = (tree.files[from.0].display(), tree.files[to.0].display());
        Some(format!("  {from}:{} names {} of {to}", import.line, import.path))
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Returns all circles: each strongly connected component that has at least one edge.
pub(crate) fn circles(tree: &Tree, imports: &Imports) -> Vec<Circle> {
    let mut next: BTreeMap<FileId, BTreeSet<FileId>> = BTreeMap::new();
    for FilePair { from, to } in imports.keys() {
        next.entry(*from).or_default().insert(*to);
    }
    let files = (0..tree.files.len()).map(FileId);
    let reached: BTreeMap<FileId, BTreeSet<FileId>> =
        files.clone().map(|file| (file, reach(&next, file))).collect();
    let mut seen: BTreeSet<FileId> = BTreeSet::new();
    let mut found = Vec::new();
    for file in files {
        if seen.contains(&file) || !reached[&file].contains(&file) {
            continue;
        }
        let is_together = |other: &&FileId| reached[other].contains(&file);
        let members: BTreeSet<FileId> =
            reached[&file].iter().filter(is_together).copied().collect();
        seen.extend(&members);
        let path = members.iter().filter_map(|member| around(&next, *member));
        let path = path.min_by_key(Vec::len).unwrap_or_default();
        found.push(Circle { files: members, path });
    }
    found
}

/// Returns all files that `from` imports, directly or through other files.
///
/// `from` itself is among them only if a circle leads back to it.
fn reach(next: &BTreeMap<FileId, BTreeSet<FileId>>, from: FileId) -> BTreeSet<FileId> {
    let mut found = BTreeSet::new();
    let mut open = vec![from];
    while let Some(file) = open.pop() {
        for other in next.get(&file).into_iter().flatten() {
            if found.insert(*other) {
                open.push(*other);
            }
        }
    }
    found
}

/// Returns the shortest path from `start` back to `start`, found by breadth-first search.
fn around(next: &BTreeMap<FileId, BTreeSet<FileId>>, start: FileId) -> Option<Vec<FileId>> {
    let mut before: BTreeMap<FileId, FileId> = BTreeMap::new();
    let mut open = VecDeque::from([start]);
    while let Some(file) = open.pop_front() {
        for other in next.get(&file).into_iter().flatten() {
            if before.contains_key(other) {
                continue;
            }
            before.insert(*other, file);
            if *other == start {
                return Some(walk_back(&before, start));
            }
            open.push_back(*other);
        }
    }
    None
}

fn walk_back(before: &BTreeMap<FileId, FileId>, start: FileId) -> Vec<FileId> {
    let mut path = vec![start];
    let mut file = before[&start];
    while file != start {
        path.push(file);
        file = before[&file];
    }
    path.push(start);
    path.reverse();
    path
}
