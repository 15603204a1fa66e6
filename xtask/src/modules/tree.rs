//! Modules of one crate as the source has them: names, imports and paths, nothing resolved.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// File, as an index into [`Tree::files`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FileId(pub(crate) usize);

/// Module, as an index into [`Tree::modules`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ModuleId(pub(crate) usize);

/// Path as the source has it, one element for each segment; `crate`, `self` and `super` are
/// segments.
pub(crate) type Segments = Vec<String>;

/// Path that the source of a module contains, with its line.
#[derive(Debug)]
pub(crate) struct Mention {
    pub(crate) path: Segments,
    pub(crate) line: usize,
}

/// Module: a file, or an inline `mod` of a file.
#[derive(Debug)]
pub(crate) struct Module {
    pub(crate) file: FileId,
    pub(crate) parent: Option<ModuleId>,
    pub(crate) children: BTreeMap<String, ModuleId>,
    /// Names of the items that the module defines.
    pub(crate) items: BTreeSet<String>,
    /// Names that `use` declarations bring into scope, each with the path that the name stands for.
    pub(crate) bindings: BTreeMap<String, Segments>,
    /// Paths of the modules that `use …::*` declarations import.
    pub(crate) globs: Vec<Segments>,
    pub(crate) mentions: Vec<Mention>,
}

impl Module {
    pub(crate) fn new(file: FileId, parent: Option<ModuleId>) -> Self {
        Self {
            file,
            parent,
            children: BTreeMap::new(),
            items: BTreeSet::new(),
            bindings: BTreeMap::new(),
            globs: Vec::new(),
            mentions: Vec::new(),
        }
    }
}

/// A module as its parent names it.
#[derive(Clone, Copy)]
pub(crate) struct ChildName<'a> {
    pub(crate) parent: ModuleId,
    pub(crate) name: &'a str,
}

/// All modules of a crate; the first module is the crate's root.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    pub(crate) files: Vec<PathBuf>,
    pub(crate) modules: Vec<Module>,
}

impl Tree {
    pub(crate) const ROOT: ModuleId = ModuleId(0);

    pub(crate) fn module(&self, id: ModuleId) -> &Module {
        &self.modules[id.0]
    }

    pub(crate) fn module_mut(&mut self, id: ModuleId) -> &mut Module {
        &mut self.modules[id.0]
    }

    /// Adds a module: a child called `name` of `parent`, or the root if `parent` is `None`.
    pub(crate) fn add(&mut self, file: FileId, parent: Option<ChildName<'_>>) -> ModuleId {
        let id = ModuleId(self.modules.len());
        self.modules.push(Module::new(file, parent.map(|child| child.parent)));
        if let Some(ChildName { parent, name }) = parent {
            self.module_mut(parent).children.insert(name.to_owned(), id);
        }
        id
    }
}
