//! Emission of encoders, first part: bytes in place (`put`).
//!
//! For values whose size is not known beforehand: written to a private growing buffer, from which
//! headers may be read back. Calls with a planned size are `op`'s, which shares the parts here that
//! do not read back. Not here: secondary objects (`encode_more`).

use crate::ir::{Array, PtrClass, StringTy, Ty, TypeId, TypeKind};

use super::emit::{Emit, Scope};
use super::template::{Code, c};
use super::text::require;

/// C expressions of an array's numbers.
pub(super) struct ArrayNumbers {
    /// The size of the whole array.
    pub(super) whole: String,
    /// The first transmitted element.
    pub(super) first: String,
    /// The number of transmitted elements.
    pub(super) count: String,
}

/// A call that writes the header of an array whose number of elements and form are known.
#[derive(Clone, Copy)]
pub(super) struct HeaderCall<'t> {
    pub(super) function: &'t str,
    /// C expression of the number of elements.
    pub(super) n: &'t str,
    /// C expression of the form.
    pub(super) form: &'t str,
}

impl HeaderCall<'static> {
    const FLAT: Self = Self { function: "sj_put_flat", n: "sj_n", form: "sj_f" };
}

impl Emit<'_> {
    /// Writes the value `lv` in place, `o` bytes into the block.
    pub(super) fn put(&mut self, ty: &Ty, lv: &str, o: &str, sc: &Scope<'_>) -> Code {
        if self.model.has_wire_layout(ty) {
            return self.check_value(ty, lv) + &self.store(ty, lv, o);
        }
        match ty {
            Ty::Named(id) => self.converted_out(*id, lv, |x, wire| x.put_wire(*id, wire, o, sc)),
            Ty::Union(_, e) => {
                let value = self.model.expr(e, &sc.siblings);
                c!("sj_st64(sj_p + $o, (uint64_t)($value));", o, value)
            }
            Ty::Fixed(element, n) => {
                let step = self.model.size(element);
                self.each(*n, |x, i| {
                    x.put(element, &format!("{lv}[{i}]"), &format!("{o} + {i} * {step}"), sc)
                })
            }
            Ty::Array(a) => self.put_array(a, lv, false, o, sc),
            Ty::String(s) => self.put_string(s, lv, false, o, sc),
            Ty::Pointer(class, t) => self.put_pointer(*class, t, lv, o, sc),
            Ty::Descriptor => require(format!("sj_put_fd(sj_e, sj_p + {o}, {lv})")),
            Ty::Interface(_) => require(format!("sj_put_interface(sj_e, sj_p + {o}, &{lv})")),
            Ty::Scalar(_) => Code::new(),
        }
    }

    /// `body` for the value as it travels: in a block with the converted value, if the type is
    /// converted.
    pub(super) fn converted_out(
        &mut self,
        id: TypeId,
        lv: &str,
        body: impl FnOnce(&mut Self, &str) -> Code,
    ) -> Code {
        let Some(marshal) = self.model.marshal(id) else { return body(self, lv) };
        let wire = format!("sj_w{}", self.fresh());
        let body = body(self, &wire);
        c!(
            "
            {
                $name $wire;
                $prefix_to_wire(&$lv, &$wire, sj_e->arena);
                sj_cleanup_add(sj_e->cleanup, sj_e->arena, sj_free_of_$name, (void *)(uintptr_t)&$lv);
                $body
            }
            ",
            name = self.model.type_name(id),
            wire,
            prefix = marshal.prefix,
            lv,
            body,
        )
    }

    /// A named type as it travels.
    fn put_wire(&mut self, id: TypeId, lv: &str, o: &str, sc: &Scope<'_>) -> Code {
        let name = self.model.type_name(id);
        match self.model.def(id).map(|d| &d.kind) {
            Some(TypeKind::Alias(t)) => self.put(t, lv, o, sc),
            Some(TypeKind::Struct(_) | TypeKind::Union(_)) if self.named_has_wire_layout(id) => c!(
                "
                if (SJ_UNLIKELY(!(sj_check_of_$name((const unsigned char *)&$lv, false))))
                    return false;
                sj_copy_of_$name(sj_p + $o, &$lv);
                ",
                name,
                lv,
                o,
            ),
            Some(TypeKind::Struct(_) | TypeKind::Union(_)) => {
                require(format!("sj_put_of_{name}(sj_e, sj_at + {o}, &{lv})"))
            }
            Some(TypeKind::Enum(_)) => c!(
                "
                if (SJ_UNLIKELY(!(sj_is_of_$name((int32_t)$lv))))
                    return false;
                memcpy(sj_p + $o, &$lv, 4);
                ",
                name,
                lv,
                o,
            ),
            Some(TypeKind::Opaque { size, .. }) => {
                c!("memcpy(sj_p + $o, &$lv, $size);", o, lv, size)
            }
            Some(TypeKind::ContextHandle) => {
                let number = sc.context.as_ref().map_or("0", |number| number.given.as_str());
                require(format!("sj_put_context(sj_e, sj_p + {o}, {lv}, \"{name}\", {number})"))
            }
            None => Code::new(),
        }
    }

    /// Plain apart from the conversion of the whole.
    pub(super) fn named_has_wire_layout(&self, id: TypeId) -> bool {
        match self.model.def(id).map(|d| &d.kind) {
            Some(TypeKind::Struct(s)) => {
                !s.fields.is_empty()
                    && s.fields.iter().all(|f| !f.ignore && self.model.has_wire_layout(&f.ty))
            }
            Some(TypeKind::Enum(_) | TypeKind::Opaque { .. }) => true,
            _ => false,
        }
    }

    /// C expression of the limit for a flat array, or never.
    pub(super) fn limit(&self, element: &Ty, sc: &Scope<'_>) -> String {
        if crate::layout::is_flat(self.model.m, element) && self.model.has_wire_layout(element) {
            sc.limit.clone()
        } else {
            "SIZE_MAX".to_owned()
        }
    }

    pub(super) fn array_numbers(&self, a: &Array, sc: &Scope<'_>) -> ArrayNumbers {
        let whole = self.model.expr(&a.size, &sc.siblings);
        let first = self.model.expr(&a.first, &sc.siblings);
        let count = match &a.length {
            Some(l) => self.model.expr(l, &sc.siblings),
            None if crate::layout::is_varying(a) => format!("sj_x_sub({whole}, {first})"),
            None => whole.clone(),
        };
        ArrayNumbers { whole, first, count }
    }

    /// Condition that the array can be sent, which sets `n` and `form`.
    pub(super) fn plan_array(
        &self,
        a: &Array,
        lv: &str,
        nullable: bool,
        sc: &Scope<'_>,
        outs: &str,
    ) -> String {
        let ArrayNumbers { whole, first, count } = self.array_numbers(a, sc);
        let size = self.model.size(&a.element);
        let limit = self.limit(&a.element, sc);
        if crate::layout::is_varying(a) {
            format!(
                "sj_plan_varying({lv}, {nullable}, {whole}, {first}, {count}, {size}, {limit}, {outs})"
            )
        } else {
            format!("sj_plan_array({lv}, {nullable}, {count}, {size}, {limit}, {outs})")
        }
    }

    pub(super) fn plan_string(
        &self,
        s: &StringTy,
        lv: &str,
        nullable: bool,
        sc: &Scope<'_>,
        outs: &str,
    ) -> String {
        let bound =
            s.bound.as_ref().map_or("INT64_MAX".to_owned(), |b| self.model.expr(b, &sc.siblings));
        let f = if s.wide { "sj_plan_wide" } else { "sj_plan_string" };
        format!("{f}({lv}, {nullable}, {bound}, {}, {outs})", sc.limit)
    }

    fn put_array(&mut self, a: &Array, lv: &str, nullable: bool, o: &str, sc: &Scope<'_>) -> Code {
        c!(
            "
            {
                uint32_t sj_n, sj_f;
                if (SJ_UNLIKELY(!($plan)))
                    return false;
                $header
            }
            ",
            plan = self.plan_array(a, lv, nullable, sc, "&sj_n, &sj_f"),
            header = self.array_header(a, lv, HeaderCall::FLAT, o, sc),
        )
    }

    /// The header once number and form are known.
    pub(super) fn array_header(
        &self,
        a: &Array,
        lv: &str,
        call: HeaderCall<'_>,
        o: &str,
        sc: &Scope<'_>,
    ) -> Code {
        let size = self.model.size(&a.element);
        let HeaderCall { function, n, form } = call;
        let ArrayNumbers { whole, first, .. } = self.array_numbers(a, sc);
        if !crate::layout::is_varying(a) {
            return c!(
                "$function(sj_e, sj_p + $o, $lv, $n, $form, (size_t)$n * $size);",
                function,
                o,
                lv,
                n,
                form,
                size,
            );
        }
        c!(
            "
            $function(sj_e, sj_p + $o, $form ? $lv + $first : $lv, $n, $form, (size_t)$n * $size);
            sj_st32(sj_p + $o + 8, $form ? (uint32_t)($whole) : 0);
            sj_st32(sj_p + $o + 12, $form ? (uint32_t)($first) : 0);
            ",
            function,
            o,
            form,
            lv,
            first,
            n,
            size,
            whole,
        )
    }

    fn put_string(&self, s: &StringTy, lv: &str, nullable: bool, o: &str, sc: &Scope<'_>) -> Code {
        c!(
            "
            {
                uint32_t sj_n, sj_f;
                if (SJ_UNLIKELY(!($plan)))
                    return false;
                sj_put_flat(sj_e, sj_p + $o, $lv, sj_n, sj_f, ((size_t)sj_n + 1) * $width);
            }
            ",
            plan = self.plan_string(s, lv, nullable, sc, "&sj_n, &sj_f"),
            o,
            lv,
            width = width(s),
        )
    }

    fn put_pointer(&mut self, class: PtrClass, t: &Ty, lv: &str, o: &str, sc: &Scope<'_>) -> Code {
        let target = self.model.target(t, lv);
        match (class, self.model.strip(t)) {
            (_, Ty::Array(a)) => self.put_array(a, lv, class != PtrClass::Ref, o, sc),
            (_, Ty::String(s)) => self.put_string(s, lv, class != PtrClass::Ref, o, sc),
            (PtrClass::Ref, _) => require(format!("{lv} != NULL")) + &self.put(t, &target, o, sc),
            (PtrClass::Unique, _) => c!("sj_st64(sj_p + $o, $lv != NULL);", o, lv),
            (PtrClass::Ptr, _) => {
                let tag = self.model.tag(t);
                require(format!("sj_put_ptr(sj_e, sj_at + {o}, {lv}, {tag}u)"))
            }
        }
    }
}

/// Bytes of a character.
pub(super) fn width(s: &StringTy) -> u32 {
    if s.wide { 2 } else { 1 }
}
