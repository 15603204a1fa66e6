//! Emission of statements that draw one value of any type: the table of
//! `docs/reference/idl-random.md`.

use crate::ir::{InterfaceRef, PtrClass, Scalar, StringTy, Ty, TypeId, TypeKind};

use super::emit::{ArrayTy, Emit, PointerTy, Scope};
use super::encode::ArrayNumbers;
use super::random::{Behind, Item, Span, span};
use super::record::int32;
use super::template::{Code, c};

impl Emit<'_> {
    pub(super) fn draw_item(&mut self, x: &Item<'_>, sc: &Scope<'_>) -> Code {
        match (x.range, self.model.resolve(x.ty)) {
            (Some(range), Ty::Scalar(s)) if !matches!(s, Scalar::F32 | Scalar::F64) => {
                let Span { low, count } = span(range);
                c!(
                    "$lv = ($name)sj_random_ranged(sj_r, $low, $count);",
                    lv = x.lv,
                    name = self.model.name(x.ty),
                    low,
                    count,
                )
            }
            (_, Ty::Array(array)) if x.in_buffer => {
                self.draw_array(ArrayTy { array, ty: x.ty }, &x.lv, true, sc)
            }
            (_, Ty::String(s)) if x.in_buffer => self.draw_string(s, &x.lv, true, sc),
            _ => self.draw(x.ty, &x.lv, sc),
        }
    }

    /// Draws the value `lv`.
    fn draw(&mut self, ty: &Ty, lv: &str, sc: &Scope<'_>) -> Code {
        match ty {
            Ty::Scalar(s) => draw_scalar(*s, lv),
            Ty::Named(id) => match self.model.marshal(*id) {
                Some(m) => {
                    let k = self.fresh();
                    c!(
                        "
                        {
                            $name sj_w$k;
                            $draw
                            if (!$prefix_from_wire(&sj_w$k, &$lv, sj_r->arena))
                                abort();
                        }
                        ",
                        name = self.model.type_name(*id),
                        k,
                        draw = self.draw_named(*id, &format!("sj_w{k}"), sc),
                        prefix = m.prefix,
                        lv,
                    )
                }
                None => self.draw_named(*id, lv, sc),
            },
            Ty::Union(id, e) => c!(
                "sj_draw_arm_of_$name(sj_r, $value, &$lv);",
                name = self.model.type_name(*id),
                value = self.model.expr(e, &sc.siblings),
                lv,
            ),
            Ty::Fixed(element, n) => {
                self.each(*n, |x, i| x.draw(element, &format!("{lv}[{i}]"), sc))
            }
            Ty::Array(array) => self.draw_array(ArrayTy { array, ty }, lv, false, sc),
            Ty::String(s) => self.draw_string(s, lv, false, sc),
            Ty::Pointer(class, target) => {
                self.draw_pointer(PointerTy { class: *class, ty, target }, lv, sc)
            }
            Ty::Descriptor => c!("$lv = sj_random_fd(sj_r);", lv),
            Ty::Interface(reference) => self.draw_interface(reference, lv),
        }
    }

    fn draw_interface(&self, reference: &InterfaceRef, lv: &str) -> Code {
        let declared = reference.interface.and_then(|i| self.model.m.interfaces.get(i.0 as usize));
        let Some(interface) = declared else {
            return c!("sj_random_interface(sj_r, NULL, &$lv);", lv);
        };
        let bytes: Vec<String> = interface.uuid.iter().map(u8::to_string).collect();
        c!(
            "
            {
                static const unsigned char sj_u[16] = {$bytes};
                sj_random_interface(sj_r, sj_u, &$lv);
            }
            ",
            bytes = bytes.join(", "),
            lv,
        )
    }

    fn draw_named(&mut self, id: TypeId, lv: &str, sc: &Scope<'_>) -> Code {
        let name = self.model.type_name(id);
        match self.model.def(id).map(|d| &d.kind) {
            Some(TypeKind::Alias(t)) => self.draw(t, lv, sc),
            Some(TypeKind::Enum(e)) => {
                let values: Vec<String> = e.members.iter().map(|m| int32(m.value)).collect();
                c!(
                    "
                    {
                        static const int32_t sj_m[] = {$values};
                        $lv = ($name)sj_m[sj_random_below(sj_r, $count)];
                    }
                    ",
                    values = values.join(", "),
                    lv,
                    name,
                    count = values.len(),
                )
            }
            Some(TypeKind::Struct(_) | TypeKind::Union(_)) => {
                c!("sj_draw_of_$name(sj_r, &$lv);", name, lv)
            }
            Some(TypeKind::Opaque { size, .. }) => {
                c!("sj_random_bytes(sj_r, &$lv, $size);", lv, size)
            }
            Some(TypeKind::ContextHandle) => c!("$lv = NULL;", lv),
            None => Code::new(),
        }
    }

    fn draw_array(
        &mut self,
        ArrayTy { array: a, ty }: ArrayTy<'_>,
        lv: &str,
        in_buffer: bool,
        sc: &Scope<'_>,
    ) -> Code {
        let ArrayNumbers { whole, first, count } = self.array_numbers(a, sc);
        let k = self.fresh();
        let memory = c!(
            "$lv = ($cast)sj_random_memory(sj_r, (size_t)$whole, sizeof($element));",
            lv,
            cast = self.model.name(ty),
            whole,
            element = self.model.name(&a.element),
        );
        let memory = match in_buffer {
            true => c!(
                "
                if (!$lv)
                    $memory
                ",
                lv,
                memory,
            ),
            false => memory,
        };
        c!(
            "
            $memory
            sj_r->depth++;
            for (int64_t sj_i$k = 0; sj_i$k < $count; sj_i$k++) {
                $draw
            }
            sj_r->depth--;
            ",
            memory,
            k,
            count,
            draw = self.draw(&a.element, &format!("{lv}[{first} + sj_i{k}]"), sc),
        )
    }

    fn draw_string(&self, s: &StringTy, lv: &str, in_buffer: bool, sc: &Scope<'_>) -> Code {
        let bound =
            s.bound.as_ref().map_or("INT64_MAX".to_owned(), |b| self.model.expr(b, &sc.siblings));
        c!(
            "$lv = $function(sj_r, $bound, $to);",
            lv,
            function = if s.wide { "sj_random_wide" } else { "sj_random_string" },
            bound,
            to = if in_buffer { lv } else { "NULL" },
        )
    }

    fn draw_pointer(
        &mut self,
        PointerTy { class, ty, target: t }: PointerTy<'_>,
        lv: &str,
        sc: &Scope<'_>,
    ) -> Code {
        let present = match (class, self.model.strip(t)) {
            (_, Ty::Array(array)) => self.draw_array(ArrayTy { array, ty }, lv, false, sc),
            (_, Ty::String(s)) => self.draw_string(s, lv, false, sc),
            (PtrClass::Ref, _) => {
                let Behind { memory, target } = self.behind(t, lv);
                return memory + &self.draw(t, &target, sc);
            }
            (PtrClass::Unique, _) => {
                let Behind { memory, target } = self.behind(t, lv);
                c!(
                    "
                    $memory
                    sj_r->depth++;
                    $draw
                    sj_r->depth--;
                    ",
                    memory,
                    draw = self.draw(t, &target, sc),
                )
            }
            (PtrClass::Ptr, _) => return self.draw_shared(t, lv, sc),
        };
        c!(
            "
            $lv = NULL;
            if (sj_random_present(sj_r)) {
                $present
            }
            ",
            lv,
            present,
        )
    }

    /// A `ptr` pointer: null, the structure drawn last, or another.
    fn draw_shared(&mut self, t: &Ty, lv: &str, sc: &Scope<'_>) -> Code {
        let shared = match self.model.strip(t) {
            Ty::Named(id) => match self.model.def(*id).map(|d| &d.kind) {
                Some(TypeKind::Struct(_)) => Some(id.0),
                _ => None,
            },
            _ => None,
        };
        let (again, otherwise, keep) = match shared {
            Some(id) => (
                c!(
                    "
                    if (sj_c == 1 && sj_r->last[$id])
                        $lv = ($cast)sj_r->last[$id];
                    ",
                    id,
                    lv,
                    cast = self.model.pointer(t),
                ),
                "else if",
                c!("sj_r->last[$id] = $lv;", id, lv),
            ),
            None => (Code::new(), "if", Code::new()),
        };
        let Behind { memory, target } = self.behind(t, lv);
        c!(
            "
            $lv = NULL;
            if (sj_r->depth < 4) {
                const uint64_t sj_c = sj_random_bits(sj_r, 2);
                $again
                $otherwise (sj_c != 0) {
                    $memory
                    sj_r->depth++;
                    $draw
                    sj_r->depth--;
                    $keep
                }
            }
            ",
            lv,
            again,
            otherwise,
            memory,
            draw = self.draw(t, &target, sc),
            keep,
        )
    }
}

fn draw_scalar(s: Scalar, lv: &str) -> Code {
    match s {
        Scalar::Bool => c!("$lv = sj_random_bits(sj_r, 1) != 0;", lv),
        Scalar::F32 | Scalar::F64 => c!("$lv = sj_random_float(sj_r);", lv),
        _ => c!(
            "$lv = ($name)sj_random_bits(sj_r, $width);",
            lv,
            name = super::ctype::scalar_name(s),
            width = 8 * crate::layout::scalar_size(s),
        ),
    }
}
