//! Emission of encoders, second part: secondary objects (`more`), after the bytes in place
//! (`encode`).

use crate::ir::{Array, PtrClass, StringTy, Ty, TypeId, TypeKind};

use super::emit::{Emit, Scope};
use super::encode::width;
use super::template::{Code, c};
use super::text::require;

impl Emit<'_> {
    /// Writes the secondary objects of `lv`, whose bytes in place are `o` bytes into the block.
    pub(super) fn more(&mut self, ty: &Ty, lv: &str, o: &str, sc: &Scope<'_>) -> Code {
        if !self.model.has_more(ty) {
            return Code::new();
        }
        match ty {
            Ty::Named(id) => self.converted_out(*id, lv, |x, wire| x.more_wire(*id, wire, o, sc)),
            Ty::Union(id, e) => {
                let value = self.model.expr(e, &sc.siblings);
                let name = self.model.type_name(*id);
                require(format!("sj_put_arm_of_{name}(sj_e, {value}, &{lv})"))
            }
            Ty::Fixed(element, n) => {
                let step = self.model.size(element);
                self.each(*n, |x, i| {
                    x.more(element, &format!("{lv}[{i}]"), &format!("{o} + {i} * {step}"), sc)
                })
            }
            Ty::Array(a) => self.more_array(a, lv, o, sc),
            Ty::String(s) => more_string(s, lv, o),
            Ty::Pointer(class, t) => self.more_pointer(*class, t, lv, o, sc),
            Ty::Scalar(_) | Ty::Descriptor | Ty::Interface(_) => Code::new(),
        }
    }

    fn more_wire(&mut self, id: TypeId, lv: &str, o: &str, sc: &Scope<'_>) -> Code {
        let name = self.model.type_name(id);
        match self.model.def(id).map(|d| &d.kind) {
            Some(TypeKind::Alias(t)) => self.more(t, lv, o, sc),
            Some(TypeKind::Struct(_) | TypeKind::Union(_)) => {
                require(format!("sj_put_more_of_{name}(sj_e, sj_at + {o}, &{lv})"))
            }
            _ => Code::new(),
        }
    }

    fn more_array(&mut self, a: &Array, lv: &str, o: &str, sc: &Scope<'_>) -> Code {
        let k = self.fresh();
        let (first, from) = if crate::layout::is_varying(a) {
            let first =
                c!("const size_t sj_first$k = sj_ld32(sj_e->body + sj_at + $o + 12);", k, o);
            (first, format!("{lv} + sj_first{k}"))
        } else {
            (Code::new(), lv.to_owned())
        };
        c!(
            "
            if (sj_ld32(sj_e->body + sj_at + $o + 4) == 1) {
                const uint32_t sj_n$k = sj_ld32(sj_e->body + sj_at + $o);
                $first
                $elements
            }
            ",
            o,
            k,
            first,
            elements = self.elements(&a.element, &from, &format!("sj_n{k}"), sc),
        )
    }

    /// `n` elements from the pointer expression `from` on, as an object.
    pub(super) fn elements(&mut self, element: &Ty, from: &str, n: &str, sc: &Scope<'_>) -> Code {
        let size = self.model.size(element);
        let base = if from.contains(' ') { format!("({from})") } else { from.to_owned() };
        if self.model.has_wire_layout(element) && self.model.is_dense(element) {
            let check = self.check_elements(element, &base, n);
            let bytes = format!("(sj_e, {from}, (size_t){n} * {size})");
            return check
                + &match sc.planned {
                    true => c!("sj_planned_bytes$bytes;", bytes),
                    false => require(format!("sj_enc_bytes{bytes}")),
                };
        }
        let k = self.fresh();
        let sc = sc.inner();
        let begin = begin(&format!("(size_t){n} * {size}"), k, &sc);
        let each = match self.with_strings(element) {
            Some(id) => c!(
                "
                for (uint32_t sj_i$k = 0; sj_i$k < $n; sj_i$k++) {
                    if (SJ_UNLIKELY(!(sj_put_whole_of_$name(sj_e, sj_o$k + (size_t)sj_i$k * $size, &$base[sj_i$k]))))
                        return false;
                }
                ",
                k,
                n,
                name = self.model.type_name(id),
                size,
                base,
            ),
            None => self.each_element(element, &base, n, k, &sc),
        };
        begin + &each + &end(&sc)
    }

    /// Elements by number: in place all of them, then what is behind each.
    fn each_element(&mut self, element: &Ty, base: &str, n: &str, k: u32, sc: &Scope<'_>) -> Code {
        let (size, lv) = (self.model.size(element), format!("{base}[sj_i{k}]"));
        let place = c!(
            "
            for (uint32_t sj_i$k = 0; sj_i$k < $n; sj_i$k++) {
                const size_t sj_at = sj_o$k + (size_t)sj_i$k * $size;
                unsigned char *sj_p = sj_e->body + sj_at;
                (void)sj_p;
                $put
            }
            ",
            k,
            n,
            size,
            put = self.put(element, &lv, "0", sc),
        );
        if !self.model.has_more(element) {
            return place;
        }
        place
            + &c!(
                "
                for (uint32_t sj_i$k = 0; sj_i$k < $n; sj_i$k++) {
                    const size_t sj_at = sj_o$k + (size_t)sj_i$k * $size;
                    (void)sj_at;
                    $more
                }
                ",
                k,
                n,
                size,
                more = self.more(element, &lv, "0", sc),
            )
    }

    fn more_pointer(&mut self, class: PtrClass, t: &Ty, lv: &str, o: &str, sc: &Scope<'_>) -> Code {
        let target = self.model.target(t, lv);
        match (class, self.model.strip(t)) {
            (_, Ty::Array(a)) => self.more_array(a, lv, o, sc),
            (_, Ty::String(s)) => more_string(s, lv, o),
            (PtrClass::Ref, _) => self.more(t, &target, o, sc),
            (PtrClass::Unique, _) => self.pointee(t, &target, &format!("if ({lv}) "), sc),
            (PtrClass::Ptr, _) => {
                let tag = self.model.tag(t);
                let first = format!("if (sj_ptr_is_first(sj_e, sj_at + {o}, {lv}, {tag}u)) ");
                self.pointee(t, &target, &first, sc)
            }
        }
    }

    /// One object, under a condition: `if (...) ` or nothing.
    pub(super) fn pointee(
        &mut self,
        t: &Ty,
        target: &str,
        condition: &str,
        sc: &Scope<'_>,
    ) -> Code {
        let k = self.fresh();
        let size = self.model.size(t);
        let sc = sc.inner();
        c!(
            "
            $condition{
                $begin
                {
                    const size_t sj_at = sj_o$k;
                    unsigned char *sj_p = sj_e->body + sj_at;
                    (void)sj_p;
                    $put
                    $more
                }
                $end
            }
            ",
            condition,
            begin = begin(&size.to_string(), k, &sc),
            k,
            put = self.put(t, target, "0", &sc),
            more = self.more(t, target, "0", &sc),
            end = end(&sc),
        )
    }
}

/// Room for an object of `bytes`, at `sj_o{k}`.
fn begin(bytes: &str, k: u32, sc: &Scope<'_>) -> Code {
    if sc.planned {
        return c!("const size_t sj_o$k = sj_planned_object(sj_e, $bytes);", k, bytes);
    }
    c!(
        "
        size_t sj_o$k;
        if (SJ_UNLIKELY(!(sj_enc_begin(sj_e, $bytes, &sj_o$k))))
            return false;
        ",
        k,
        bytes,
    )
}

fn end(sc: &Scope<'_>) -> Code {
    if sc.planned { Code::new() } else { c!("sj_enc_end(sj_e);") }
}

fn more_string(s: &StringTy, lv: &str, o: &str) -> Code {
    c!(
        "
        if (sj_ld32(sj_e->body + sj_at + $o + 4) == 1) {
            if (SJ_UNLIKELY(!(sj_enc_bytes(sj_e, $lv, ((size_t)sj_ld32(sj_e->body + sj_at + $o) + 1) * $width))))
                return false;
        }
        ",
        o,
        lv,
        width = width(s),
    )
}
