//! Checks of what `size_is`, `switch_is` and the like name, once all siblings are known.

use super::analyzer::Analyzer;
use super::scope::{Role, SiblingUse, Siblings};
use crate::diag::{Diagnostic, codes};
use crate::ir::{Dir, Field, Param, PtrClass, Scalar, Ty, TypeKind};

/// What an expression may be about: a parameter or a field.
struct Target<'a> {
    ty: &'a Ty,
    /// A parameter whose reference pointer has been taken off.
    by_pointer: bool,
}

impl Analyzer<'_> {
    pub(super) fn check_field_uses(&mut self, fields: &[Field], siblings: &Siblings) {
        for mention in &siblings.uses {
            let Some(field) = fields.get(mention.index as usize) else { continue };
            if field.ignore {
                self.sibling_error(mention, siblings, "it is not transmitted".to_owned());
                continue;
            }
            let target = Target { ty: &field.ty, by_pointer: false };
            let switch = fields.get(mention.owner).and_then(|f| self.union_switch(&f.ty));
            self.check_use(mention, siblings, &target, switch.as_ref());
        }
    }

    pub(super) fn check_param_uses(&mut self, params: &[Param], siblings: &Siblings) {
        for mention in &siblings.uses {
            let (Some(param), Some(owner)) =
                (params.get(mention.index as usize), params.get(mention.owner))
            else {
                continue;
            };
            let target = Target { ty: &param.ty, by_pointer: param.by_pointer };
            let switch = self.union_switch(&owner.ty);
            self.check_use(mention, siblings, &target, switch.as_ref());
            self.check_direction(mention, siblings, owner, param);
        }
    }

    fn check_use(
        &mut self,
        mention: &SiblingUse,
        siblings: &Siblings,
        target: &Target<'_>,
        switch: Option<&Ty>,
    ) {
        if mention.owner as u64 == u64::from(mention.index) {
            return self.sibling_error(mention, siblings, "it cannot speak of itself".to_owned());
        }
        let (ty, is_pointer) = match self.strip(target.ty) {
            Ty::Pointer(PtrClass::Ref, inner) => (inner.as_ref(), true),
            _ => (target.ty, target.by_pointer),
        };
        let problem = match mention.role {
            Role::Iid if self.is_uuid(ty) => None,
            Role::Iid => Some("it holds no uuid (16 bytes)".to_owned()),
            _ if is_pointer && !mention.starred => {
                Some("it is a pointer: write `*` before it".to_owned())
            }
            _ if !is_pointer && mention.starred => {
                Some("it is no reference pointer: leave the `*` out".to_owned())
            }
            Role::Size | Role::Part if self.is_integer(ty) => None,
            Role::Size | Role::Part => Some("it is no integer".to_owned()),
            Role::Switch if switch.is_none_or(|s| self.strip(s) == self.strip(ty)) => None,
            Role::Switch => Some("it is not of the union's switch_type".to_owned()),
        };
        if let Some(problem) = problem {
            self.sibling_error(mention, siblings, problem);
        }
    }

    fn sibling_error(&mut self, mention: &SiblingUse, siblings: &Siblings, problem: String) {
        let Some(name) = siblings.names.get(mention.index as usize) else { return };
        let help = match mention.role {
            Role::Size | Role::Part => {
                "sizes are integers: `[in] long n, [in, size_is(n)] long *a`"
            }
            Role::Switch => "declare it with the type that the union's switch_type names",
            Role::Iid => "declare it as `[in] REFIID riid`, or as 16 bytes of your own",
        };
        self.sink.push(
            Diagnostic::error(
                codes::SIBLING_TYPE,
                mention.span,
                format!("`{}` cannot serve here: {problem}", name.text),
            )
            .label(name.span, "declared here")
            .help(help),
        );
    }

    /// A receiver must have seen the size before the array, and a caller must know the size of
    /// the buffer it provides.
    fn check_direction(
        &mut self,
        mention: &SiblingUse,
        siblings: &Siblings,
        owner: &Param,
        named: &Param,
    ) {
        let (problem, help) = if owner.is_in() && !named.is_in() {
            (
                "it does not travel with the request, which needs it",
                "make it `in` (or `in, out`) too",
            )
        } else if owner.is_out()
            && mention.role == Role::Size
            && self.is_callers_buffer(owner)
            && named.dir != Dir::In
        {
            (
                "the caller provides this buffer, so its size must be fixed before the call",
                "give the size in an `in` parameter and the number of elements used in an `out` one: `[in] long size, [out] long *used, [out, size_is(size), length_is(*used)] T *a`",
            )
        } else {
            return;
        };
        let Some(name) = siblings.names.get(mention.index as usize) else { return };
        self.sink.push(
            Diagnostic::error(
                codes::SIBLING_DIRECTION,
                mention.span,
                format!("`{}` cannot serve here: {problem}", name.text),
            )
            .label(name.span, "declared here")
            .help(help),
        );
    }

    fn is_callers_buffer(&self, param: &Param) -> bool {
        !param.by_pointer && matches!(self.strip(&param.ty), Ty::Array(_) | Ty::String(_))
    }

    fn is_integer(&self, ty: &Ty) -> bool {
        use Scalar::{Byte, I8, I16, I32, I64, U8, U16, U32, U64};
        let scalar = self.scalar_of(ty);
        // In files of COM `unsigned char` is a number as often as a character.
        if self.is_com && scalar == Some(Scalar::Char) {
            return true;
        }
        matches!(scalar, Some(Byte | I8 | U8 | I16 | U16 | I32 | U32 | I64 | U64))
    }

    /// Sixteen bytes, as a structure or an array.
    fn is_uuid(&self, ty: &Ty) -> bool {
        match self.strip(ty) {
            Ty::Fixed(element, 16) => {
                matches!(self.scalar_of(element), Some(Scalar::Byte | Scalar::U8 | Scalar::Char))
            }
            Ty::Named(id) => match self.kind(*id) {
                Some(TypeKind::Struct(s)) => self.is_uuid_struct(s),
                _ => false,
            },
            _ => false,
        }
    }

    fn is_uuid_struct(&self, s: &crate::ir::Struct) -> bool {
        let mut size = 0_u64;
        for field in &s.fields {
            let (element, count) = match self.strip(&field.ty) {
                Ty::Fixed(element, n) => (self.strip(element), u64::from(*n)),
                ty => (ty, 1),
            };
            let Ty::Scalar(scalar) = element else { return false };
            size += crate::layout::scalar_size(*scalar) * count;
        }
        size == 16
    }

    /// Type of the discriminant of the union in `ty`.
    fn union_switch(&self, ty: &Ty) -> Option<Ty> {
        match ty {
            Ty::Union(id, _) => match self.kind(*id) {
                Some(TypeKind::Union(u)) => Some(u.switch.clone()),
                _ => None,
            },
            Ty::Fixed(inner, _) | Ty::Pointer(_, inner) => self.union_switch(inner),
            Ty::Array(array) => self.union_switch(&array.element),
            _ => None,
        }
    }
}
