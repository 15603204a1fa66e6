//! Emission of statements that draw one value of any type: the table of
//! `docs/reference/idl-random.md`.

use crate::ir::{Array, PtrClass, Scalar, Ty, TypeId, TypeKind};

use super::emit::{Emit, Scope};
use super::random::{Item, span};

impl Emit<'_> {
    pub(super) fn draw_item(&mut self, x: &Item<'_>, sc: &Scope<'_>) {
        match (x.range, self.model.resolve(x.ty)) {
            (Some((low, high)), Ty::Scalar(s)) if !matches!(s, Scalar::F32 | Scalar::F64) => {
                let (low, count) = span(low, high);
                let name = self.model.name(x.ty);
                self.w.line(format!("{} = ({name})sj_random_ranged(sj_r, {low}, {count});", x.lv));
            }
            (_, Ty::Array(a)) if x.in_buffer => self.draw_array(a, x.ty, &x.lv, true, sc),
            (_, Ty::String(s)) if x.in_buffer => self.draw_string(s, &x.lv, true, sc),
            _ => self.draw(x.ty, &x.lv, sc),
        }
    }

    /// Draws the value `lv`.
    pub(super) fn draw(&mut self, ty: &Ty, lv: &str, sc: &Scope<'_>) {
        match ty {
            Ty::Scalar(s) => self.draw_scalar(*s, lv),
            Ty::Named(id) => match self.model.marshal(*id) {
                Some(m) => {
                    let name = self.model.type_name(*id);
                    let k = self.fresh();
                    self.w.open("");
                    self.w.line(format!("{name} sj_w{k};"));
                    self.draw_named(*id, &format!("sj_w{k}"), sc);
                    self.w.line(format!(
                        "if (!{}_from_wire(&sj_w{k}, &{lv}, sj_r->arena))",
                        m.prefix
                    ));
                    self.w.line("    abort();");
                    self.w.close();
                }
                None => self.draw_named(*id, lv, sc),
            },
            Ty::Union(id, e) => {
                let value = self.model.expr(e, &sc.siblings);
                let name = self.model.type_name(*id);
                self.w.line(format!("sj_draw_arm_of_{name}(sj_r, {value}, &{lv});"));
            }
            Ty::Fixed(element, n) => {
                let i = format!("sj_i{}", self.fresh());
                self.w.open(format!("for (size_t {i} = 0; {i} < {n}; {i}++)"));
                self.draw(element, &format!("{lv}[{i}]"), sc);
                self.w.close();
            }
            Ty::Array(a) => self.draw_array(a, ty, lv, false, sc),
            Ty::String(s) => self.draw_string(s, lv, false, sc),
            Ty::Pointer(class, t) => self.draw_pointer(*class, ty, t, lv, sc),
            Ty::Descriptor => self.w.line(format!("{lv} = sj_random_fd(sj_r);")),
            Ty::Interface(r) => {
                let declared = r.interface.and_then(|i| self.model.m.interfaces.get(i.0 as usize));
                match declared {
                    Some(i) => {
                        let bytes: Vec<String> = i.uuid.iter().map(u8::to_string).collect();
                        self.w.open("");
                        self.w.line(format!(
                            "static const unsigned char sj_u[16] = {{{}}};",
                            bytes.join(", ")
                        ));
                        self.w.line(format!("sj_random_interface(sj_r, sj_u, &{lv});"));
                        self.w.close();
                    }
                    None => self.w.line(format!("sj_random_interface(sj_r, NULL, &{lv});")),
                }
            }
        }
    }

    fn draw_scalar(&mut self, s: Scalar, lv: &str) {
        let name = super::ctype::scalar_name(s);
        let width = 8 * crate::layout::scalar_size(s);
        self.w.line(match s {
            Scalar::Bool => format!("{lv} = sj_random_bits(sj_r, 1) != 0;"),
            Scalar::F32 | Scalar::F64 => format!("{lv} = sj_random_float(sj_r);"),
            _ => format!("{lv} = ({name})sj_random_bits(sj_r, {width});"),
        });
    }

    fn draw_named(&mut self, id: TypeId, lv: &str, sc: &Scope<'_>) {
        let name = self.model.type_name(id);
        match self.model.def(id).map(|d| &d.kind) {
            Some(TypeKind::Alias(t)) => self.draw(t, lv, sc),
            Some(TypeKind::Enum(e)) => {
                let values: Vec<String> = e
                    .members
                    .iter()
                    .map(|m| {
                        if m.value == i32::MIN {
                            "INT32_MIN".to_owned()
                        } else {
                            m.value.to_string()
                        }
                    })
                    .collect();
                self.w.open("");
                self.w.line(format!("static const int32_t sj_m[] = {{{}}};", values.join(", ")));
                self.w
                    .line(format!("{lv} = ({name})sj_m[sj_random_below(sj_r, {})];", values.len()));
                self.w.close();
            }
            Some(TypeKind::Struct(_) | TypeKind::Union(_)) => {
                self.w.line(format!("sj_draw_of_{name}(sj_r, &{lv});"));
            }
            Some(TypeKind::Opaque { size, .. }) => {
                self.w.line(format!("sj_random_bytes(sj_r, &{lv}, {size});"));
            }
            Some(TypeKind::ContextHandle) => self.w.line(format!("{lv} = NULL;")),
            None => {}
        }
    }

    fn draw_array(&mut self, a: &Array, ty: &Ty, lv: &str, in_buffer: bool, sc: &Scope<'_>) {
        let (whole, first, count) = self.array_numbers(a, sc);
        let k = self.fresh();
        let element = self.model.name(&a.element);
        let cast = self.model.name(ty);
        if in_buffer {
            self.w.line(format!("if (!{lv})"));
            self.w.line(format!(
                "    {lv} = ({cast})sj_random_memory(sj_r, (size_t){whole}, sizeof({element}));"
            ));
        } else {
            self.w.line(format!(
                "{lv} = ({cast})sj_random_memory(sj_r, (size_t){whole}, sizeof({element}));"
            ));
        }
        self.w.line("sj_r->depth++;");
        self.w.open(format!("for (int64_t sj_i{k} = 0; sj_i{k} < {count}; sj_i{k}++)"));
        self.draw(&a.element, &format!("{lv}[{first} + sj_i{k}]"), sc);
        self.w.close();
        self.w.line("sj_r->depth--;");
    }

    fn draw_string(&mut self, s: &crate::ir::StringTy, lv: &str, in_buffer: bool, sc: &Scope<'_>) {
        let bound =
            s.bound.as_ref().map_or("INT64_MAX".to_owned(), |b| self.model.expr(b, &sc.siblings));
        let f = if s.wide { "sj_random_wide" } else { "sj_random_string" };
        let to = if in_buffer { lv } else { "NULL" };
        self.w.line(format!("{lv} = {f}(sj_r, {bound}, {to});"));
    }

    fn draw_pointer(&mut self, class: PtrClass, ty: &Ty, t: &Ty, lv: &str, sc: &Scope<'_>) {
        let (name, cast) = (self.model.name(t), self.model.pointer(t));
        if self.model.is_header(t) {
            self.w.line(format!("{lv} = NULL;"));
            self.w.open("if (sj_random_present(sj_r))");
            match self.model.strip(t) {
                Ty::Array(a) => self.draw_array(a, ty, lv, false, sc),
                Ty::String(s) => self.draw_string(s, lv, false, sc),
                _ => {}
            }
            self.w.close();
            return;
        }
        match class {
            PtrClass::Ref => {
                let target = self.behind(ty, t, lv);
                self.draw(t, &target, sc);
            }
            PtrClass::Unique => {
                self.w.line(format!("{lv} = NULL;"));
                self.w.open("if (sj_random_present(sj_r))");
                let target = self.behind(ty, t, lv);
                self.w.line("sj_r->depth++;");
                self.draw(t, &target, sc);
                self.w.line("sj_r->depth--;");
                self.w.close();
            }
            PtrClass::Ptr => {
                let shared = match self.model.strip(t) {
                    Ty::Named(id)
                        if matches!(
                            self.model.def(*id).map(|d| &d.kind),
                            Some(TypeKind::Struct(_))
                        ) =>
                    {
                        Some(id.0)
                    }
                    _ => None,
                };
                self.w.line(format!("{lv} = NULL;"));
                self.w.open("if (sj_r->depth < 4)");
                self.w.line("const uint64_t sj_c = sj_random_bits(sj_r, 2);");
                if let Some(id) = shared {
                    self.w.line(format!("if (sj_c == 1 && sj_r->last[{id}])"));
                    self.w.line(format!("    {lv} = ({cast})sj_r->last[{id}];"));
                    self.w.open("else if (sj_c != 0)");
                } else {
                    self.w.open("if (sj_c != 0)");
                }
                self.w.line(format!("{lv} = ({cast})sj_random_memory(sj_r, 1, sizeof({name}));"));
                self.w.line("sj_r->depth++;");
                let target = self.model.target(t, lv);
                self.draw(t, &target, sc);
                self.w.line("sj_r->depth--;");
                if let Some(id) = shared {
                    self.w.line(format!("sj_r->last[{id}] = {lv};"));
                }
                self.w.close();
                self.w.close();
            }
        }
    }
}
