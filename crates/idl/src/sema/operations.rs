//! Operations and their parameters: the rules of DCE and COM.

use super::analyzer::Analyzer;
use super::declare::{Position, Subject};
use super::scope::Siblings;
use crate::ast::{Member, Name, Operation as Tree, TypeKind as Words, find};
use crate::diag::{Diagnostic, codes};
use crate::ir::{Dir, LocalAttrs, Operation, Param, PtrClass, Scalar, Ty, TypeKind};
use crate::source::Span;

impl Analyzer<'_> {
    pub(super) fn operation(&mut self, tree: &Tree, opnum: u16) -> Operation {
        self.check_places(&tree.attrs, 'O');
        let result = self.result(tree);
        let params = self.params(&tree.params);
        let oneway = self.oneway(tree, result.as_ref(), &params);
        self.check_retval(tree, result.as_ref(), &params);
        Operation {
            name: Self::property_name(tree),
            doc: Self::doc_with_help(tree.doc.as_ref(), &tree.attrs),
            opnum,
            result,
            params,
            oneway,
            idempotent: find(&tree.attrs, "idempotent").is_some(),
            is_local: find(&tree.attrs, "local").is_some(),
            acf: LocalAttrs::default(),
        }
    }

    /// COM's properties are operations called `get_X`, `put_X`, `putref_X`, its events `add_X` and
    /// `remove_X`.
    fn property_name(tree: &Tree) -> String {
        let has = |name| find(&tree.attrs, name).is_some();
        let prefix = match () {
            () if has("propget") => "get_",
            () if has("propput") => "put_",
            () if has("propputref") => "putref_",
            () if has("eventadd") => "add_",
            () if has("eventremove") => "remove_",
            () => "",
        };
        format!("{prefix}{}", tree.name.text)
    }

    fn result(&mut self, tree: &Tree) -> Option<Ty> {
        if let (Words::Void, []) = (&tree.ty.kind, tree.declarator.levels.as_slice()) {
            return None;
        }
        let base = self.base(&tree.ty, None)?;
        let levels = self.steps(&tree.declarator)?;
        let (attrs, name, span) = (&tree.attrs, &tree.name, tree.ty.span);
        let subject = Subject { attrs, name, span, base, levels };
        let built = self.declare(subject, Position::Result, &mut Siblings::default())?;
        if matches!(self.strip(&built.ty), Ty::Fixed(..) | Ty::Array(_)) {
            self.error(
                codes::RESULT_TYPE,
                tree.ty.span,
                "an array cannot be a result".to_owned(),
                "make it an out parameter",
            );
            return None;
        }
        Some(built.ty)
    }

    /// `oneway`, or DCE's `maybe`: nobody waits, so nothing can come back.
    fn oneway(&mut self, tree: &Tree, result: Option<&Ty>, params: &[Param]) -> bool {
        let attr = find(&tree.attrs, "oneway").or_else(|| find(&tree.attrs, "maybe"));
        let Some(attr) = attr else { return false };
        let has_result = result.is_some() || !matches!(tree.ty.kind, Words::Void);
        if has_result {
            self.error(
                codes::ONEWAY,
                attr.span,
                "nobody waits for the result of a oneway operation".to_owned(),
                "make the result void, or take `oneway` out",
            );
        }
        if let Some(param) = params.iter().find(|p| p.is_out()) {
            let span = tree.params.iter().find(|m| m.declarator.name.text == param.name);
            let span = span.map_or(tree.name.span, |m| m.declarator.name.span);
            self.sink.push(
                Diagnostic::error(
                    codes::ONEWAY,
                    span,
                    "a oneway operation brings nothing back".to_owned(),
                )
                .label(attr.span, "oneway is said here")
                .help("make the parameter `in`, or take `oneway` out"),
            );
        }
        true
    }

    fn check_retval(&mut self, tree: &Tree, result: Option<&Ty>, params: &[Param]) {
        for (i, param) in params.iter().enumerate().filter(|(_, p)| p.retval) {
            let status = result.is_none_or(|ty| self.scalar_of(ty) == Some(Scalar::I32));
            if param.dir == Dir::Out && i + 1 == params.len() && status {
                continue;
            }
            let span = tree.params.iter().find(|m| m.declarator.name.text == param.name);
            let span = span.map_or(tree.name.span, |m| m.declarator.name.span);
            self.error(
                codes::RETVAL,
                span,
                "this parameter cannot be the `retval`".to_owned(),
                "it is the last parameter, `out`, of an operation whose result is void or HRESULT",
            );
        }
    }

    fn params(&mut self, trees: &[Member]) -> Vec<Param> {
        let members: Vec<&Member> = trees.iter().filter(|m| !self.is_handle(m)).collect();
        let names: Vec<Name> = members.iter().map(|m| m.declarator.name.clone()).collect();
        self.duplicate_members(&names, "parameter");
        let mut siblings = Siblings { names, ..Siblings::default() };
        let mut params = Vec::new();
        for (owner, member) in members.iter().enumerate() {
            siblings.owner = owner;
            let dir = self.direction(member);
            let param = self.param(member, dir, &mut siblings);
            params.push(param.unwrap_or_else(|| Self::no_param(&member.declarator.name.text, dir)));
        }
        self.check_param_uses(&params, &siblings);
        params
    }

    /// Stands for a parameter that could not be understood, so that indices stay right.
    fn no_param(name: &str, dir: Dir) -> Param {
        Param {
            name: name.to_owned(),
            doc: None,
            dir,
            ty: Ty::Scalar(Scalar::I32),
            by_pointer: dir != Dir::In,
            range: None,
            retval: false,
            acf: LocalAttrs::default(),
        }
    }

    /// DCE's explicit handles are left out: the client object is the binding.
    fn is_handle(&mut self, member: &Member) -> bool {
        let bare = member.declarator.levels.is_empty();
        let is_handle = bare && matches!(member.ty.kind, Words::Handle);
        if is_handle {
            self.sink.push_once(Diagnostic::note(
                codes::IGNORED,
                member.ty.span,
                "`handle_t` is accepted and left out: the client object is the binding",
            ));
        }
        is_handle
    }

    fn direction(&mut self, member: &Member) -> Dir {
        let has = |name| find(&member.attrs, name).is_some();
        match (has("in"), has("out")) {
            (true, false) => Dir::In,
            (true, true) => Dir::InOut,
            (false, true) => Dir::Out,
            (false, false) if matches!(member.ty.kind, Words::Variadic) => Dir::In,
            (false, false) => {
                self.error(
                    codes::NO_DIRECTION,
                    member.span,
                    format!("which way does `{}` travel?", member.declarator.name.text),
                    "write [in], [out] or [in, out] before it",
                );
                Dir::In
            }
        }
    }

    fn param(&mut self, member: &Member, dir: Dir, siblings: &mut Siblings) -> Option<Param> {
        self.check_places(&member.attrs, 'P');
        let base = self.base(&member.ty, None)?;
        let levels = self.steps(&member.declarator)?;
        let (attrs, name) = (&member.attrs, &member.declarator.name);
        let subject = Subject { attrs, name, span: member.ty.span, base, levels };
        let built = self.declare(subject, Position::Param, siblings)?;
        let range = self.range(&member.attrs, &built.ty);
        let param = Param {
            name: name.text.clone(),
            doc: Self::doc_with_help(member.doc.as_ref(), &member.attrs),
            dir,
            ty: built.ty,
            by_pointer: built.by_pointer,
            range,
            retval: find(&member.attrs, "retval").is_some(),
            acf: LocalAttrs::default(),
        };
        self.check_out(&param, member.span);
        self.check_context(&param, member.span);
        if param.dir == Dir::In {
            self.check_text(&param.ty, param.by_pointer, name);
        }
        Some(param)
    }

    /// What comes back needs a place to come to.
    fn check_out(&mut self, param: &Param, span: Span) {
        if !param.is_out() || param.by_pointer {
            return;
        }
        let (code, message, help) = match self.strip(&param.ty) {
            Ty::Fixed(..) | Ty::Array(_) => return,
            Ty::String(s) if s.bound.is_some() => return,
            Ty::String(_) => (
                codes::OUT_STRING,
                "nothing says how long the string that comes back may be",
                "write `[out, string] char **s` for one of any length, or `[out, string, size_is(n)] char *s` for a buffer of the caller's",
            ),
            Ty::Pointer(class, _) if *class != PtrClass::Ref => (
                codes::OUT_NULLABLE,
                "an out parameter needs a pointer that is never null",
                "take unique or ptr out, or add a `*`: the outer pointer is then a reference",
            ),
            _ => (
                codes::OUT_POINTER,
                "an out parameter needs a pointer to the place where it comes back",
                "add a `*`",
            ),
        };
        self.error(code, span, format!("{message}: `{}`", param.name), help);
    }

    fn check_context(&mut self, param: &Param, span: Span) {
        let is_handle = match self.strip(&param.ty) {
            Ty::Named(id) => matches!(self.kind(*id), Some(TypeKind::ContextHandle)),
            _ => false,
        };
        if !is_handle && self.holds_context(&param.ty, 0) {
            self.error(
                codes::CONTEXT_PLACE,
                span,
                "a context handle is a parameter of its own".to_owned(),
                "pass each handle in a parameter: `[in] h`, or `[out] h *`",
            );
        }
    }
}
