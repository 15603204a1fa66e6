//! Paths to files: which file defines what each path names.

use super::tree::{FileId, ModuleId, Segments, Tree};
use std::collections::BTreeMap;

/// Re-exports of re-exports that are followed.
const DEPTH: usize = 16;

/// That one file names an item of another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Import {
    pub(crate) line: usize,
    /// As it is written.
    pub(crate) path: String,
}

/// What a path leads to.
#[derive(Clone, Copy)]
enum Target {
    Module(ModuleId),
    /// An item that this module defines.
    Item(ModuleId),
    /// Something of another crate.
    Foreign,
}

/// Each pair of files the first of which names items of the second, with the first such line.
pub(crate) fn imports(tree: &Tree) -> BTreeMap<(FileId, FileId), Import> {
    let mut found = BTreeMap::new();
    for (index, module) in tree.modules.iter().enumerate() {
        for mention in &module.mentions {
            let Some(Target::Item(definer)) = start(tree, ModuleId(index), &mention.path, DEPTH)
            else {
                continue;
            };
            let to = tree.module(definer).file;
            if to != module.file {
                let import = Import { line: mention.line, path: mention.path.join("::") };
                found.entry((module.file, to)).or_insert(import);
            }
        }
    }
    found
}

/// Follows a path from the module in which it stands.
fn start(tree: &Tree, module: ModuleId, path: &[String], depth: usize) -> Option<Target> {
    let (first, rest) = path.split_first()?;
    match first.as_str() {
        "crate" => follow(tree, Tree::ROOT, rest, depth),
        "self" => follow(tree, module, rest, depth),
        "super" => {
            let parent = tree.module(module).parent?;
            // Further `super` count from there; anything else is a name of that module.
            if rest.first().is_some_and(|next| next == "super") {
                return start(tree, parent, rest, depth);
            }
            follow(tree, parent, rest, depth)
        }
        _ => lookup(tree, module, path, depth),
    }
}

/// Follows what is left of a path within a module that is known.
fn follow(tree: &Tree, module: ModuleId, rest: &[String], depth: usize) -> Option<Target> {
    if rest.is_empty() {
        return Some(Target::Module(module));
    }
    // A name that the module does not show is made by a macro there: it counts as its own.
    Some(lookup(tree, module, rest, depth).unwrap_or(Target::Item(module)))
}

/// What `path` is, the first segment of which is a name in `module`.
fn lookup(tree: &Tree, module: ModuleId, path: &[String], depth: usize) -> Option<Target> {
    let (name, rest) = path.split_first()?;
    let depth = depth.checked_sub(1)?;
    let here = tree.module(module);
    let child = here.children.get(name).copied();
    // A module and an item may have the same name: only a module has something behind it.
    if let Some(child) = child.filter(|_| !rest.is_empty()) {
        return follow(tree, child, rest, depth);
    }
    if here.items.contains(name) {
        return Some(Target::Item(module));
    }
    if let Some(bound) = here.bindings.get(name) {
        let whole: Segments = bound.iter().chain(rest).cloned().collect();
        // `use name;` and `use name::name` of another crate stand for themselves.
        let is_same = bound.first() == Some(name) && child.is_none();
        let found = if is_same { None } else { start(tree, module, &whole, depth) };
        return found.or(Some(Target::Foreign));
    }
    let globbed = here.globs.iter().find_map(|glob| match start(tree, module, glob, depth)? {
        Target::Module(other) if other != module => lookup(tree, other, path, depth),
        _ => None,
    });
    globbed.or(child.map(Target::Module))
}
