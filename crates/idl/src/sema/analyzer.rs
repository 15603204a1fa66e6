//! What is known while a compilation runs, and how it is added to. Not here: the rules, which are
//! in the files beside this one.

use std::collections::{BTreeMap, HashMap};

use super::scope::{Base, Meaning, Scope, Symbol};
use crate::ast::Name;
use crate::diag::{Code, Diagnostic, Sink, codes};
use crate::ir::{Cause, Interface, LocalAttrs, Module, PtrClass, TypeDef, TypeId, TypeKind};
use crate::source::{FileNumber, Loader, SourceMap, Span};

/// Choices that concern the language.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Dialect {
    /// `max_is` is a count, as DICE has it, not the last index.
    pub(crate) max_is_count: bool,
}

/// Everything known while a compilation runs.
pub(crate) struct Analyzer<'a> {
    pub(crate) loader: &'a dyn Loader,
    pub(crate) sources: &'a mut SourceMap,
    pub(crate) sink: &'a mut Sink,
    pub(super) dialect: Dialect,
    pub(super) module: Module,
    /// Types by number; the kind is `None` while only a tag is known.
    pub(super) types: Vec<PendingType>,
    /// Interfaces by number; `None` while only announced.
    pub(super) interfaces: Vec<PendingInterface>,
    pub(super) scope: Scope,
    /// Files read or being read, by path.
    pub(super) files: HashMap<String, FileNumber>,
    /// Pointer class where nothing is said.
    pub(super) pointer_default: PtrClass,
    /// Depth of imports; 0 is the main file.
    pub(super) import_depth: u32,
    /// One of COM's standard files has been imported.
    pub(super) com_names: bool,
    /// A file of COM is among those read: what cannot travel is declared only.
    pub(super) is_com: bool,
    /// The main file is one of COM's and imports nothing: a part of another file.
    pub(super) is_part: bool,
    /// COM's own types have been read.
    pub(super) has_prelude: bool,
    /// Inside a `namespace`, where members of enumerations are known with their type only.
    pub(super) in_namespace: bool,
    /// The interface being read, for names made up.
    pub(super) interface_name: String,
    pub(super) uuids: HashMap<crate::ir::Uuid, Span>,
    pub(super) places: Places,
}

/// Where types (`name`), interfaces (`name`) and operations (`interface.name`) are declared.
pub type Places = BTreeMap<String, Span>;

/// The result of an analysis.
#[derive(Default)]
pub(crate) struct Analyzed {
    pub(crate) module: Module,
    pub(crate) places: Places,
}

pub(super) struct PendingType {
    pub(super) def: TypeDef,
    pub(super) is_defined: bool,
    pub(super) span: Span,
    /// Why it cannot travel, if it cannot.
    pub(super) cause: Option<Cause>,
    /// Named by a typedef or by its definition, so that another typedef is an alias.
    pub(super) is_named: bool,
}

pub(super) struct PendingInterface {
    pub(super) interface: Option<Interface>,
    pub(super) name: String,
    pub(super) span: Span,
}

impl Analyzer<'_> {
    pub(super) fn error(&mut self, code: Code, span: Span, message: String, help: &str) {
        self.sink.push(Diagnostic::error(code, span, message).help(help));
    }

    /// Gives `name` a meaning, unless it has one.
    pub(super) fn define(&mut self, name: &Name, meaning: Meaning) -> bool {
        if let Some(before) = self.scope.symbols.get(&name.text) {
            let at = before.span;
            if self.is_com && self.repeats(name, &meaning) {
                return false;
            }
            self.sink.push(
                Diagnostic::error(
                    codes::DUPLICATE_NAME,
                    name.span,
                    format!("`{}` is declared twice", name.text),
                )
                .label(at, "first declared here")
                .help("types, constants, members of enumerations and interfaces share one space of names"),
            );
            return false;
        }
        self.scope.symbols.insert(name.text.clone(), Symbol { meaning, span: name.span });
        true
    }

    /// A new type of which nothing but a name is known.
    pub(super) fn new_type(&mut self, name: &str, span: Span) -> TypeId {
        let def = TypeDef {
            name: name.to_owned(),
            doc: None,
            // Replaced by the definition; the check at the end finds those that never came.
            kind: TypeKind::ContextHandle,
            imported: self.import_depth > 0,
            local: LocalAttrs::default(),
        };
        self.types.push(PendingType { def, is_defined: false, span, cause: None, is_named: false });
        TypeId(u32::try_from(self.types.len() - 1).unwrap_or(u32::MAX))
    }

    pub(super) fn pending(&mut self, id: TypeId) -> &mut PendingType {
        &mut self.types[id.0 as usize]
    }

    pub(super) fn set_kind(&mut self, id: TypeId, kind: TypeKind) {
        let pending = self.pending(id);
        pending.def.kind = kind;
        pending.is_defined = true;
    }
}

/// The type, if it can stand alone.
pub(super) fn plain(base: &Base) -> Option<&crate::ir::Ty> {
    match base {
        Base::Ty(ty) => Some(ty),
        _ => None,
    }
}
