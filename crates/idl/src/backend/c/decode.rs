//! Emission of decoders: bytes in place (`get`), then secondary objects (`get_more`).
//!
//! The count in a header bounds what is read, the bytes that are there bound the count; that it
//! agrees with `size_is` is compared afterwards (`agree`), when all siblings are known.

use crate::ir::{Array, PtrClass, StringTy, Ty, TypeId, TypeKind};
use crate::layout;

use super::emit::{Emit, Scope};

impl Emit<'_> {
    /// Reads what is in place at `sj_p + o` into `lv`.
    pub(super) fn get(&mut self, ty: &Ty, lv: &str, o: &str, sc: &Scope<'_>) {
        if self.model.is_plain(ty) {
            self.check_bytes(ty, o, "true");
            self.load(ty, lv, o);
            return;
        }
        match ty {
            Ty::Named(id) if self.model.marshal(*id).is_some() => {
                self.get_converted(*id, lv, o, sc)
            }
            Ty::Named(id) => self.get_wire(*id, lv, o, sc),
            Ty::Fixed(element, n) => {
                let i = format!("sj_i{}", self.fresh());
                let step = self.model.size(element);
                self.w.open(format!("for (size_t {i} = 0; {i} < {n}; {i}++)"));
                self.get(element, &format!("{lv}[{i}]"), &format!("{o} + {i} * {step}"), sc);
                self.w.close();
            }
            Ty::Array(a) => self.get_array(a, ty, lv, false, o, sc),
            Ty::String(s) => self.get_string(s, lv, false, o, sc),
            Ty::Pointer(class, t) => self.get_pointer(*class, ty, t, lv, o, sc),
            Ty::Descriptor => self.w.require(format!("sj_get_fd(sj_d, sj_p + {o}, &{lv})")),
            Ty::Interface(_) => {
                self.w.require(format!("sj_get_interface(sj_d, sj_p + {o}, &{lv})"));
            }
            Ty::Union(..) | Ty::Scalar(_) => {}
        }
    }

    /// A converted value: at once, or with its secondary objects in `get_more`; until then `lv`
    /// holds a pointer.
    fn get_converted(&mut self, id: TypeId, lv: &str, o: &str, sc: &Scope<'_>) {
        let name = self.model.type_name(id);
        let k = self.fresh();
        self.w.open("");
        if self.model.has_more(&Ty::Named(id)) {
            self.w.line(format!(
                "{name} *sj_w{k} = ({name} *)sj_arena_alloc(sj_d->arena, sizeof({name}));"
            ));
            self.w.require(format!("sj_w{k} != NULL"));
            self.get_wire(id, &format!("(*sj_w{k})"), o, sc);
            self.w.line(format!("memcpy(&{lv}, &sj_w{k}, sizeof(void *));"));
        } else {
            self.w.line(format!("{name} sj_w{k};"));
            self.get_wire(id, &format!("sj_w{k}"), o, sc);
            self.convert_in(id, &format!("&sj_w{k}"), lv);
        }
        self.w.close();
    }

    fn convert_in(&mut self, id: TypeId, wire: &str, lv: &str) {
        let Some(marshal) = self.model.marshal(id) else { return };
        let (name, prefix) = (self.model.type_name(id), marshal.prefix);
        self.w.require(format!("{prefix}_from_wire({wire}, &{lv}, sj_d->arena)"));
        self.w.line(format!(
            "sj_cleanup_add(sj_d->cleanup, sj_d->arena, sj_free_of_{name}, (void *)&{lv});"
        ));
    }

    fn get_wire(&mut self, id: TypeId, lv: &str, o: &str, sc: &Scope<'_>) {
        let name = self.model.type_name(id);
        match self.model.def(id).map(|d| &d.kind) {
            Some(TypeKind::Alias(t)) => self.get(t, lv, o, sc),
            Some(TypeKind::Struct(_)) if self.is_plain_named(id) => {
                let size = self.model.size(&Ty::Named(id));
                self.w.require(format!("sj_check_of_{name}(sj_p + {o}, true)"));
                self.w.line(format!("memcpy(&{lv}, sj_p + {o}, {size});"));
            }
            Some(TypeKind::Struct(_) | TypeKind::Union(_)) => {
                self.w.require(format!("sj_get_of_{name}(sj_d, sj_p + {o}, &{lv})"));
            }
            Some(TypeKind::Enum(_)) => {
                self.w.require(format!("sj_is_of_{name}((int32_t)sj_ld32(sj_p + {o}))"));
                self.w.line(format!("memcpy(&{lv}, sj_p + {o}, 4);"));
            }
            Some(TypeKind::Opaque { size, .. }) => {
                self.w.line(format!("memcpy(&{lv}, sj_p + {o}, {size});"));
            }
            Some(TypeKind::ContextHandle) => {
                let number = sc.context.as_ref().map(|c| c.1.clone());
                self.w.open("");
                self.w.line("uint64_t sj_id;");
                self.w.line("void *sj_c;");
                self.w.require(format!(
                    "sj_get_context(sj_d, sj_p + {o}, \"{name}\", &sj_c, &sj_id)"
                ));
                self.w.line(format!("{lv} = sj_c;"));
                if let Some(number) = number {
                    self.w.line(format!("{number} = sj_id;"));
                }
                self.w.close();
            }
            None => {}
        }
    }

    /// Elements that may lie in the body or an item as they are.
    fn is_direct(&self, a: &Array) -> bool {
        self.model.is_plain(&a.element) && !layout::is_varying(a)
    }

    fn get_array(&mut self, a: &Array, ty: &Ty, lv: &str, nullable: bool, o: &str, sc: &Scope<'_>) {
        let flat = self.model.is_plain(&a.element) && layout::is_flat(self.model.m, &a.element);
        let valid =
            if layout::is_varying(a) { "sj_varying_is_valid" } else { "sj_header_is_valid" };
        self.w.require(format!("{valid}(sj_p + {o}, {nullable}, {flat})"));
        if !flat {
            self.w.line(format!("{lv} = NULL;"));
            return;
        }
        let size = self.model.size(&a.element);
        let cast = self.model.name(ty);
        self.w.open("");
        self.w.line("void *sj_t;");
        let get = if layout::is_varying(a) { "sj_get_varying" } else { "sj_get_flat" };
        self.w.require(format!("{get}(sj_d, sj_p + {o}, {size}, {}, &sj_t)", sc.copy));
        self.w.line(format!("{lv} = ({cast})sj_t;"));
        self.w.close();
    }

    fn get_string(&mut self, s: &StringTy, lv: &str, nullable: bool, o: &str, sc: &Scope<'_>) {
        let (width, cast) = if s.wide { (2, "uint16_t *") } else { (1, "char *") };
        self.w.open("");
        self.w.line("void *sj_t;");
        self.w.require(format!(
            "sj_get_string(sj_d, sj_p + {o}, {width}, {nullable}, {}, &sj_t)",
            sc.copy
        ));
        self.w.line(format!("{lv} = ({cast})sj_t;"));
        self.w.close();
    }

    fn get_pointer(&mut self, class: PtrClass, ty: &Ty, t: &Ty, lv: &str, o: &str, sc: &Scope<'_>) {
        match (class, self.model.strip(t)) {
            (_, Ty::Array(a)) => self.get_array(a, ty, lv, class != PtrClass::Ref, o, sc),
            (_, Ty::String(s)) => self.get_string(s, lv, class != PtrClass::Ref, o, sc),
            (PtrClass::Ref, _) => self.get_target(t, lv, o, sc),
            (PtrClass::Unique, _) => {
                self.w.require(format!("sj_unique_is_valid(sj_p + {o})"));
                self.w.line(format!("{lv} = NULL;"));
            }
            (PtrClass::Ptr, _) => {
                let (tag, name, cast) =
                    (self.model.tag(t), self.model.name(t), self.model.pointer(t));
                self.w.open("");
                self.w.line("void *sj_t;");
                self.w.require(format!(
                    "sj_get_ptr(sj_d, sj_p + {o}, {tag}u, sizeof({name}), &sj_t)"
                ));
                self.w.line(format!("{lv} = ({cast})sj_t;"));
                self.w.close();
            }
        }
    }

    /// Makes the pointer `lv` point to the target whose bytes are in place here.
    pub(super) fn get_target(&mut self, t: &Ty, lv: &str, o: &str, sc: &Scope<'_>) {
        let (name, cast) = (self.model.name(t), self.model.pointer(t));
        if self.model.is_plain(t) {
            let size = self.model.size(t);
            self.check_bytes(t, o, "true");
            self.w.line(format!(
                "{lv} = ({cast})sj_dec_keep(sj_d, sj_p + {o}, {size}, {});",
                sc.copy
            ));
            self.w.require(format!("{lv} != NULL"));
            return;
        }
        self.w.line(format!("{lv} = ({cast})sj_dec_alloc(sj_d, sizeof({name}));"));
        self.w.require(format!("{lv} != NULL"));
        let target = self.model.target(t, lv);
        self.get(t, &target, o, sc);
    }

    /// Reads the secondary objects of `lv`, whose bytes in place are at `sj_p + o`.
    pub(super) fn get_more(&mut self, ty: &Ty, lv: &str, o: &str, sc: &Scope<'_>) {
        if !self.model.has_more(ty) {
            if sc.nested {
                self.agree(ty, o, sc);
            }
            return;
        }
        match ty {
            Ty::Named(id) if self.model.marshal(*id).is_some() => {
                let name = self.model.type_name(*id);
                let k = self.fresh();
                self.w.open("");
                self.w.line(format!("{name} *sj_w{k};"));
                self.w.line(format!("memcpy(&sj_w{k}, &{lv}, sizeof(void *));"));
                self.get_more_wire(*id, &format!("(*sj_w{k})"), o, sc);
                self.convert_in(*id, &format!("sj_w{k}"), lv);
                self.w.close();
            }
            Ty::Named(id) => self.get_more_wire(*id, lv, o, sc),
            Ty::Union(id, _) => {
                let name = self.model.type_name(*id);
                self.w.require(format!(
                    "sj_get_arm_of_{name}(sj_d, (int64_t)sj_ld64(sj_p + {o}), &{lv})"
                ));
            }
            Ty::Fixed(element, n) => {
                let i = format!("sj_i{}", self.fresh());
                let step = self.model.size(element);
                self.w.open(format!("for (size_t {i} = 0; {i} < {n}; {i}++)"));
                self.get_more(element, &format!("{lv}[{i}]"), &format!("{o} + {i} * {step}"), sc);
                self.w.close();
            }
            Ty::Array(a) => self.get_more_array(a, ty, lv, o, sc),
            Ty::String(s) => self.get_more_string(s, lv, o, sc),
            Ty::Pointer(class, t) => self.get_more_pointer(*class, ty, t, lv, o, sc),
            Ty::Scalar(_) | Ty::Descriptor | Ty::Interface(_) => {}
        }
        if sc.nested && !matches!(ty, Ty::Fixed(..)) {
            self.agree(ty, o, sc);
        }
    }

    fn get_more_wire(&mut self, id: TypeId, lv: &str, o: &str, sc: &Scope<'_>) {
        let name = self.model.type_name(id);
        match self.model.def(id).map(|d| &d.kind) {
            Some(TypeKind::Alias(t)) => self.get_more(t, lv, o, sc),
            Some(TypeKind::Struct(_) | TypeKind::Union(_)) => {
                self.w.require(format!("sj_get_more_of_{name}(sj_d, sj_p + {o}, &{lv})"));
            }
            _ => {}
        }
    }

    fn get_more_array(&mut self, a: &Array, ty: &Ty, lv: &str, o: &str, sc: &Scope<'_>) {
        let k = self.fresh();
        let size = self.model.size(&a.element);
        let cast = self.model.name(ty);
        self.w.open(format!("if (sj_ld32(sj_p + {o} + 4) == 1)"));
        self.w.line(format!("const uint32_t sj_n{k} = sj_ld32(sj_p + {o});"));
        self.w.line(format!("const unsigned char *sj_q{k};"));
        if self.is_direct(a) {
            self.w.line("void *sj_t;");
            self.w.require(format!(
                "sj_get_elements(sj_d, sj_n{k}, {size}, {}, &sj_q{k}, &sj_t)",
                sc.copy
            ));
            self.check_array(&a.element, k);
            self.w.line(format!("{lv} = ({cast})sj_t;"));
            self.w.close();
            return;
        }
        let element = self.model.name(&a.element);
        let first = if layout::is_varying(a) {
            self.w.line(format!("const size_t sj_first{k} = sj_ld32(sj_p + {o} + 12);"));
            self.w.line(format!(
                "{lv} = ({cast})sj_dec_array_zeroed(sj_d, sj_ld32(sj_p + {o} + 8), sizeof({element}));"
            ));
            format!("sj_first{k} + ")
        } else {
            self.bound_empty(size, k);
            self.w.line(format!("{lv} = ({cast})sj_dec_array(sj_d, sj_n{k}, sizeof({element}));"));
            String::new()
        };
        self.w.require(format!("{lv} != NULL"));
        self.get_elements(&a.element, lv, &first, k, sc);
        self.w.close();
    }

    /// Elements without bytes are not bounded by the bytes there are.
    pub(super) fn bound_empty(&mut self, size: u64, k: u32) {
        if size == 0 {
            self.w.require(format!("sj_n{k} <= SJ_EMPTY_MAX"));
        }
    }

    /// The object of elements: `sj_n{k}` of them, to `lv[first + i]`.
    pub(super) fn get_elements(
        &mut self,
        element: &Ty,
        lv: &str,
        first: &str,
        k: u32,
        sc: &Scope<'_>,
    ) {
        let size = self.model.size(element);
        let sc = sc.inner();
        self.w.require(format!("sj_dec_begin(sj_d, sj_n{k}, {size}, &sj_q{k})"));
        let head = format!("for (uint32_t sj_i{k} = 0; sj_i{k} < sj_n{k}; sj_i{k}++)");
        let p = format!("const unsigned char *sj_p = sj_q{k} + (size_t)sj_i{k} * {size};");
        let at = format!("{lv}[{first}sj_i{k}]");
        if let Some(id) = self.with_strings(element) {
            let name = self.model.type_name(id);
            self.w.open(&head);
            self.w.require(format!(
                "sj_get_whole_of_{name}(sj_d, sj_q{k} + (size_t)sj_i{k} * {size}, &{at})"
            ));
            self.w.close();
            self.w.line("sj_dec_end(sj_d);");
            return;
        }
        self.w.open(&head);
        self.w.line(&p);
        self.w.line("(void)sj_p;");
        self.get(element, &at, "0", &sc);
        self.w.close();
        if self.model.has_more(element) || self.has_expr(element) {
            self.w.open(&head);
            self.w.line(&p);
            self.w.line("(void)sj_p;");
            self.get_more(element, &at, "0", &sc);
            self.w.close();
        }
        self.w.line("sj_dec_end(sj_d);");
    }

    /// Looks at the bytes of all elements at `sj_q{k}`.
    pub(super) fn check_array(&mut self, element: &Ty, k: u32) {
        if !self.model.is_checked(element) {
            return;
        }
        let size = self.model.size(element);
        self.w.open(format!("for (uint32_t sj_i{k} = 0; sj_i{k} < sj_n{k}; sj_i{k}++)"));
        self.w.line(format!("const unsigned char *sj_p = sj_q{k} + (size_t)sj_i{k} * {size};"));
        self.check_bytes(element, "0", "true");
        self.w.line("(void)sj_p;");
        self.w.close();
    }

    fn get_more_string(&mut self, s: &StringTy, lv: &str, o: &str, sc: &Scope<'_>) {
        let (width, cast) = if s.wide { (2, "uint16_t *") } else { (1, "char *") };
        self.w.open("");
        self.w.line(format!("void *sj_t = {lv};"));
        self.w
            .require(format!("sj_get_string_more(sj_d, sj_p + {o}, {width}, {}, &sj_t)", sc.copy));
        self.w.line(format!("{lv} = ({cast})sj_t;"));
        self.w.close();
    }

    fn get_more_pointer(
        &mut self,
        class: PtrClass,
        ty: &Ty,
        t: &Ty,
        lv: &str,
        o: &str,
        sc: &Scope<'_>,
    ) {
        let target = self.model.target(t, lv);
        match (class, self.model.strip(t)) {
            (_, Ty::Array(a)) => return self.get_more_array(a, ty, lv, o, sc),
            (_, Ty::String(s)) => return self.get_more_string(s, lv, o, sc),
            (PtrClass::Ref, _) => return self.get_more(t, &target, o, sc),
            (PtrClass::Unique, _) => self.w.open(format!("if (sj_ld64(sj_p + {o}) != 0)")),
            (PtrClass::Ptr, _) => {
                self.w.open(format!("if (sj_get_ptr_is_first(sj_d, sj_p + {o}))"));
            }
        }
        let k = self.fresh();
        let size = self.model.size(t);
        let inner = sc.inner();
        self.w.line(format!("const unsigned char *sj_q{k};"));
        self.w.require(format!("sj_dec_begin(sj_d, 1, {size}, &sj_q{k})"));
        self.w.open("");
        self.w.line(format!("const unsigned char *sj_p = sj_q{k};"));
        self.w.line("(void)sj_p;");
        if class == PtrClass::Unique {
            self.get_target(t, lv, "0", &inner);
        } else {
            self.get(t, &target, "0", &inner);
        }
        self.get_more(t, &target, "0", &inner);
        self.w.close();
        self.w.line("sj_dec_end(sj_d);");
        self.w.close();
    }

    /// Requires that headers say the same as the expressions over the siblings.
    pub(super) fn agree(&mut self, ty: &Ty, o: &str, sc: &Scope<'_>) {
        let ty = self.model.resolve(ty);
        let inner = match ty {
            Ty::Pointer(_, t) if self.model.is_header(t) => self.model.strip(t),
            other => other,
        };
        match inner {
            Ty::Union(_, e) => {
                let value = self.model.expr(e, &sc.siblings);
                self.w.require(format!("(int64_t)sj_ld64(sj_p + {o}) == {value}"));
            }
            Ty::String(s) => {
                let Some(bound) = &s.bound else { return };
                let bound = self.model.expr(bound, &sc.siblings);
                self.w.require(format!(
                    "sj_ld32(sj_p + {o} + 4) == 0 || (int64_t)sj_ld32(sj_p + {o}) < {bound}"
                ));
            }
            Ty::Array(a) => {
                let (whole, first, count) = self.array_numbers(a, sc);
                let null = format!("sj_ld32(sj_p + {o} + 4) == 0");
                self.w.require(format!("{null} || (int64_t)sj_ld32(sj_p + {o}) == {count}"));
                if layout::is_varying(a) {
                    self.w.require(format!(
                        "{null} || ((int64_t)sj_ld32(sj_p + {o} + 8) == {whole} && (int64_t)sj_ld32(sj_p + {o} + 12) == {first})"
                    ));
                }
            }
            Ty::Pointer(PtrClass::Ref, t) => self.agree(t, o, sc),
            Ty::Fixed(element, n) if self.has_expr(element) => {
                let i = format!("sj_i{}", self.fresh());
                let step = self.model.size(element);
                self.w.open(format!("for (size_t {i} = 0; {i} < {n}; {i}++)"));
                self.agree(element, &format!("{o} + {i} * {step}"), sc);
                self.w.close();
            }
            _ => {}
        }
    }

    /// Whether there is something in it to agree on.
    fn has_expr(&self, ty: &Ty) -> bool {
        let mut any = false;
        super::model::visit_exprs(self.model.resolve(ty), &mut |_| any = true);
        any
    }
}
