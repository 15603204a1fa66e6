//! Interfaces and libraries.

use std::collections::HashMap;

use super::analyzer::{Analyzer, PendingInterface};
use super::remote::{self, Tolerated};
use super::scope::{Meaning, Symbol};
use super::uuid;
use super::well_known::is_unknown;
use crate::ast::{Args, Attr, Interface as Tree, Item, Library as LibraryTree, Name, find};
use crate::diag::{Diagnostic, codes, nearest};
use crate::ir::{
    Cause, DeclaredOperation, Interface, InterfaceId, Library, LocalAttrs, Operation, PtrClass,
};
use crate::source::Span;

/// Operation numbers 0 to 0xFFFE; 0xFFFF is the binding call.
const OPERATIONS_MAX: usize = 0xFFFF;

/// The operations of an interface.
struct Body {
    operations: Vec<Operation>,
    /// Those without stubs.
    declared: Vec<DeclaredOperation>,
}

impl Analyzer<'_> {
    pub(super) fn library(&mut self, tree: &LibraryTree) {
        self.check_places(&tree.attrs, 'L');
        let library = Library {
            name: tree.name.text.clone(),
            uuid: self.uuid(&tree.attrs),
            version: self.version(&tree.attrs),
            doc: Self::doc_with_help(tree.doc.as_ref(), &tree.attrs),
        };
        if self.import_depth == 0 {
            if self.module.library.is_some() {
                self.error(
                    codes::MANY_LIBRARIES,
                    tree.name.span,
                    "a file has one library at most".to_owned(),
                    "move the second one into a file of its own",
                );
            }
            self.module.library = Some(library);
        }
        self.items(&tree.items);
    }

    /// The number of an interface, announced now if it is new. `None`: reported.
    pub(super) fn announce_interface(&mut self, name: &Name) -> Option<InterfaceId> {
        if let Some(symbol) = self.scope.symbols.get(&name.text) {
            if let Meaning::Interface(id) = symbol.meaning {
                return Some(id);
            }
            let at = symbol.span;
            self.sink.push(
                Diagnostic::error(
                    codes::DUPLICATE_NAME,
                    name.span,
                    format!("`{}` is not an interface", name.text),
                )
                .label(at, "declared here")
                .help("choose another name"),
            );
            return None;
        }
        let id = InterfaceId(u32::try_from(self.interfaces.len()).unwrap_or(u32::MAX));
        let (text, span) = (name.text.clone(), name.span);
        self.interfaces.push(PendingInterface { interface: None, name: text, span });
        let meaning = Meaning::Interface(id);
        self.scope.symbols.insert(name.text.clone(), Symbol { meaning, span });
        Some(id)
    }

    pub(super) fn interface(&mut self, tree: &Tree) {
        self.check_places(&tree.attrs, 'I');
        if self.is_com && is_unknown(&tree.name.text) {
            // Its three operations are how processes count references: here connections do.
            let others = tree.items.iter().filter(|i| !matches!(i, Item::Operation(_)));
            return others.for_each(|item| self.items(std::slice::from_ref(item)));
        }
        let Some(id) = self.announce_interface(&tree.name) else { return };
        if self.interfaces[id.0 as usize].interface.is_some() {
            let first = self.interfaces[id.0 as usize].span;
            self.sink.push(
                Diagnostic::error(
                    codes::DUPLICATE_NAME,
                    tree.name.span,
                    format!("interface `{}` is defined twice", tree.name.text),
                )
                .label(first, "first defined here")
                .help("rename or remove one of them"),
            );
            return;
        }
        self.interfaces[id.0 as usize].span = tree.name.span;
        let version = self.version(&tree.attrs);
        let uuid = self.uuid(&tree.attrs).unwrap_or_else(|| uuid::derive(&tree.name.text, version));
        let Tolerated { value: base, cause: lost } =
            self.tolerantly(|this| tree.base.as_ref().and_then(|b| this.base_interface(b, id)));
        let Body { mut operations, mut declared } = self.body(tree, base);
        if let Some(cause) = lost {
            // Nobody knows how many operations come before those of this interface.
            let all = std::mem::take(&mut operations).into_iter();
            declared.extend(all.map(|Operation { name, opnum, .. }| DeclaredOperation {
                name,
                opnum,
                cause: cause.clone(),
            }));
        }
        let interface = Interface {
            name: tree.name.text.clone(),
            doc: Self::doc_with_help(tree.doc.as_ref(), &tree.attrs),
            uuid,
            version,
            base,
            operations,
            declared,
            is_local: find(&tree.attrs, "local").is_some(),
            imported: self.import_depth > 0,
            acf: LocalAttrs::default(),
        };
        self.interfaces[id.0 as usize].interface = Some(interface);
    }

    fn base_interface(&mut self, name: &Name, this: InterfaceId) -> Option<InterfaceId> {
        if is_unknown(&name.text) {
            return None;
        }
        if !self.scope.symbols.contains_key(&name.text) {
            self.prelude(&name.text);
        }
        let known = self.scope.symbols.get(&name.text).map(|s| s.meaning.clone());
        match known {
            Some(Meaning::Interface(id))
                if id != this && self.interfaces[id.0 as usize].interface.is_some() =>
            {
                Some(id)
            }
            _ => {
                let announced = matches!(known, Some(Meaning::Interface(_)));
                if announced && self.is_com {
                    self.error(
                        codes::INCOMPLETE_TYPE,
                        name.span,
                        format!("base `{}` is defined later", name.text),
                        "define the base before",
                    );
                } else {
                    self.unknown_base(name);
                }
                None
            }
        }
    }

    fn unknown_base(&mut self, name: &Name) {
        let names = self.interfaces.iter().filter(|i| i.interface.is_some());
        let near = nearest(&name.text, names.map(|i| i.name.as_str()).chain(["IUnknown"]));
        let help = match near {
            Some(near) if near != name.text => format!("did you mean `{near}`?"),
            _ => "define the base before, or import the file that does".to_owned(),
        };
        self.error(
            codes::UNKNOWN_BASE,
            name.span,
            format!("there is no interface `{}` that could be extended here", name.text),
            &help,
        );
    }

    fn body(&mut self, tree: &Tree, base: Option<InterfaceId>) -> Body {
        let class = self.default_class(&tree.attrs).unwrap_or(self.pointer_default);
        let outer = std::mem::replace(&mut self.pointer_default, class);
        self.interface_name.clone_from(&tree.name.text);
        let inherited = self.inherited(base);
        let mut names: HashMap<String, Span> =
            inherited.iter().map(|n| (n.text.clone(), n.span)).collect();
        let (mut operations, mut declared) = (Vec::new(), Vec::new());
        for item in &tree.items {
            let Item::Operation(op) = item else {
                self.items(std::slice::from_ref(item));
                continue;
            };
            let opnum = inherited.len() + operations.len() + declared.len();
            let Some(opnum) = self.opnum(opnum, &op.name) else { break };
            let Tolerated { value: operation, cause } =
                self.tolerantly(|this| this.operation(op, opnum));
            let name = Name { text: operation.name.clone(), span: op.name.span };
            let first = names.insert(name.text.clone(), name.span);
            let cause = cause.or_else(|| self.duplicate_operation(&name, first?));
            self.places.insert(format!("{}.{}", tree.name.text, name.text), name.span);
            match cause {
                None => operations.push(operation),
                Some(cause) => {
                    let is_local = operation.is_local || find(&tree.attrs, "local").is_some();
                    let cause = if is_local { remote::local(name.span) } else { cause };
                    declared.push(DeclaredOperation { name: name.text, opnum, cause });
                }
            }
        }
        self.pointer_default = outer;
        Body { operations, declared }
    }

    fn opnum(&mut self, number: usize, name: &Name) -> Option<u16> {
        match u16::try_from(number) {
            Ok(n) if number < OPERATIONS_MAX => Some(n),
            _ => {
                self.error(
                    codes::TOO_MANY_OPERATIONS,
                    name.span,
                    "an interface has at most 65535 operations".to_owned(),
                    "divide it into several interfaces",
                );
                None
            }
        }
    }

    /// Two operations of one name: in files of COM, where C++ tells them apart, the second has no
    /// stubs.
    fn duplicate_operation(&mut self, name: &Name, first: Span) -> Option<Cause> {
        if self.is_com {
            let message = format!("there is an operation `{}` already", name.text);
            return Some(Cause { construct: "name that is taken", message, span: name.span });
        }
        self.sink.push(
            Diagnostic::error(
                codes::DUPLICATE_OPERATION,
                name.span,
                format!("there is an operation `{}` already", name.text),
            )
            .label(first, "first declared here")
            .help("operations have names of their own, those of the base included"),
        );
        None
    }

    /// Names of all operations of `base` and its bases, in order of their numbers.
    fn inherited(&self, base: Option<InterfaceId>) -> Vec<Name> {
        let mut chain = Vec::new();
        let mut next = base;
        while let Some(id) = next.filter(|_| chain.len() < self.interfaces.len()) {
            let pending = &self.interfaces[id.0 as usize];
            chain.push(pending);
            next = pending.interface.as_ref().and_then(|i| i.base);
        }
        let mut names = Vec::new();
        for pending in chain.into_iter().rev() {
            let Some(interface) = &pending.interface else { continue };
            let own = interface.operations.iter().map(|op| &op.name);
            let names_of_all = own.chain(interface.declared.iter().map(|op| &op.name));
            names.extend(names_of_all.map(|n| Name { text: n.clone(), span: pending.span }));
        }
        names
    }

    fn default_class(&mut self, attrs: &[Attr]) -> Option<PtrClass> {
        let Some(Attr { args: Args::Word(word), .. }) = find(attrs, "pointer_default") else {
            return None;
        };
        match word.text.as_str() {
            "ref" => Some(PtrClass::Ref),
            "unique" => Some(PtrClass::Unique),
            "ptr" => Some(PtrClass::Ptr),
            other => {
                let near = nearest(other, ["ref", "unique", "ptr"]);
                let help = near.map_or("write ref, unique or ptr".to_owned(), |n| {
                    format!("did you mean `{n}`?")
                });
                self.error(
                    codes::POINTER_CLASS,
                    word.span,
                    format!("there is no pointer class `{other}`"),
                    &help,
                );
                None
            }
        }
    }
}
