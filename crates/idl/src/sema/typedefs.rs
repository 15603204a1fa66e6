//! `typedef`: aliases, names of structures, opaque types, context handles.

use super::analyzer::Analyzer;
use super::declare::{Position, Subject};
use super::remote::Tolerated;
use super::scope::{Base, Derivation, DerivationKind, Meaning, Shape, Siblings};
use super::types::Hint;
use crate::ast::{Args, Attr, Declarator, TypeKind as Words, TypeSpec, Typedef as Tree, find};
use crate::diag::codes;
use crate::ir::{Ty, TypeKind};
use crate::source::Span;

/// Attributes after which a typedef is settled: uses cannot reshape it.
const SHAPING: &[&str] = &["string", "ref", "unique", "ptr"];

impl Analyzer<'_> {
    pub(super) fn typedef(&mut self, tree: &Tree) {
        let places = self.tolerantly(|this| this.check_places(&tree.attrs, 'T'));
        if let Some(cause) = places.cause {
            return self.all_declared_only(tree, &cause);
        }
        let Some(spec) = &tree.ty else { return self.opaque(tree) };
        if find(&tree.attrs, "context_handle").is_some() {
            return self.context_handle_type(tree, spec);
        }
        let first_plain = tree.declarators.iter().find(|d| d.levels.is_empty());
        let hint = first_plain.or(tree.declarators.first()).map(|d| {
            let mut name = d.name.clone();
            if first_plain.is_none() {
                name.text.push_str("_target");
            }
            let doc = Self::doc_with_help(tree.doc.as_ref(), &tree.attrs);
            Hint { name, typedef: first_plain.is_some(), doc }
        });
        if let Some(Attr { args: Args::Type(wire), .. }) = wire_type(&tree.attrs) {
            return self.wire_marshal(tree, spec, wire);
        }
        let Tolerated { value: base, cause } =
            self.tolerantly(|this| this.base_with_switch(&tree.attrs, spec, hint.as_ref()));
        match (base, cause) {
            (_, Some(cause)) => self.all_declared_only(tree, &cause),
            (Some(base), None) => {
                for declarator in &tree.declarators {
                    self.typedef_name(tree, spec, &base, declarator);
                }
            }
            (None, None) => self.undeclarable(tree),
        }
    }

    fn all_declared_only(&mut self, tree: &Tree, cause: &crate::ir::Cause) {
        for declarator in &tree.declarators {
            self.declared_only(&declarator.name, cause.clone());
        }
    }

    /// `[wire_marshal(W)] T name`: programs have T, and W travels. Of a T that is defined here,
    /// its tag goes on to mean T.
    fn wire_marshal(&mut self, tree: &Tree, spec: &TypeSpec, wire: &TypeSpec) {
        self.tolerantly(|this| this.base(spec, None));
        let Tolerated { value: base, cause } = self.tolerantly(|this| this.base(wire, None));
        if let Some(cause) = cause {
            return self.all_declared_only(tree, &cause);
        }
        let Some(base) = base else { return self.undeclarable(tree) };
        for declarator in &tree.declarators {
            let bare = Declarator { name: declarator.name.clone(), levels: Vec::new() };
            let plain = Tree { attrs: Vec::new(), ..tree.clone() };
            self.typedef_name(&plain, wire, &base, &bare);
        }
    }

    /// A name for something that cannot travel.
    fn declared_only(&mut self, name: &crate::ast::Name, cause: crate::ir::Cause) {
        let id = self.new_type(&name.text, name.span);
        self.cannot_travel(id, cause);
        self.define(name, Meaning::Type { base: Base::Ty(Ty::Named(id)), shape: None });
    }

    /// Names of a broken typedef are kept as `long`, so that their uses are not reported too.
    fn undeclarable(&mut self, tree: &Tree) {
        for declarator in &tree.declarators {
            let base = Base::Ty(Ty::Scalar(crate::ir::Scalar::I32));
            self.define(&declarator.name, Meaning::Type { base, shape: None });
        }
    }

    /// The type of a typedef or field, which may be a union whose discriminant `switch_type` names.
    pub(super) fn base_with_switch(
        &mut self,
        attrs: &[Attr],
        spec: &TypeSpec,
        hint: Option<&Hint>,
    ) -> Option<Base> {
        let switch = find(attrs, "switch_type");
        match (&spec.kind, switch) {
            (Words::Union(union), Some(Attr { args: Args::Type(ty), .. }))
                if union.switch.is_none() =>
            {
                self.union(union, spec, hint, Some(ty))
            }
            (_, Some(attr)) => {
                self.error(
                    codes::ATTRIBUTE_PLACE,
                    attr.span,
                    "`switch_type` belongs to the definition of a union without `switch`"
                        .to_owned(),
                    "take it out",
                );
                self.base(spec, hint)
            }
            _ => self.base(spec, hint),
        }
    }

    fn typedef_name(&mut self, tree: &Tree, spec: &TypeSpec, base: &Base, declarator: &Declarator) {
        let name = &declarator.name;
        let Tolerated { value: levels, cause } = self.tolerantly(|this| this.steps(declarator));
        if let Some(cause) = cause {
            return self.declared_only(name, cause);
        }
        let Some(levels) = levels else { return };
        let shaped = tree.attrs.iter().any(|a| SHAPING.contains(&a.name.text.as_str()));
        if levels.is_empty() && !shaped && self.is_own_name(base, &name.text) {
            self.define(name, Meaning::Type { base: base.clone(), shape: None });
            return;
        }
        let shape = (!shaped && !levels.is_empty())
            .then(|| Shape { base: base.clone(), levels: levels.clone() });
        if !shaped && Self::needs_attributes(base, &levels) {
            let shape = Shape { base: base.clone(), levels };
            let base = Base::Shaped(Box::new(shape));
            self.define(name, Meaning::Type { base, shape: None });
            return;
        }
        if levels.is_empty() && !shaped && matches!(base, Base::Union(_)) {
            self.define(name, Meaning::Type { base: base.clone(), shape: None });
            return;
        }
        let attrs = &tree.attrs;
        let subject = Subject { attrs, name, span: spec.span, base: base.clone(), levels };
        let mut alone = Siblings::default();
        let Tolerated { value: built, cause } =
            self.tolerantly(|this| this.declare(subject, Position::Typedef, &mut alone));
        if let Some(cause) = cause {
            return self.declared_only(name, cause);
        }
        let Some(built) = built else {
            let base = Base::Ty(Ty::Scalar(crate::ir::Scalar::I32));
            self.define(name, Meaning::Type { base, shape: None });
            return;
        };
        let doc = Self::doc_with_help(tree.doc.as_ref(), &tree.attrs);
        self.new_named(name, TypeKind::Alias(built.ty), doc, shape);
    }

    /// A type of its own for `name`.
    fn new_named(
        &mut self,
        name: &crate::ast::Name,
        kind: TypeKind,
        doc: crate::ir::Doc,
        shape: Option<Shape>,
    ) {
        let id = self.new_type(&name.text, name.span);
        self.set_kind(id, kind);
        let pending = self.pending(id);
        pending.def.doc = doc;
        pending.is_named = true;
        self.define(name, Meaning::Type { base: Base::Ty(Ty::Named(id)), shape });
    }

    /// Returns true if the structure behind `base` took this very name.
    fn is_own_name(&mut self, base: &Base, name: &str) -> bool {
        match base {
            Base::Ty(Ty::Named(id)) | Base::Union(id) => self.pending(*id).def.name == name,
            _ => false,
        }
    }

    /// Open arrays, and pointers to what cannot stand alone.
    fn needs_attributes(base: &Base, levels: &[Derivation]) -> bool {
        match base {
            Base::Shaped(_) | Base::Void | Base::Union(_) => !levels.is_empty(),
            _ => levels.iter().any(|l| l.kind == DerivationKind::Open),
        }
    }

    fn opaque(&mut self, tree: &Tree) {
        let Some(Attr { args: Args::Exprs(args), span, .. }) = find(&tree.attrs, "opaque") else {
            return;
        };
        let [Some(size), Some(align)] = args.as_slice() else { return };
        let (Some(size), Some(align)) = (self.int_constant(size), self.int_constant(align)) else {
            return self.undeclarable(tree);
        };
        let fits = matches!(align, 1 | 2 | 4 | 8) && (1..=1 << 20).contains(&size);
        if !fits || size % align != 0 {
            self.error(
                codes::OPAQUE_SIZE,
                *span,
                format!("a type of {size} bytes aligned to {align} is not possible"),
                "the size is 1 to 2^20 bytes and a multiple of the alignment, which is 1, 2, 4 or 8",
            );
            return self.undeclarable(tree);
        }
        let (size, align) = (u32::try_from(size).unwrap_or(1), u32::try_from(align).unwrap_or(1));
        for declarator in &tree.declarators {
            self.no_levels(declarator, "an opaque type");
            let doc = Self::doc_with_help(tree.doc.as_ref(), &tree.attrs);
            self.new_named(&declarator.name, TypeKind::Opaque { size, align }, doc, None);
        }
    }

    fn no_levels(&mut self, declarator: &Declarator, what: &str) {
        if let Some(level) = declarator.levels.first() {
            self.error(
                codes::DECLARATOR,
                level.span,
                format!("{what} is declared by its bare name"),
                "take pointers and dimensions out",
            );
        }
    }

    fn context_handle_type(&mut self, tree: &Tree, spec: &TypeSpec) {
        if !matches!(spec.kind, Words::Void | Words::Struct(_) | Words::Named(_)) {
            self.context_form(spec.span);
        }
        for declarator in &tree.declarators {
            let is_pointer = matches!(
                declarator.levels.as_slice(),
                [level] if level.kind == crate::ast::LevelKind::Pointer
            );
            if !is_pointer {
                self.context_form(declarator.name.span);
            }
            let doc = Self::doc_with_help(tree.doc.as_ref(), &tree.attrs);
            self.new_named(&declarator.name, TypeKind::ContextHandle, doc, None);
        }
    }

    pub(super) fn context_form(&mut self, span: Span) {
        self.error(
            codes::CONTEXT_FORM,
            span,
            "a context handle is a pointer to void".to_owned(),
            "write `typedef [context_handle] void *name;`",
        );
    }
}

/// The attribute that says what travels in place of the declared type.
fn wire_type(attrs: &[Attr]) -> Option<&Attr> {
    find(attrs, "wire_marshal").or_else(|| find(attrs, "user_marshal"))
}
