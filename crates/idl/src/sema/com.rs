//! Classes, dispatch interfaces and what else only files of COM have; and COM's own types, for
//! those who have none of its files.

use super::analyzer::{Analyzer, plain};
use super::scope::{Base, Meaning, Symbol};
use super::uuid;
use crate::ast::{
    Args, Attr, CoClass as ClassTree, DispInterface as DispatchTree, Name, Unsendable, find,
};
use crate::diag::{Diagnostic, codes};
use crate::ir::{Cause, ClassInterface, CoClass, DispInterface, Ty, TypeKind, Uuid};
use crate::source::Span;

/// The types of COM that are built in, as IDL.
const PRELUDE: &str = include_str!("com/prelude.idl");

/// Its name among the sources.
pub(crate) const PRELUDE_NAME: &str = "<types of COM>";

/// Names that need it.
const PRELUDE_TYPES: &[&str] = &[
    "BSTR",
    "CY",
    "CURRENCY",
    "DECIMAL",
    "IDispatch",
    "VARIANT",
    "VARIANTARG",
    "VARENUM",
    "VARTYPE",
];

impl Analyzer<'_> {
    pub(super) fn class(&mut self, tree: &ClassTree) {
        let interfaces = tree.interfaces.iter().map(|i| ClassInterface {
            name: i.name.text.clone(),
            is_default: find(&i.attrs, "default").is_some(),
            is_source: find(&i.attrs, "source").is_some(),
        });
        self.module.classes.push(CoClass {
            name: tree.name.text.clone(),
            uuid: identifier(&tree.attrs),
            interfaces: interfaces.collect(),
            imported: self.import_depth > 0,
        });
    }

    pub(super) fn dispatch(&mut self, tree: &DispatchTree) {
        // One that is announced, or used as a type, is an interface that nobody defines.
        self.announce_interface(&tree.name);
        let Some(members) = &tree.members else { return };
        self.places.insert(tree.name.text.clone(), tree.name.span);
        if self.import_depth == 0 {
            let message = format!(
                "`{}` is declared only: {}",
                tree.name.text,
                dispatched(tree.name.span).message
            );
            self.sink.push(
                Diagnostic::warning(codes::AUTOMATION, tree.name.span, message)
                    .help("declare an `interface` with the same operations"),
            );
        }
        self.module.dispatches.push(DispInterface {
            name: tree.name.text.clone(),
            uuid: identifier(&tree.attrs),
            members: members.iter().map(|m| m.text.clone()).collect(),
            imported: self.import_depth > 0,
        });
    }

    /// A name that no message can carry: whoever uses it is declared only.
    pub(super) fn unsendable(&mut self, name: &Name, what: Unsendable) {
        let (construct, why) = match what {
            Unsendable::RuntimeClass => ("runtime class", "is a class of the Windows Runtime"),
            Unsendable::Delegate => ("delegate", "is a function of the Windows Runtime"),
            Unsendable::Parameterised => ("parameterised interface", "has types as parameters"),
            // Nothing can refer to it, so there is nothing to keep.
            Unsendable::Function => return,
        };
        if self.scope.symbols.contains_key(&name.text) {
            return;
        }
        let id = self.new_type(&name.text, name.span);
        let message = format!("`{}` {why}", name.text);
        self.pending(id).cause = Some(Cause { construct, message, span: name.span });
        let base = Base::Ty(Ty::Named(id));
        let meaning = Meaning::Type { base, shape: None };
        self.scope.symbols.insert(name.text.clone(), Symbol { meaning, span: name.span });
    }

    /// Whether a type is declared again, as files of COM that are read apart do: the first one
    /// counts, under every name.
    pub(super) fn repeats(&mut self, name: &Name, again: &Meaning) -> bool {
        let known = self.scope.symbols.get(&name.text).map(|s| (&s.meaning, s.span));
        let (Meaning::Type { base: again, .. }, Some((Meaning::Type { base: first, .. }, at))) =
            (again, known)
        else {
            return false;
        };
        let (first, again) = (first.clone(), again.clone());
        let is_same = match (plain(&first), plain(&again)) {
            (Some(first), Some(again)) => self.is_same(first, again),
            (first, again) => first.is_none() && again.is_none(),
        };
        if !is_same && self.import_depth == 0 {
            let message = format!("`{}` is declared again, as something else", name.text);
            self.sink.push(
                Diagnostic::warning(codes::DUPLICATE_NAME, name.span, message)
                    .label(at, "this is what counts")
                    .help("rename or remove one of them"),
            );
        }
        if let (Base::Ty(Ty::Named(first)), Base::Ty(Ty::Named(again))) = (first, again)
            && first != again
            && self.pending(again).def.name == name.text
        {
            self.pending(again).is_defined = false;
            let tags = self.scope.tags.values_mut().filter(|tag| tag.id == again);
            tags.for_each(|tag| tag.id = first);
        }
        true
    }

    /// Returns true if two types are one scalar, or structures with the same fields.
    fn is_same(&self, first: &Ty, again: &Ty) -> bool {
        let (first, again) = (self.strip(first), self.strip(again));
        let (Ty::Named(a), Ty::Named(b)) = (first, again) else { return first == again };
        match (self.kind(*a), self.kind(*b)) {
            (Some(TypeKind::Struct(a)), Some(TypeKind::Struct(b))) => {
                let fields = || a.fields.iter().zip(&b.fields);
                a.fields.len() == b.fields.len()
                    && fields()
                        .all(|(a, b)| a.name == b.name && self.strip(&a.ty) == self.strip(&b.ty))
            }
            _ => a == b,
        }
    }

    /// Makes COM's own types known, if `name` is one of them, and answers whether it has.
    pub(super) fn prelude(&mut self, name: &str) -> bool {
        let is_wanted = self.com_names && !self.has_prelude && PRELUDE_TYPES.contains(&name);
        // A file that declares some of it counts, and is not mixed with what is built in.
        if !is_wanted || self.scope.symbols.contains_key("VT_EMPTY") {
            return false;
        }
        self.has_prelude = true;
        let interface = std::mem::take(&mut self.interface_name);
        let file = self.sources.add(PRELUDE_NAME, PRELUDE);
        self.import_depth += 1;
        self.file(file);
        self.import_depth -= 1;
        self.interface_name = interface;
        true
    }
}

/// Why a dispatch interface has no stubs.
pub(crate) fn dispatched(span: Span) -> Cause {
    let message = "its members are called by number through IDispatch.Invoke".to_owned();
    Cause { construct: "dispatch interface", message, span }
}

/// `uuid(...)` of what is not called: nothing depends on its being unique.
fn identifier(attrs: &[Attr]) -> Option<Uuid> {
    match find(attrs, "uuid") {
        Some(Attr { args: Args::Uuid(text), .. }) => uuid::parse(&text.text),
        _ => None,
    }
}
