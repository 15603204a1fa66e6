//! Emission of decoders, second part: secondary objects (`get_more`), after the bytes in place
//! (`decode`).
//!
//! The count in a header bounds what is read, the bytes that are there bound the count; that it
//! agrees with `size_is` is compared afterwards (`agree`), when all siblings are known.

use crate::ir::{Array, PtrClass, StringTy, Ty, TypeId, TypeKind};
use crate::layout;

use super::decode::characters;
use super::emit::{ArrayTy, Emit, PointerTy, Scope};
use super::encode::{ArrayNumbers, width};
use super::template::{Code, c};
use super::text::require;

impl Emit<'_> {
    /// Reads the secondary objects of `lv`, whose bytes in place are at `sj_p + o`.
    pub(super) fn get_more(&mut self, ty: &Ty, lv: &str, o: &str, sc: &Scope<'_>) -> Code {
        if !self.model.has_more(ty) {
            return if sc.nested { self.agree(ty, o, sc) } else { Code::new() };
        }
        let more = match ty {
            Ty::Named(id) if self.model.marshal(*id).is_some() => {
                let k = self.fresh();
                c!(
                    "
                    {
                        $name *sj_w$k;
                        memcpy(&sj_w$k, &$lv, sizeof(void *));
                        $more
                        $convert
                    }
                    ",
                    name = self.model.type_name(*id),
                    k,
                    lv,
                    more = self.get_more_wire(*id, &format!("(*sj_w{k})"), o, sc),
                    convert = self.convert_in(*id, &format!("sj_w{k}"), lv),
                )
            }
            Ty::Named(id) => self.get_more_wire(*id, lv, o, sc),
            Ty::Union(id, _) => {
                let name = self.model.type_name(*id);
                require(format!("sj_get_arm_of_{name}(sj_d, (int64_t)sj_ld64(sj_p + {o}), &{lv})"))
            }
            Ty::Fixed(element, n) => {
                let step = self.model.size(element);
                self.each(*n, |x, i| {
                    x.get_more(element, &format!("{lv}[{i}]"), &format!("{o} + {i} * {step}"), sc)
                })
            }
            Ty::Array(array) => self.get_more_array(ArrayTy { array, ty }, lv, o, sc),
            Ty::String(s) => get_more_string(s, lv, o, sc),
            Ty::Pointer(class, target) => {
                self.get_more_pointer(PointerTy { class: *class, ty, target }, lv, o, sc)
            }
            Ty::Scalar(_) | Ty::Descriptor | Ty::Interface(_) => Code::new(),
        };
        if sc.nested && !matches!(ty, Ty::Fixed(..)) {
            return more + &self.agree(ty, o, sc);
        }
        more
    }

    fn get_more_wire(&mut self, id: TypeId, lv: &str, o: &str, sc: &Scope<'_>) -> Code {
        let name = self.model.type_name(id);
        match self.model.def(id).map(|d| &d.kind) {
            Some(TypeKind::Alias(t)) => self.get_more(t, lv, o, sc),
            Some(TypeKind::Struct(_) | TypeKind::Union(_)) => {
                require(format!("sj_get_more_of_{name}(sj_d, sj_p + {o}, &{lv})"))
            }
            _ => Code::new(),
        }
    }

    fn get_more_array(
        &mut self,
        ArrayTy { array: a, ty }: ArrayTy<'_>,
        lv: &str,
        o: &str,
        sc: &Scope<'_>,
    ) -> Code {
        let k = self.fresh();
        let (size, cast) = (self.model.size(&a.element), self.model.name(ty));
        if self.is_direct(a) {
            return c!(
                "
                if (sj_ld32(sj_p + $o + 4) == 1) {
                    const uint32_t sj_n$k = sj_ld32(sj_p + $o);
                    const unsigned char *sj_q$k;
                    void *sj_t;
                    if (SJ_UNLIKELY(!(sj_get_elements(sj_d, sj_n$k, $size, $copy, &sj_q$k, &sj_t))))
                        return false;
                    $check
                    $lv = ($cast)sj_t;
                }
                ",
                o,
                k,
                size,
                copy = sc.copy,
                check = self.check_array(&a.element, k),
                lv,
                cast,
            );
        }
        let memory = self.array_memory(ArrayTy { array: a, ty }, lv, o, k);
        let first = if layout::is_varying(a) { format!("sj_first{k} + ") } else { String::new() };
        c!(
            "
            if (sj_ld32(sj_p + $o + 4) == 1) {
                const uint32_t sj_n$k = sj_ld32(sj_p + $o);
                const unsigned char *sj_q$k;
                $memory
                if (SJ_UNLIKELY(!($lv != NULL)))
                    return false;
                $elements
            }
            ",
            o,
            k,
            memory,
            lv,
            elements = self.get_elements(&a.element, lv, &first, k, sc),
        )
    }

    /// Allocates the memory of an array that is read element by element, as `lv`: of its whole size
    /// if it is varying, of the transmitted elements otherwise.
    fn array_memory(
        &self,
        ArrayTy { array: a, ty }: ArrayTy<'_>,
        lv: &str,
        o: &str,
        k: u32,
    ) -> Code {
        let (cast, element) = (self.model.name(ty), self.model.name(&a.element));
        if layout::is_varying(a) {
            return c!(
                "
                const size_t sj_first$k = sj_ld32(sj_p + $o + 12);
                $lv = ($cast)sj_dec_array_zeroed(sj_d, sj_ld32(sj_p + $o + 8), sizeof($element));
                ",
                k,
                o,
                lv,
                cast,
                element,
            );
        }
        let memory =
            c!("$lv = ($cast)sj_dec_array(sj_d, sj_n$k, sizeof($element));", lv, cast, k, element,);
        bound_empty(self.model.size(&a.element), k) + &memory
    }

    /// The object of elements: `sj_n{k}` of them, to `lv[first + i]`.
    pub(super) fn get_elements(
        &mut self,
        element: &Ty,
        lv: &str,
        first: &str,
        k: u32,
        sc: &Scope<'_>,
    ) -> Code {
        let size = self.model.size(element);
        let sc = sc.inner();
        let at = format!("{lv}[{first}sj_i{k}]");
        let elements = match self.with_strings(element) {
            Some(id) => c!(
                "
                for (uint32_t sj_i$k = 0; sj_i$k < sj_n$k; sj_i$k++) {
                    if (SJ_UNLIKELY(!(sj_get_whole_of_$name(sj_d, sj_q$k + (size_t)sj_i$k * $size, &$at))))
                        return false;
                }
                ",
                k,
                name = self.model.type_name(id),
                size,
                at,
            ),
            None => {
                let get = self.get(element, &at, "0", &sc);
                let place = each_bytes(k, size, &get);
                if self.model.has_more(element) || self.has_expr(element) {
                    let more = self.get_more(element, &at, "0", &sc);
                    place + &each_bytes(k, size, &more)
                } else {
                    place
                }
            }
        };
        c!(
            "
            if (SJ_UNLIKELY(!(sj_dec_begin(sj_d, sj_n$k, $size, &sj_q$k))))
                return false;
            $elements
            sj_dec_end(sj_d);
            ",
            k,
            size,
            elements,
        )
    }

    /// Looks at the bytes of all elements at `sj_q{k}`.
    pub(super) fn check_array(&mut self, element: &Ty, k: u32) -> Code {
        if !self.model.is_checked(element) {
            return Code::new();
        }
        c!(
            "
            for (uint32_t sj_i$k = 0; sj_i$k < sj_n$k; sj_i$k++) {
                const unsigned char *sj_p = sj_q$k + (size_t)sj_i$k * $size;
                $check
                (void)sj_p;
            }
            ",
            k,
            size = self.model.size(element),
            check = self.check_bytes(element, "0", "true"),
        )
    }

    fn get_more_pointer(
        &mut self,
        PointerTy { class, ty, target: t }: PointerTy<'_>,
        lv: &str,
        o: &str,
        sc: &Scope<'_>,
    ) -> Code {
        let target = self.model.target(t, lv);
        let condition = match (class, self.model.strip(t)) {
            (_, Ty::Array(array)) => {
                return self.get_more_array(ArrayTy { array, ty }, lv, o, sc);
            }
            (_, Ty::String(s)) => return get_more_string(s, lv, o, sc),
            (PtrClass::Ref, _) => return self.get_more(t, &target, o, sc),
            (PtrClass::Unique, _) => format!("sj_ld64(sj_p + {o}) != 0"),
            (PtrClass::Ptr, _) => format!("sj_get_ptr_is_first(sj_d, sj_p + {o})"),
        };
        let k = self.fresh();
        let inner = sc.inner();
        let get = match class {
            PtrClass::Unique => self.get_target(t, lv, "0", &inner),
            _ => self.get(t, &target, "0", &inner),
        };
        c!(
            "
            if ($condition) {
                const unsigned char *sj_q$k;
                if (SJ_UNLIKELY(!(sj_dec_begin(sj_d, 1, $size, &sj_q$k))))
                    return false;
                {
                    const unsigned char *sj_p = sj_q$k;
                    (void)sj_p;
                    $get
                    $more
                }
                sj_dec_end(sj_d);
            }
            ",
            condition,
            k,
            size = self.model.size(t),
            get,
            more = self.get_more(t, &target, "0", &inner),
        )
    }

    /// Requires that headers say the same as the expressions over the siblings.
    pub(super) fn agree(&mut self, ty: &Ty, o: &str, sc: &Scope<'_>) -> Code {
        let ty = self.model.resolve(ty);
        let inner = match ty {
            Ty::Pointer(_, t) if self.model.is_header(t) => self.model.strip(t),
            other => other,
        };
        match inner {
            Ty::Union(_, e) => {
                let value = self.model.expr(e, &sc.siblings);
                require(format!("(int64_t)sj_ld64(sj_p + {o}) == {value}"))
            }
            Ty::String(s) => {
                let Some(bound) = &s.bound else { return Code::new() };
                let bound = self.model.expr(bound, &sc.siblings);
                require(format!(
                    "sj_ld32(sj_p + {o} + 4) == 0 || (int64_t)sj_ld32(sj_p + {o}) < {bound}"
                ))
            }
            Ty::Array(a) => self.agree_array(a, o, sc),
            Ty::Pointer(PtrClass::Ref, t) => self.agree(t, o, sc),
            Ty::Fixed(element, n) if self.has_expr(element) => {
                let step = self.model.size(element);
                self.each(*n, |x, i| x.agree(element, &format!("{o} + {i} * {step}"), sc))
            }
            _ => Code::new(),
        }
    }

    fn agree_array(&self, a: &Array, o: &str, sc: &Scope<'_>) -> Code {
        let ArrayNumbers { whole, first, count } = self.array_numbers(a, sc);
        let count = c!(
            "
            if (SJ_UNLIKELY(!(sj_ld32(sj_p + $o + 4) == 0 || (int64_t)sj_ld32(sj_p + $o) == $count)))
                return false;
            ",
            o,
            count,
        );
        if !layout::is_varying(a) {
            return count;
        }
        count
            + &c!(
                "
                if (SJ_UNLIKELY(!(sj_ld32(sj_p + $o + 4) == 0 || ((int64_t)sj_ld32(sj_p + $o + 8) == $whole && (int64_t)sj_ld32(sj_p + $o + 12) == $first))))
                    return false;
                ",
                o,
                whole,
                first,
            )
    }

    /// Elements that may lie in the body or an item as they are.
    fn is_direct(&self, a: &Array) -> bool {
        self.model.has_wire_layout(&a.element) && !layout::is_varying(a)
    }

    /// Returns true if there is something in it to agree on.
    fn has_expr(&self, ty: &Ty) -> bool {
        let mut any = false;
        super::model::visit_exprs(self.model.resolve(ty), &mut |_| any = true);
        any
    }
}

fn get_more_string(s: &StringTy, lv: &str, o: &str, sc: &Scope<'_>) -> Code {
    c!(
        "
        {
            void *sj_t = $lv;
            if (SJ_UNLIKELY(!(sj_get_string_more(sj_d, sj_p + $o, $width, $copy, &sj_t))))
                return false;
            $lv = ($cast)sj_t;
        }
        ",
        lv,
        o,
        width = width(s),
        copy = sc.copy,
        cast = characters(s),
    )
}

/// Elements without bytes are not bounded by the bytes there are.
pub(super) fn bound_empty(size: u64, k: u32) -> Code {
    match size {
        0 => require(format!("sj_n{k} <= SJ_EMPTY_MAX")),
        _ => Code::new(),
    }
}

/// `body` for the bytes of each of `sj_n{k}` elements at `sj_q{k}`.
fn each_bytes(k: u32, size: u64, body: &Code) -> Code {
    c!(
        "
        for (uint32_t sj_i$k = 0; sj_i$k < sj_n$k; sj_i$k++) {
            const unsigned char *sj_p = sj_q$k + (size_t)sj_i$k * $size;
            (void)sj_p;
            $body
        }
        ",
        k,
        size,
        body,
    )
}
