//! What a declarator goes around when its base is no plain type: unions, interfaces, `void`.
//!
//! Not here: the declarator itself (`declare`).

use super::Build;
use crate::ast::{Args, Attr, Name, find};
use crate::diag::codes;
use crate::ir::{Expr, InterfaceRef, Scalar, Ty, TypeId, TypeKind};
use crate::sema::analyzer::Analyzer;
use crate::sema::scope::{Base, Meaning, Role, Siblings};
use crate::source::Span;

impl Analyzer<'_> {
    pub(super) fn union_use(
        &mut self,
        id: TypeId,
        switch: Option<&Attr>,
        build: &Build<'_>,
        siblings: &mut Siblings,
    ) -> Option<Ty> {
        let Some(Attr { args: Args::Exprs(list), .. }) = switch else {
            self.error(
                codes::NO_SWITCH_IS,
                build.span,
                format!("nothing says which arm of `{}` is meant", build.name.text),
                "add `switch_is(kind)` with the parameter or field that selects the arm",
            );
            return None;
        };
        let tree = list.first()?.as_ref()?;
        siblings.role = Role::Switch;
        let expr = self.expression(tree, siblings)?;
        Some(Ty::Union(id, expr))
    }

    /// An interface can only be referred to: the innermost derivation must be a pointer.
    pub(super) fn interface_use(
        &mut self,
        interface: Option<crate::ir::InterfaceId>,
        build: &mut Build<'_>,
        siblings: &mut Siblings,
    ) -> Option<Ty> {
        let iid_is = self.iid_is(build.attrs, siblings)?;
        if build.pop_pointer().is_none() {
            self.error(
                codes::INTERFACE_BY_VALUE,
                build.span,
                "interfaces are passed by reference".to_owned(),
                "write `IName *p`, and `IName **p` for an out parameter",
            );
            return None;
        }
        Some(Ty::Interface(InterfaceRef { interface, iid_is }))
    }

    /// The sibling that holds the uuid; outer `None`: reported.
    #[allow(clippy::option_option, reason = "not given and wrong are different")]
    fn iid_is(&mut self, attrs: &[Attr], siblings: &mut Siblings) -> Option<Option<u32>> {
        let Some(Attr { args: Args::Word(name), .. }) = find(attrs, "iid_is") else {
            return Some(None);
        };
        siblings.role = Role::Iid;
        let kind = crate::ast::ExprKind::Name(name.text.clone());
        match self.expression(&crate::ast::Expr { kind, span: name.span }, siblings)? {
            Expr::Var { index, .. } => Some(Some(index)),
            _ => {
                self.error(
                    codes::SIBLING_TYPE,
                    name.span,
                    "`iid_is` names the parameter that holds the uuid".to_owned(),
                    "declare one: `[in] REFIID riid`",
                );
                None
            }
        }
    }

    pub(super) fn void_use(
        &mut self,
        build: &mut Build<'_>,
        siblings: &mut Siblings,
    ) -> Option<Ty> {
        if find(build.attrs, "iid_is").is_some() {
            return self.interface_use(None, build, siblings);
        }
        if find(build.attrs, "context_handle").is_some() {
            if build.pop_pointer().is_none() {
                self.context_form(build.span);
                return None;
            }
            return Some(self.own_context_handle(build.span));
        }
        if find(build.attrs, "ignore").is_some() && build.levels.len() == 1 {
            return Some(Ty::Scalar(Scalar::Byte));
        }
        self.error(
            codes::VOID,
            build.span,
            "`void` says nothing about what travels".to_owned(),
            "for bytes write `[size_is(n)] byte *p`, for a reference to an interface `[iid_is(riid)] void *p`, for state of the server a context handle",
        );
        None
    }

    /// The type of context handles declared without typedef, one for each interface.
    fn own_context_handle(&mut self, span: Span) -> Ty {
        let text = format!("{}_context_t", self.interface_name);
        let known = self.scope.symbols.get(&text).map(|s| s.meaning.clone());
        if let Some(Meaning::Type { base: Base::Ty(ty), .. }) = known {
            return ty;
        }
        let id = self.new_type(&text, span);
        self.set_kind(id, TypeKind::ContextHandle);
        self.pending(id).is_named = true;
        self.define(
            &Name { text, span },
            Meaning::Type { base: Base::Ty(Ty::Named(id)), shape: None },
        );
        Ty::Named(id)
    }
}
