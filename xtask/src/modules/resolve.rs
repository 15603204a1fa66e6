//! Resolving paths: finds the file that defines the item each path names.
//!
//! Not here: reading the paths from the source (`source`), and circles (`circles`).

use super::tree::{FileId, ModuleId, Segments, Tree};
use std::collections::BTreeMap;

/// Longest chain of re-exports that is followed. The bound ends chains that lead back to their
/// beginning.
const DEPTH: usize = 16;

/// Place at which one file names an item of another file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Import {
    pub(crate) line: usize,
    /// The path as the source has it, with `::` between its segments.
    pub(crate) path: String,
}

/// Two files, of which the first imports the second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FilePair {
    pub(crate) from: FileId,
    pub(crate) to: FileId,
}

/// Result of resolving a path.
#[derive(Clone, Copy)]
enum Target {
    Module(ModuleId),
    /// An item, with the module that defines the item.
    Item(ModuleId),
    /// Something that another crate defines.
    Foreign,
}

/// Returns each pair of files of which the first names an item of the second, with the first such
/// place.
pub(crate) fn imports(tree: &Tree) -> BTreeMap<FilePair, Import> {
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
                found.entry(FilePair { from: module.file, to }).or_insert(import);
            }
        }
    }
    found
}

/// Resolves a path relative to the module in which the path stands.
fn start(tree: &Tree, module: ModuleId, path: &[String], depth: usize) -> Option<Target> {
    let (first, rest) = path.split_first()?;
    match first.as_str() {
        "crate" => follow(tree, Tree::ROOT, rest, depth),
        "self" => follow(tree, module, rest, depth),
        "super" => {
            let parent = tree.module(module).parent?;
            // A further `super` counts from the parent; any other segment names something in the
            // parent.
            if rest.first().is_some_and(|next| next == "super") {
                return start(tree, parent, rest, depth);
            }
            follow(tree, parent, rest, depth)
        }
        _ => lookup(tree, module, path, depth),
    }
}

/// Resolves the remaining segments of a path within the module that the path has reached.
fn follow(tree: &Tree, module: ModuleId, rest: &[String], depth: usize) -> Option<Target> {
    if rest.is_empty() {
        return Some(Target::Module(module));
    }
    // A name that the module's source does not show comes from a macro invoked in that module, so
    // the module counts as the definer.
    Some(lookup(tree, module, rest, depth).unwrap_or(Target::Item(module)))
}

/// Resolves a path whose first segment is a name in the scope of `module`.
///
/// Returns `None` if the scope has no such name, or if the chain of re-exports is too long.
fn lookup(tree: &Tree, module: ModuleId, path: &[String], depth: usize) -> Option<Target> {
    let (name, rest) = path.split_first()?;
    let depth = depth.checked_sub(1)?;
    let here = tree.module(module);
    let child = here.children.get(name).copied();
    // A child module and an item may share a name, because modules and functions are in different
    // namespaces. Only the module can have further segments behind the name.
    if let Some(child) = child.filter(|_| !rest.is_empty()) {
        return follow(tree, child, rest, depth);
    }
    if here.items.contains(name) {
        return Some(Target::Item(module));
    }
    if let Some(bound) = here.bindings.get(name) {
        let whole: Segments = bound.iter().chain(rest).cloned().collect();
        // `use name;` and `use name::…::name` of another crate bind `name` to a path that begins
        // with `name`: resolving the path in this module again would not end.
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
