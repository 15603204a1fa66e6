//! Semantic analysis: from syntax trees to the resolved model, rule by rule.
//!
//! Files are analysed in the order of their imports, each once, and names must be declared before
//! they are used, as in C. What is wrong is reported and left out; the analysis goes on.
//! [`scope`] says what names stand for; `declare` turns attributes and declarators into types;
//! `operations` holds the rules of interfaces; `order` brings the result into the order that
//! [`crate::ir::Module`] promises.

mod consts;
mod declare;
mod depth;
mod fold;
mod imports;
mod interfaces;
mod operations;
mod order;
mod places;
mod scope;
mod siblings;
mod sizes;
mod structs;
mod typedefs;
mod types;
mod unions;
mod uuid;

pub(crate) use imports::add_source;

use std::collections::{BTreeMap, HashMap};

use self::scope::{Base, Meaning, Scope, Step, StepKind, Symbol};
use crate::ast::{Declarator, Item, Level, LevelKind, Name};
use crate::diag::{Code, Diagnostic, Sink, codes};
use crate::ir::{Interface, LocalAttrs, Module, PtrClass, TypeDef, TypeId, TypeKind};
use crate::source::{Loader, SourceMap, Span};

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
    dialect: Dialect,
    module: Module,
    /// Types by number; the kind is `None` while only a tag is known.
    types: Vec<PendingType>,
    /// Interfaces by number; `None` while only announced.
    interfaces: Vec<PendingInterface>,
    scope: Scope,
    /// Files read or being read, by path.
    files: HashMap<String, u32>,
    /// Pointer class where nothing is said.
    pointer_default: PtrClass,
    /// Depth of imports; 0 is the main file.
    import_depth: u32,
    /// One of COM's standard files has been imported.
    com_names: bool,
    /// The interface being read, for names made up.
    interface_name: String,
    uuids: HashMap<crate::ir::Uuid, Span>,
    places: Places,
}

/// Where types (`name`), interfaces (`name`) and operations (`interface.name`) are declared.
pub type Places = BTreeMap<String, Span>;

struct PendingType {
    def: TypeDef,
    is_defined: bool,
    span: Span,
    /// Named by a typedef or by its definition, so that another typedef is an alias.
    is_named: bool,
}

struct PendingInterface {
    interface: Option<Interface>,
    name: String,
    span: Span,
}

/// Analyses the main file (already in `sources` as number `file`) and all that it imports.
pub(crate) fn analyze(
    file: u32,
    dialect: Dialect,
    loader: &dyn Loader,
    sources: &mut SourceMap,
    sink: &mut Sink,
) -> (Module, Places) {
    let mut analyzer = Analyzer {
        loader,
        sources,
        sink,
        dialect,
        module: Module::default(),
        types: Vec::new(),
        interfaces: Vec::new(),
        scope: Scope::default(),
        files: HashMap::new(),
        pointer_default: PtrClass::Unique,
        import_depth: 0,
        com_names: false,
        interface_name: String::new(),
        uuids: HashMap::new(),
        places: Places::new(),
    };
    analyzer.file(file);
    analyzer.finish()
}

impl Analyzer<'_> {
    fn error(&mut self, code: Code, span: Span, message: String, help: &str) {
        self.sink.push(Diagnostic::error(code, span, message).help(help));
    }

    fn items(&mut self, items: &[Item]) {
        for item in items {
            match item {
                Item::Import(files) => self.import(files),
                Item::Library(library) => self.library(library),
                Item::Interface(interface) => self.interface(interface),
                Item::Forward(name) => {
                    self.announce_interface(name);
                }
                Item::Typedef(typedef) => self.typedef(typedef),
                Item::Const(constant) => self.const_item(constant),
                Item::Declare(ty) => {
                    self.base(ty, None);
                }
                Item::CppQuote(text) if self.import_depth == 0 => {
                    self.module.cpp_quotes.push(text.text.clone());
                }
                // Operations outside interfaces do not pass the parser.
                Item::CppQuote(_) | Item::Operation(_) => {}
                Item::Ignored(name) => self.sink.push_once(Diagnostic::note(
                    codes::IGNORED,
                    name.span,
                    format!("`{}` is accepted without effect", name.text),
                )),
            }
        }
    }

    /// Gives `name` a meaning, unless it has one.
    fn define(&mut self, name: &Name, meaning: Meaning) -> bool {
        if let Some(before) = self.scope.symbols.get(&name.text) {
            let at = before.span;
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
    fn new_type(&mut self, name: &str, span: Span) -> TypeId {
        let def = TypeDef {
            name: name.to_owned(),
            doc: None,
            // Replaced by the definition; the check at the end finds those that never came.
            kind: TypeKind::ContextHandle,
            imported: self.import_depth > 0,
            local: LocalAttrs::default(),
        };
        self.types.push(PendingType { def, is_defined: false, span, is_named: false });
        TypeId(u32::try_from(self.types.len() - 1).unwrap_or(u32::MAX))
    }

    fn pending(&mut self, id: TypeId) -> &mut PendingType {
        &mut self.types[id.0 as usize]
    }

    fn set_kind(&mut self, id: TypeId, kind: TypeKind) {
        let pending = self.pending(id);
        pending.def.kind = kind;
        pending.is_defined = true;
    }

    /// Pointers and dimensions with their bounds computed. `None`: reported.
    fn steps(&mut self, declarator: &Declarator) -> Option<Vec<Step>> {
        declarator.levels.iter().map(|level| self.step(level)).collect()
    }

    fn step(&mut self, level: &Level) -> Option<Step> {
        let span = level.span;
        let kind = match &level.kind {
            LevelKind::Pointer => StepKind::Pointer,
            LevelKind::Open => StepKind::Open,
            LevelKind::Bound(size) => {
                let size = self.int_constant(size)?;
                self.dimension(size, span)?
            }
            LevelKind::Bounds(low, high) => {
                if self.int_constant(low)? != 0 {
                    self.error(
                        codes::LOWER_BOUND,
                        low.span,
                        "arrays begin at index 0".to_owned(),
                        "write [0..n], or [n + 1]",
                    );
                    return None;
                }
                match high {
                    None => StepKind::Open,
                    Some(high) => {
                        let last = self.int_constant(high)?;
                        self.dimension(last + 1, span)?
                    }
                }
            }
        };
        Some(Step { kind, span })
    }

    /// A fixed size, from 1 to 2^28 elements.
    fn dimension(&mut self, size: i128, span: Span) -> Option<StepKind> {
        match u32::try_from(size) {
            Ok(n) if (1..=1 << 28).contains(&n) => Some(StepKind::Fixed(n)),
            _ => {
                self.error(
                    codes::ARRAY_SIZE,
                    span,
                    format!("an array of {size} elements is not possible"),
                    "fixed arrays have 1 to 2^28 elements; for others use size_is",
                );
                None
            }
        }
    }
}

/// The type, if it can stand alone.
fn plain(base: &Base) -> Option<&crate::ir::Ty> {
    match base {
        Base::Ty(ty) => Some(ty),
        _ => None,
    }
}
