//! Semantic analysis: from syntax trees to the resolved model, rule by rule.
//!
//! Files are analysed in the order of their imports, each once, and names must be declared before
//! they are used, as in C. What is wrong is reported and left out; the analysis goes on.
//! [`scope`] says what names stand for; `declare` turns attributes and declarators into types;
//! `operations` holds the rules of interfaces; `remote` decides what of COM's files gets stubs;
//! `order` brings the result into the order that [`crate::ir::Module`] promises.

mod analyzer;
mod com;
mod consts;
mod declare;
mod depth;
mod fold;
mod imports;
mod interfaces;
mod operations;
mod order;
mod places;
mod remote;
mod scope;
mod siblings;
mod sizes;
mod structs;
mod typedefs;
mod types;
mod unions;
mod uuid;
mod well_known;

pub use analyzer::Places;
pub(crate) use analyzer::{Analyzed, Analyzer, Dialect};
pub(crate) use com::{PRELUDE_NAME, dispatched};
pub(crate) use imports::add_source;
pub(crate) use remote::local;

use std::collections::HashMap;

use self::scope::{Derivation, DerivationKind, Scope};
use crate::ast::{Declarator, Item, Level, LevelKind};
use crate::diag::{Diagnostic, Sink, codes};
use crate::ir::{Module, PtrClass};
use crate::source::{FileNumber, Loader, SourceMap, Span};

/// Analyses the main file (already in `sources` as number `file`) and all that it imports.
pub(crate) fn analyze(
    file: FileNumber,
    dialect: Dialect,
    loader: &dyn Loader,
    sources: &mut SourceMap,
    sink: &mut Sink,
) -> Analyzed {
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
        is_com: false,
        is_part: false,
        has_prelude: false,
        in_namespace: false,
        interface_name: String::new(),
        uuids: HashMap::new(),
        places: Places::new(),
    };
    analyzer.file(file);
    analyzer.finish()
}

impl Analyzer<'_> {
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
                Item::Declare(ty) if self.is_com && self.nameless_enum(ty) => {}
                Item::Declare(ty) => {
                    self.base(ty, None);
                }
                Item::CppQuote(text) if self.import_depth == 0 => {
                    self.module.cpp_quotes.push(text.text.clone());
                }
                // Operations outside interfaces do not pass the parser.
                Item::CppQuote(_) | Item::Operation(_) => {}
                Item::CoClass(class) => self.class(class),
                Item::DispInterface(dispatch) => self.dispatch(dispatch),
                Item::Namespace(items) => {
                    let outer = std::mem::replace(&mut self.in_namespace, true);
                    self.items(items);
                    self.in_namespace = outer;
                }
                Item::Unsendable(name, what) => self.unsendable(name, *what),
                Item::Ignored(name) => self.sink.push_once(Diagnostic::note(
                    codes::IGNORED,
                    name.span,
                    format!("`{}` is accepted without effect", name.text),
                )),
            }
        }
    }

    /// Pointers and dimensions with their bounds computed. `None`: reported.
    fn steps(&mut self, declarator: &Declarator) -> Option<Vec<Derivation>> {
        declarator.levels.iter().map(|level| self.step(level)).collect()
    }

    fn step(&mut self, level: &Level) -> Option<Derivation> {
        let span = level.span;
        let kind = match &level.kind {
            LevelKind::Pointer => DerivationKind::Pointer,
            LevelKind::Function => {
                self.error(
                    codes::FUNCTION_POINTER,
                    span,
                    "functions do not travel".to_owned(),
                    "declare an interface with this operation and pass a reference to it: `[in] IName *p`",
                );
                return None;
            }
            LevelKind::Open => DerivationKind::Open,
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
                    None => DerivationKind::Open,
                    Some(high) => {
                        let last = self.int_constant(high)?;
                        self.dimension(last + 1, span)?
                    }
                }
            }
        };
        Some(Derivation { kind, span })
    }

    /// A fixed size, from 1 to 2^28 elements.
    fn dimension(&mut self, size: i128, span: Span) -> Option<DerivationKind> {
        match u32::try_from(size) {
            Ok(n) if (1..=1 << 28).contains(&n) => Some(DerivationKind::Fixed(n)),
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
