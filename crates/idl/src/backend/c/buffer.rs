//! Arrays and strings that a reply fills in the caller's memory (`Passing::Buffer`).
//!
//! The client knows the room from its own arguments, before the call changes any. The server makes
//! a buffer of the same room.

use crate::ir::{Expr, Ty};
use crate::layout;

use super::emit::{Emit, Scope};
use super::model::{Passing, visit_vars};
use super::op::{Direction, Op, Part};

impl Emit<'_> {
    /// Room of every buffer, in elements, before anything of the reply is stored.
    pub(super) fn buffer_capacities(&mut self, op: &Op<'_>) {
        let sc = op.scope();
        for part in op.parts(Direction::Reply) {
            if part.passing == Passing::Buffer {
                let room = self.room(&part, &sc);
                self.w.line(format!("const int64_t sj_room_{} = {room};", part.name));
            }
        }
    }

    /// C expression of the number of elements a buffer has.
    pub(super) fn room(&self, part: &Part<'_>, sc: &Scope<'_>) -> String {
        match self.model.resolve(part.ty) {
            Ty::Array(a) => self.model.expr(&a.size, &sc.siblings),
            Ty::String(s) => match &s.bound {
                Some(b) => self.model.expr(b, &sc.siblings),
                None if s.wide => format!("(int64_t)sj_wide_length({}) + 1", part.lv),
                None => format!("(int64_t)strlen({}) + 1", part.lv),
            },
            _ => "0".to_owned(),
        }
    }

    pub(super) fn buffer_get(&mut self, part: &Part<'_>, o: &str) {
        let (lv, room) = (&part.lv, format!("sj_room_{}", part.name));
        match self.model.resolve(part.ty) {
            Ty::String(s) => {
                let width = if s.wide { 2 } else { 1 };
                self.w.require(format!(
                    "{room} > 0 && sj_fill_string(sj_d, sj_p + {o}, {width}, (size_t){room}, {lv})"
                ));
            }
            Ty::Array(a) => {
                let flat =
                    self.model.is_plain(&a.element) && layout::is_flat(self.model.m, &a.element);
                let (valid, whole, first) = if layout::is_varying(a) {
                    ("sj_varying_is_valid", 8, format!(" + sj_ld32(sj_p + {o} + 12)"))
                } else {
                    ("sj_header_is_valid", 0, String::new())
                };
                self.w.require(format!("{valid}(sj_p + {o}, false, {flat})"));
                self.w.require(format!("(int64_t)sj_ld32(sj_p + {o} + {whole}) <= {room}"));
                if flat {
                    let size = self.model.size(&a.element);
                    self.w.require(format!("sj_fill_flat(sj_d, sj_p + {o}, {size}, {lv}{first})"));
                }
            }
            _ => {}
        }
    }

    pub(super) fn buffer_get_more(&mut self, part: &Part<'_>, o: &str, sc: &Scope<'_>) {
        let lv = &part.lv;
        match self.model.resolve(part.ty) {
            Ty::String(s) => {
                let width = if s.wide { 2 } else { 1 };
                self.w.require(format!("sj_fill_string_more(sj_d, sj_p + {o}, {width}, {lv})"));
            }
            Ty::Array(a) => {
                let k = self.fresh();
                self.w.open(format!("if (sj_ld32(sj_p + {o} + 4) == 1)"));
                self.w.line(format!("const uint32_t sj_n{k} = sj_ld32(sj_p + {o});"));
                self.w.line(format!("const unsigned char *sj_q{k};"));
                let first = if layout::is_varying(a) {
                    self.w.line(format!("const size_t sj_first{k} = sj_ld32(sj_p + {o} + 12);"));
                    format!("sj_first{k} + ")
                } else {
                    String::new()
                };
                if self.model.is_plain(&a.element) {
                    let size = self.model.size(&a.element);
                    let to = format!(
                        "{lv} + {}",
                        if first.is_empty() { "0" } else { first.trim_end_matches(" + ") }
                    );
                    self.w.require(format!(
                        "sj_fill_elements(sj_d, sj_n{k}, {size}, &sj_q{k}, {to})"
                    ));
                    self.check_array(&a.element, k);
                } else {
                    self.bound_empty(self.model.size(&a.element), k);
                    self.get_elements(&a.element, lv, &first, k, sc);
                }
                self.w.close();
            }
            _ => {}
        }
    }

    /// `in, out` strings with a bound: the implementation may use all of it.
    pub(super) fn roomy_strings(&mut self, op: &Op<'_>, parts: &[Part<'_>]) {
        let sc = op.scope();
        for part in parts.iter().filter(|p| p.passing == Passing::Buffer) {
            let Ty::String(s) = self.model.resolve(part.ty) else { continue };
            if s.bound.is_none() {
                continue;
            }
            let room = self.room(part, &sc);
            let (width, cast) = if s.wide { (2, "uint16_t *") } else { (1, "char *") };
            self.w.open("");
            self.w
                .line(format!("void *sj_t = sj_dec_array_zeroed(sj_d, (size_t){room}, {width});"));
            self.w.require("sj_t != NULL");
            self.w.line(format!(
                "sj_copy_any(sj_t, {}, ((size_t)sj_ld32(sj_p + {}) + 1) * {width});",
                part.lv, part.offset
            ));
            self.w.line(format!("{} = ({cast})sj_t;", part.lv));
            self.w.close();
        }
    }

    /// The server's buffers for what is only `out`: zero, so that nothing else is told to the
    /// client.
    pub(super) fn server_buffers(&mut self, op: &Op<'_>) {
        let sc = op.scope();
        for part in op.parts(Direction::Reply) {
            let only_out = part.param.is_some_and(|p| !p.is_in());
            if part.passing != Passing::Buffer || !only_out {
                continue;
            }
            let room = self.room(&part, &sc);
            let (element, cast) = match self.model.resolve(part.ty) {
                Ty::Array(a) => (self.model.name(&a.element), self.model.name(part.ty)),
                Ty::String(s) if s.wide => ("uint16_t".to_owned(), "uint16_t *".to_owned()),
                _ => ("char".to_owned(), "char *".to_owned()),
            };
            self.w.open("");
            self.w.line(format!("const int64_t sj_n = {room};"));
            self.w.line("if (sj_n < 0 || sj_n > (int64_t)UINT32_MAX)");
            self.w.line("    return SJ_OUTCOME_VIOLATION;");
            self.w.line(format!(
                "{} = ({cast})sj_arena_zeroed(&sj_s->arena, (size_t)sj_n * sizeof({element}));",
                part.lv
            ));
            self.w.line(format!("if (!{})", part.lv));
            self.w.line("    return SJ_FAULT_NO_RESOURCES;");
            self.w.close();
        }
    }

    /// Buffers whose size an implementation may have changed: before the call.
    pub(super) fn server_rooms(&mut self, op: &Op<'_>) -> Vec<(String, String)> {
        let sc = op.scope();
        let mut all = Vec::new();
        for part in op.parts(Direction::Reply) {
            let Ty::Array(a) = self.model.resolve(part.ty) else { continue };
            if part.passing != Passing::Buffer || !self.mentions_out(op, &a.size) {
                continue;
            }
            let room = self.room(&part, &sc);
            let name = format!("sj_room_{}", part.name);
            self.w.line(format!("const int64_t {name} = {room};"));
            all.push((name, room));
        }
        all
    }

    fn mentions_out(&self, op: &Op<'_>, e: &Expr) -> bool {
        let mut any = false;
        visit_vars(e, &mut |i| any |= op.op.params.get(i as usize).is_some_and(|p| p.is_out()));
        any
    }
}
