//! Emission of decoders, first part: bytes in place (`get`). Not here: secondary objects, and that
//! sizes agree (`decode_more`).

use crate::ir::{PtrClass, StringTy, Ty, TypeId, TypeKind};
use crate::layout;

use super::emit::{ArrayTy, Emit, PointerTy, Scope};
use super::encode::width;
use super::template::{Code, c};
use super::text::require;

impl Emit<'_> {
    /// Reads what is in place at `sj_p + o` into `lv`.
    pub(super) fn get(&mut self, ty: &Ty, lv: &str, o: &str, sc: &Scope<'_>) -> Code {
        if self.model.has_wire_layout(ty) {
            return self.check_bytes(ty, o, "true") + &self.load(ty, lv, o);
        }
        match ty {
            Ty::Named(id) if self.model.marshal(*id).is_some() => {
                self.get_converted(*id, lv, o, sc)
            }
            Ty::Named(id) => self.get_wire(*id, lv, o, sc),
            Ty::Fixed(element, n) => {
                let step = self.model.size(element);
                self.each(*n, |x, i| {
                    x.get(element, &format!("{lv}[{i}]"), &format!("{o} + {i} * {step}"), sc)
                })
            }
            Ty::Array(array) => self.get_array(ArrayTy { array, ty }, lv, false, o, sc),
            Ty::String(s) => get_string(s, lv, false, o, sc),
            Ty::Pointer(class, target) => {
                self.get_pointer(PointerTy { class: *class, ty, target }, lv, o, sc)
            }
            Ty::Descriptor => require(format!("sj_get_fd(sj_d, sj_p + {o}, &{lv})")),
            Ty::Interface(_) => require(format!("sj_get_interface(sj_d, sj_p + {o}, &{lv})")),
            Ty::Union(..) | Ty::Scalar(_) => Code::new(),
        }
    }

    /// A converted value: at once, or with its secondary objects in `get_more`; until then `lv`
    /// holds a pointer.
    fn get_converted(&mut self, id: TypeId, lv: &str, o: &str, sc: &Scope<'_>) -> Code {
        let name = self.model.type_name(id);
        let k = self.fresh();
        if self.model.has_more(&Ty::Named(id)) {
            return c!(
                "
                {
                    $name *sj_w$k = ($name *)sj_arena_alloc(sj_d->arena, sizeof($name));
                    if (SJ_UNLIKELY(!(sj_w$k != NULL)))
                        return false;
                    $get
                    memcpy(&$lv, &sj_w$k, sizeof(void *));
                }
                ",
                name,
                k,
                get = self.get_wire(id, &format!("(*sj_w{k})"), o, sc),
                lv,
            );
        }
        c!(
            "
            {
                $name sj_w$k;
                $get
                $convert
            }
            ",
            name,
            k,
            get = self.get_wire(id, &format!("sj_w{k}"), o, sc),
            convert = self.convert_in(id, &format!("&sj_w{k}"), lv),
        )
    }

    pub(super) fn convert_in(&self, id: TypeId, wire: &str, lv: &str) -> Code {
        let Some(marshal) = self.model.marshal(id) else { return Code::new() };
        c!(
            "
            if (SJ_UNLIKELY(!($prefix_from_wire($wire, &$lv, sj_d->arena))))
                return false;
            sj_cleanup_add(sj_d->cleanup, sj_d->arena, sj_free_of_$name, (void *)&$lv);
            ",
            prefix = marshal.prefix,
            wire,
            lv,
            name = self.model.type_name(id),
        )
    }

    pub(super) fn get_wire(&mut self, id: TypeId, lv: &str, o: &str, sc: &Scope<'_>) -> Code {
        let name = self.model.type_name(id);
        match self.model.def(id).map(|d| &d.kind) {
            Some(TypeKind::Alias(t)) => self.get(t, lv, o, sc),
            Some(TypeKind::Struct(_)) if self.named_has_wire_layout(id) => c!(
                "
                if (SJ_UNLIKELY(!(sj_check_of_$name(sj_p + $o, true))))
                    return false;
                memcpy(&$lv, sj_p + $o, $size);
                ",
                name,
                o,
                lv,
                size = self.model.size(&Ty::Named(id)),
            ),
            Some(TypeKind::Struct(_) | TypeKind::Union(_)) => {
                require(format!("sj_get_of_{name}(sj_d, sj_p + {o}, &{lv})"))
            }
            Some(TypeKind::Enum(_)) => c!(
                "
                if (SJ_UNLIKELY(!(sj_is_of_$name((int32_t)sj_ld32(sj_p + $o)))))
                    return false;
                memcpy(&$lv, sj_p + $o, 4);
                ",
                name,
                o,
                lv,
            ),
            Some(TypeKind::Opaque { size, .. }) => {
                c!("memcpy(&$lv, sj_p + $o, $size);", lv, o, size)
            }
            Some(TypeKind::ContextHandle) => {
                let keep =
                    sc.context.as_ref().map(|number| c!("$kept = sj_id;", kept = number.kept));
                c!(
                    "
                    {
                        uint64_t sj_id;
                        void *sj_c;
                        if (SJ_UNLIKELY(!(sj_get_context(sj_d, sj_p + $o, \"$name\", &sj_c, &sj_id))))
                            return false;
                        $lv = sj_c;
                        $keep
                    }
                    ",
                    o,
                    name,
                    lv,
                    keep = keep.unwrap_or_default(),
                )
            }
            None => Code::new(),
        }
    }

    fn get_array(
        &self,
        ArrayTy { array: a, ty }: ArrayTy<'_>,
        lv: &str,
        nullable: bool,
        o: &str,
        sc: &Scope<'_>,
    ) -> Code {
        let flat =
            self.model.has_wire_layout(&a.element) && layout::is_flat(self.model.m, &a.element);
        let (valid, get) = match layout::is_varying(a) {
            true => ("sj_varying_is_valid", "sj_get_varying"),
            false => ("sj_header_is_valid", "sj_get_flat"),
        };
        let valid = require(format!("{valid}(sj_p + {o}, {nullable}, {flat})"));
        if !flat {
            return valid + &c!("$lv = NULL;", lv);
        }
        c!(
            "
            $valid
            {
                void *sj_t;
                if (SJ_UNLIKELY(!($get(sj_d, sj_p + $o, $size, $copy, &sj_t))))
                    return false;
                $lv = ($cast)sj_t;
            }
            ",
            valid,
            get,
            o,
            size = self.model.size(&a.element),
            copy = sc.copy,
            lv,
            cast = self.model.name(ty),
        )
    }

    fn get_pointer(
        &mut self,
        PointerTy { class, ty, target: t }: PointerTy<'_>,
        lv: &str,
        o: &str,
        sc: &Scope<'_>,
    ) -> Code {
        match (class, self.model.strip(t)) {
            (_, Ty::Array(array)) => {
                self.get_array(ArrayTy { array, ty }, lv, class != PtrClass::Ref, o, sc)
            }
            (_, Ty::String(s)) => get_string(s, lv, class != PtrClass::Ref, o, sc),
            (PtrClass::Ref, _) => self.get_target(t, lv, o, sc),
            (PtrClass::Unique, _) => c!(
                "
                if (SJ_UNLIKELY(!(sj_unique_is_valid(sj_p + $o))))
                    return false;
                $lv = NULL;
                ",
                o,
                lv,
            ),
            (PtrClass::Ptr, _) => c!(
                "
                {
                    void *sj_t;
                    if (SJ_UNLIKELY(!(sj_get_ptr(sj_d, sj_p + $o, $tag, sizeof($name), &sj_t))))
                        return false;
                    $lv = ($cast)sj_t;
                }
                ",
                o,
                tag = format!("{}u", self.model.tag(t)),
                name = self.model.name(t),
                lv,
                cast = self.model.pointer(t),
            ),
        }
    }

    /// Makes the pointer `lv` point to the target whose bytes are in place here.
    pub(super) fn get_target(&mut self, t: &Ty, lv: &str, o: &str, sc: &Scope<'_>) -> Code {
        let (name, cast) = (self.model.name(t), self.model.pointer(t));
        if self.model.has_wire_layout(t) {
            return c!(
                "
                $check
                $lv = ($cast)sj_dec_keep(sj_d, sj_p + $o, $size, $copy);
                if (SJ_UNLIKELY(!($lv != NULL)))
                    return false;
                ",
                check = self.check_bytes(t, o, "true"),
                lv,
                cast,
                o,
                size = self.model.size(t),
                copy = sc.copy,
            );
        }
        let target = self.model.target(t, lv);
        c!(
            "
            $lv = ($cast)sj_dec_alloc(sj_d, sizeof($name));
            if (SJ_UNLIKELY(!($lv != NULL)))
                return false;
            $get
            ",
            lv,
            cast,
            name,
            get = self.get(t, &target, o, sc),
        )
    }
}

/// C type of a pointer to characters.
pub(super) fn characters(s: &StringTy) -> &'static str {
    if s.wide { "uint16_t *" } else { "char *" }
}

fn get_string(s: &StringTy, lv: &str, nullable: bool, o: &str, sc: &Scope<'_>) -> Code {
    c!(
        "
        {
            void *sj_t;
            if (SJ_UNLIKELY(!(sj_get_string(sj_d, sj_p + $o, $width, $nullable, $copy, &sj_t))))
                return false;
            $lv = ($cast)sj_t;
        }
        ",
        o,
        width = width(s),
        nullable,
        copy = sc.copy,
        lv,
        cast = characters(s),
    )
}
