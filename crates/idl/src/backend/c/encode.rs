//! Emission of encoders: bytes in place (`put`), then secondary objects (`more`).
//!
//! For values whose size is not known beforehand: written to a private growing buffer, from which
//! headers may be read back. Calls with a planned size are `op`'s, which shares the parts here that
//! do not read back.

use crate::ir::{Array, PtrClass, StringTy, Ty, TypeId, TypeKind};

use super::emit::{Emit, Scope};

impl Emit<'_> {
    /// Writes the value `lv` in place, `o` bytes into the block.
    pub(super) fn put(&mut self, ty: &Ty, lv: &str, o: &str, sc: &Scope<'_>) {
        if self.model.is_plain(ty) {
            self.check_value(ty, lv);
            self.store(ty, lv, o);
            return;
        }
        match ty {
            Ty::Named(id) => match self.convert_out(*id, lv) {
                Some(wire) => {
                    self.put_wire(*id, &wire, o, sc);
                    self.w.close();
                }
                None => self.put_wire(*id, lv, o, sc),
            },
            Ty::Union(_, e) => {
                let value = self.model.expr(e, &sc.siblings);
                self.w.line(format!("sj_st64(sj_p + {o}, (uint64_t)({value}));"));
            }
            Ty::Fixed(element, n) => {
                let i = format!("sj_i{}", self.fresh());
                let step = self.model.size(element);
                self.w.open(format!("for (size_t {i} = 0; {i} < {n}; {i}++)"));
                self.put(element, &format!("{lv}[{i}]"), &format!("{o} + {i} * {step}"), sc);
                self.w.close();
            }
            Ty::Array(a) => self.put_array(a, lv, false, o, sc),
            Ty::String(s) => self.put_string(s, lv, false, o, sc),
            Ty::Pointer(class, t) => self.put_pointer(*class, t, lv, o, sc),
            Ty::Descriptor => self.w.require(format!("sj_put_fd(sj_e, sj_p + {o}, {lv})")),
            Ty::Interface(_) => {
                self.w.require(format!("sj_put_interface(sj_e, sj_p + {o}, &{lv})"));
            }
            Ty::Scalar(_) => {}
        }
    }

    /// Opens a block with the converted value, if the type is converted.
    fn convert_out(&mut self, id: TypeId, lv: &str) -> Option<String> {
        let marshal = self.model.marshal(id)?;
        let wire = format!("sj_w{}", self.fresh());
        let name = self.model.type_name(id);
        let prefix = marshal.prefix;
        self.w.open("");
        self.w.line(format!("{name} {wire};"));
        self.w.line(format!("{prefix}_to_wire(&{lv}, &{wire}, sj_e->arena);"));
        self.w.line(format!(
            "sj_cleanup_add(sj_e->cleanup, sj_e->arena, sj_free_of_{name}, (void *)(uintptr_t)&{lv});"
        ));
        Some(wire)
    }

    /// A named type as it travels.
    fn put_wire(&mut self, id: TypeId, lv: &str, o: &str, sc: &Scope<'_>) {
        let name = self.model.type_name(id);
        match self.model.def(id).map(|d| &d.kind) {
            Some(TypeKind::Alias(t)) => self.put(t, lv, o, sc),
            Some(TypeKind::Struct(_) | TypeKind::Union(_)) if self.is_plain_named(id) => {
                self.w.require(format!("sj_check_of_{name}((const unsigned char *)&{lv}, false)"));
                self.w.line(format!("sj_copy_of_{name}(sj_p + {o}, &{lv});"));
            }
            Some(TypeKind::Struct(_) | TypeKind::Union(_)) => {
                self.w.require(format!("sj_put_of_{name}(sj_e, sj_at + {o}, &{lv})"));
            }
            Some(TypeKind::Enum(_)) => {
                self.w.require(format!("sj_is_of_{name}((int32_t){lv})"));
                self.w.line(format!("memcpy(sj_p + {o}, &{lv}, 4);"));
            }
            Some(TypeKind::Opaque { size, .. }) => {
                self.w.line(format!("memcpy(sj_p + {o}, &{lv}, {size});"));
            }
            Some(TypeKind::ContextHandle) => {
                let number = sc.context.as_ref().map_or("0", |c| c.0.as_str());
                self.w.require(format!(
                    "sj_put_context(sj_e, sj_p + {o}, {lv}, \"{name}\", {number})"
                ));
            }
            None => {}
        }
    }

    /// Plain apart from the conversion of the whole.
    pub(super) fn is_plain_named(&self, id: TypeId) -> bool {
        match self.model.def(id).map(|d| &d.kind) {
            Some(TypeKind::Struct(s)) => {
                !s.fields.is_empty()
                    && s.fields.iter().all(|f| !f.ignore && self.model.is_plain(&f.ty))
            }
            Some(TypeKind::Enum(_) | TypeKind::Opaque { .. }) => true,
            _ => false,
        }
    }

    /// C expression of the limit for a flat array, or never.
    pub(super) fn limit(&self, element: &Ty, sc: &Scope<'_>) -> String {
        if crate::layout::is_flat(self.model.m, element) && self.model.is_plain(element) {
            sc.limit.clone()
        } else {
            "SIZE_MAX".to_owned()
        }
    }

    /// C expressions of whole size, first and number of transmitted elements.
    pub(super) fn array_numbers(&self, a: &Array, sc: &Scope<'_>) -> (String, String, String) {
        let whole = self.model.expr(&a.size, &sc.siblings);
        let first = self.model.expr(&a.first, &sc.siblings);
        let count = match &a.length {
            Some(l) => self.model.expr(l, &sc.siblings),
            None if crate::layout::is_varying(a) => format!("sj_x_sub({whole}, {first})"),
            None => whole.clone(),
        };
        (whole, first, count)
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
        let (whole, first, count) = self.array_numbers(a, sc);
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

    fn put_array(&mut self, a: &Array, lv: &str, nullable: bool, o: &str, sc: &Scope<'_>) {
        let plan = self.plan_array(a, lv, nullable, sc, "&sj_n, &sj_f");
        self.w.open("");
        self.w.line("uint32_t sj_n, sj_f;");
        self.w.require(plan);
        self.array_header(a, lv, ("sj_put_flat", "sj_n", "sj_f"), o, sc);
        self.w.close();
    }

    /// The header once number and form are known.
    pub(super) fn array_header(
        &mut self,
        a: &Array,
        lv: &str,
        (function, n, form): (&str, &str, &str),
        o: &str,
        sc: &Scope<'_>,
    ) {
        let size = self.model.size(&a.element);
        let (whole, first, _) = self.array_numbers(a, sc);
        let data = if crate::layout::is_varying(a) {
            format!("{form} ? {lv} + {first} : {lv}")
        } else {
            lv.to_owned()
        };
        self.w.line(format!(
            "{function}(sj_e, sj_p + {o}, {data}, {n}, {form}, (size_t){n} * {size});"
        ));
        if crate::layout::is_varying(a) {
            self.w.line(format!("sj_st32(sj_p + {o} + 8, {form} ? (uint32_t)({whole}) : 0);"));
            self.w.line(format!("sj_st32(sj_p + {o} + 12, {form} ? (uint32_t)({first}) : 0);"));
        }
    }

    fn put_string(&mut self, s: &StringTy, lv: &str, nullable: bool, o: &str, sc: &Scope<'_>) {
        let plan = self.plan_string(s, lv, nullable, sc, "&sj_n, &sj_f");
        let width = if s.wide { 2 } else { 1 };
        self.w.open("");
        self.w.line("uint32_t sj_n, sj_f;");
        self.w.require(plan);
        self.w.line(format!(
            "sj_put_flat(sj_e, sj_p + {o}, {lv}, sj_n, sj_f, ((size_t)sj_n + 1) * {width});"
        ));
        self.w.close();
    }

    fn put_pointer(&mut self, class: PtrClass, t: &Ty, lv: &str, o: &str, sc: &Scope<'_>) {
        let target = self.model.target(t, lv);
        match (class, self.model.strip(t)) {
            (_, Ty::Array(a)) => self.put_array(a, lv, class != PtrClass::Ref, o, sc),
            (_, Ty::String(s)) => self.put_string(s, lv, class != PtrClass::Ref, o, sc),
            (PtrClass::Ref, _) => {
                self.w.require(format!("{lv} != NULL"));
                self.put(t, &target, o, sc);
            }
            (PtrClass::Unique, _) => self.w.line(format!("sj_st64(sj_p + {o}, {lv} != NULL);")),
            (PtrClass::Ptr, _) => {
                let tag = self.model.tag(t);
                self.w.require(format!("sj_put_ptr(sj_e, sj_at + {o}, {lv}, {tag}u)"));
            }
        }
    }

    /// Writes the secondary objects of `lv`, whose bytes in place are `o` bytes into the block.
    pub(super) fn more(&mut self, ty: &Ty, lv: &str, o: &str, sc: &Scope<'_>) {
        if !self.model.has_more(ty) {
            return;
        }
        match ty {
            Ty::Named(id) => match self.convert_out(*id, lv) {
                Some(wire) => {
                    self.more_wire(*id, &wire, o, sc);
                    self.w.close();
                }
                None => self.more_wire(*id, lv, o, sc),
            },
            Ty::Union(id, e) => {
                let value = self.model.expr(e, &sc.siblings);
                let name = self.model.type_name(*id);
                self.w.require(format!("sj_put_arm_of_{name}(sj_e, {value}, &{lv})"));
            }
            Ty::Fixed(element, n) => {
                let i = format!("sj_i{}", self.fresh());
                let step = self.model.size(element);
                self.w.open(format!("for (size_t {i} = 0; {i} < {n}; {i}++)"));
                self.more(element, &format!("{lv}[{i}]"), &format!("{o} + {i} * {step}"), sc);
                self.w.close();
            }
            Ty::Array(a) => self.more_array(a, lv, o, sc),
            Ty::String(s) => self.more_string(s, lv, o),
            Ty::Pointer(class, t) => self.more_pointer(*class, t, lv, o, sc),
            Ty::Scalar(_) | Ty::Descriptor | Ty::Interface(_) => {}
        }
    }

    fn more_wire(&mut self, id: TypeId, lv: &str, o: &str, sc: &Scope<'_>) {
        let name = self.model.type_name(id);
        match self.model.def(id).map(|d| &d.kind) {
            Some(TypeKind::Alias(t)) => self.more(t, lv, o, sc),
            Some(TypeKind::Struct(_) | TypeKind::Union(_)) => {
                self.w.require(format!("sj_put_more_of_{name}(sj_e, sj_at + {o}, &{lv})"));
            }
            _ => {}
        }
    }

    fn more_array(&mut self, a: &Array, lv: &str, o: &str, sc: &Scope<'_>) {
        let k = self.fresh();
        self.w.open(format!("if (sj_ld32(sj_e->body + sj_at + {o} + 4) == 1)"));
        self.w.line(format!("const uint32_t sj_n{k} = sj_ld32(sj_e->body + sj_at + {o});"));
        let first = if crate::layout::is_varying(a) {
            self.w.line(format!(
                "const size_t sj_first{k} = sj_ld32(sj_e->body + sj_at + {o} + 12);"
            ));
            format!("{lv} + sj_first{k}")
        } else {
            lv.to_owned()
        };
        self.elements(&a.element, &first, &format!("sj_n{k}"), sc);
        self.w.close();
    }

    /// `n` elements from the pointer expression `from` on, as an object.
    pub(super) fn elements(&mut self, element: &Ty, from: &str, n: &str, sc: &Scope<'_>) {
        let size = self.model.size(element);
        let base = if from.contains(' ') { format!("({from})") } else { from.to_owned() };
        if self.model.is_plain(element) && self.model.is_dense(element) {
            self.check_elements(element, &base, n);
            let bytes = format!("(sj_e, {from}, (size_t){n} * {size})");
            if sc.planned {
                self.w.line(format!("sj_planned_bytes{bytes};"));
            } else {
                self.w.require(format!("sj_enc_bytes{bytes}"));
            }
            return;
        }
        let k = self.fresh();
        let sc = sc.inner();
        self.begin(&format!("(size_t){n} * {size}"), k, &sc);
        let head = format!("for (uint32_t sj_i{k} = 0; sj_i{k} < {n}; sj_i{k}++)");
        let at = format!("const size_t sj_at = sj_o{k} + (size_t)sj_i{k} * {size};");
        if let Some(id) = self.with_strings(element) {
            let name = self.model.type_name(id);
            self.w.open(&head);
            self.w.require(format!(
                "sj_put_whole_of_{name}(sj_e, sj_o{k} + (size_t)sj_i{k} * {size}, &{base}[sj_i{k}])"
            ));
            self.w.close();
            return self.end(&sc);
        }
        self.w.open(&head);
        self.w.line(&at);
        self.w.line("unsigned char *sj_p = sj_e->body + sj_at;");
        self.w.line("(void)sj_p;");
        self.put(element, &format!("{base}[sj_i{k}]"), "0", &sc);
        self.w.close();
        if self.model.has_more(element) {
            self.w.open(&head);
            self.w.line(&at);
            self.w.line("(void)sj_at;");
            self.more(element, &format!("{base}[sj_i{k}]"), "0", &sc);
            self.w.close();
        }
        self.end(&sc);
    }

    /// Room for an object of `bytes`, at `sj_o{k}`.
    fn begin(&mut self, bytes: &str, k: u32, sc: &Scope<'_>) {
        if sc.planned {
            self.w.line(format!("const size_t sj_o{k} = sj_planned_object(sj_e, {bytes});"));
        } else {
            self.w.line(format!("size_t sj_o{k};"));
            self.w.require(format!("sj_enc_begin(sj_e, {bytes}, &sj_o{k})"));
        }
    }

    fn end(&mut self, sc: &Scope<'_>) {
        if !sc.planned {
            self.w.line("sj_enc_end(sj_e);");
        }
    }

    fn more_string(&mut self, s: &StringTy, lv: &str, o: &str) {
        let width = if s.wide { 2 } else { 1 };
        self.w.open(format!("if (sj_ld32(sj_e->body + sj_at + {o} + 4) == 1)"));
        self.w.require(format!(
            "sj_enc_bytes(sj_e, {lv}, ((size_t)sj_ld32(sj_e->body + sj_at + {o}) + 1) * {width})"
        ));
        self.w.close();
    }

    fn more_pointer(&mut self, class: PtrClass, t: &Ty, lv: &str, o: &str, sc: &Scope<'_>) {
        let target = self.model.target(t, lv);
        match (class, self.model.strip(t)) {
            (_, Ty::Array(a)) => self.more_array(a, lv, o, sc),
            (_, Ty::String(s)) => self.more_string(s, lv, o),
            (PtrClass::Ref, _) => self.more(t, &target, o, sc),
            (PtrClass::Unique, _) => self.pointee(t, &target, &format!("if ({lv})"), sc),
            (PtrClass::Ptr, _) => {
                let tag = self.model.tag(t);
                let first = format!("if (sj_ptr_is_first(sj_e, sj_at + {o}, {lv}, {tag}u))");
                self.pointee(t, &target, &first, sc);
            }
        }
    }

    /// One object, under a condition.
    pub(super) fn pointee(&mut self, t: &Ty, target: &str, condition: &str, sc: &Scope<'_>) {
        let k = self.fresh();
        let size = self.model.size(t);
        let sc = sc.inner();
        self.w.open(condition);
        self.begin(&size.to_string(), k, &sc);
        self.w.open("");
        self.w.line(format!("const size_t sj_at = sj_o{k};"));
        self.w.line("unsigned char *sj_p = sj_e->body + sj_at;");
        self.w.line("(void)sj_p;");
        self.put(t, target, "0", &sc);
        self.more(t, target, "0", &sc);
        self.w.close();
        self.end(&sc);
        self.w.close();
    }
}
