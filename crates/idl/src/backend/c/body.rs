//! Emission of the functions that build and take apart the bodies of an operation's messages.

use crate::ir::{Allocate, PtrClass, Ty};
use crate::layout;

use super::emit::{Emit, Scope};
use super::model::Passing;
use super::op::{Direction, Op, Part};
use super::text::path;

/// What an out-of-line part of a planned body is.
enum Planned<'t> {
    Array(&'t crate::ir::Array, bool),
    String(&'t crate::ir::StringTy, bool),
    Unique(&'t Ty),
    InPlace,
}

impl Emit<'_> {
    fn planned<'t>(&self, ty: &'t Ty) -> Planned<'t>
    where
        Self: 't,
    {
        match self.model.resolve(ty) {
            Ty::Array(a) => Planned::Array(a, false),
            Ty::String(s) => Planned::String(s, false),
            Ty::Pointer(class, t) if self.model.is_header(t) => match self.model.resolve(t) {
                Ty::Array(a) => Planned::Array(a, *class != PtrClass::Ref),
                Ty::String(s) => Planned::String(s, *class != PtrClass::Ref),
                _ => Planned::InPlace,
            },
            Ty::Pointer(PtrClass::Unique, t) => Planned::Unique(t),
            _ => Planned::InPlace,
        }
    }

    /// Encoder of one direction: with a plan or growing.
    pub(super) fn body_encoder(&mut self, op: &Op<'_>, way: Direction) {
        if op.is_planned(way) {
            self.plan_struct(op, way);
            self.plan_function(op, way);
            self.planned_put(op, way);
        } else {
            self.growing_put(op, way);
        }
    }

    fn plan_struct(&mut self, op: &Op<'_>, way: Direction) {
        self.w.blank();
        self.w.open(format!("struct sj_of_{}_{}_plan", op.name(), way.name()));
        self.w.line("size_t size;");
        for part in op.parts(way) {
            if matches!(self.planned(part.ty), Planned::Array(..) | Planned::String(..)) {
                self.w.line(format!("uint32_t n_{0}, f_{0};", part.name));
            }
        }
        self.w.close_with(";");
    }

    /// Pointers that must not be null.
    fn require_pointer(&mut self, part: &Part<'_>) {
        if matches!(part.passing, Passing::Pointer | Passing::Decayed) {
            self.w.require(format!("sj_v->{} != NULL", part.name));
        }
    }

    fn plan_function(&mut self, op: &Op<'_>, way: Direction) {
        let (name, args) = (op.name(), op.args());
        let way_name = way.name();
        self.w.blank();
        self.w.function(format!(
            "SJ_INLINE bool sj_of_{name}_{way_name}_plan(const sj_enc *sj_e, const {args} *sj_v, struct sj_of_{name}_{way_name}_plan *sj_r)"
        ));
        self.w.line("(void)sj_e, (void)sj_v;");
        self.w.line(format!("sj_r->size = {};", op.layout(way).size));
        for part in op.parts(way) {
            let sc = op.part_scope(&part, way);
            self.require_pointer(&part);
            self.check_range(part.ty, &part.lv, part.range);
            let outs = format!("&sj_r->n_{0}, &sj_r->f_{0}", part.name);
            let (n, f) = (format!("sj_r->n_{}", part.name), format!("sj_r->f_{}", part.name));
            match self.planned(part.ty) {
                Planned::Array(a, nullable) => {
                    let plan = self.plan_array(a, &part.lv, nullable, &sc, &outs);
                    self.w.require(plan);
                    let first = self.first_element(a, &part.lv, &sc);
                    self.check_elements(&a.element, &format!("({first})"), &n);
                    let size = self.model.size(&a.element);
                    self.w.line(format!(
                        "sj_r->size += {f} == 1 ? sj_pad8((size_t){n} * {size}) : 0;"
                    ));
                }
                Planned::String(s, nullable) => {
                    let plan = self.plan_string(s, &part.lv, nullable, &sc, &outs);
                    let width = if s.wide { 2 } else { 1 };
                    self.w.require(plan);
                    self.w.line(format!(
                        "sj_r->size += {f} == 1 ? sj_pad8(((size_t){n} + 1) * {width}) : 0;"
                    ));
                }
                Planned::Unique(t) => {
                    let target = self.model.target(t, &part.lv);
                    let size = layout::round_up(self.model.size(t), layout::OBJECT_ALIGN);
                    self.w.open(format!("if ({})", part.lv));
                    self.check_value(t, &target);
                    self.w.line(format!("sj_r->size += {size};"));
                    self.w.close();
                }
                Planned::InPlace => self.check_value(part.ty, &part.lv),
            }
        }
        self.w.line("return true;");
        self.w.close();
    }

    fn first_element(&self, a: &crate::ir::Array, lv: &str, sc: &Scope<'_>) -> String {
        if layout::is_varying(a) {
            format!("{lv} + {}", self.array_numbers(a, sc).1)
        } else {
            lv.to_owned()
        }
    }

    fn planned_put(&mut self, op: &Op<'_>, way: Direction) {
        let (name, args) = (op.name(), op.args());
        let way_name = way.name();
        self.w.blank();
        self.w.function(format!(
            "SJ_INLINE bool sj_of_{name}_{way_name}_put(sj_enc *sj_e, const {args} *sj_v, const struct sj_of_{name}_{way_name}_plan *sj_r)"
        ));
        self.w.line("unsigned char *sj_p = sj_e->body;");
        self.w.line("(void)sj_p, (void)sj_v, (void)sj_r;");
        for part in op.parts(way) {
            let sc = op.part_scope(&part, way);
            self.planned_in_place(&part, &sc);
        }
        self.zero_padding(&op.layout(way).padding);
        for part in op.parts(way) {
            let sc = Scope { planned: true, ..op.part_scope(&part, way) };
            self.planned_object(&part, &sc);
        }
        self.w.line("return true;");
        self.w.close();
    }

    fn planned_in_place(&mut self, part: &Part<'_>, sc: &Scope<'_>) {
        let o = part.offset.to_string();
        let (n, f) = (format!("sj_r->n_{}", part.name), format!("sj_r->f_{}", part.name));
        match self.planned(part.ty) {
            Planned::Array(a, _) => {
                self.array_header(a, &part.lv, ("sj_put_planned", &n, &f), &o, sc);
            }
            Planned::String(s, _) => {
                let width = if s.wide { 2 } else { 1 };
                self.w.line(format!(
                    "sj_put_planned(sj_e, sj_p + {o}, {}, {n}, {f}, ((size_t){n} + 1) * {width});",
                    part.lv
                ));
            }
            Planned::Unique(_) => {
                self.w.line(format!("sj_st64(sj_p + {o}, {} != NULL);", part.lv));
            }
            Planned::InPlace if self.model.is_plain(part.ty) => self.store(part.ty, &part.lv, &o),
            Planned::InPlace => self.put(part.ty, &part.lv, &o, sc),
        }
    }

    fn planned_object(&mut self, part: &Part<'_>, sc: &Scope<'_>) {
        let (n, f) = (format!("sj_r->n_{}", part.name), format!("sj_r->f_{}", part.name));
        match self.planned(part.ty) {
            Planned::Array(a, _) => {
                self.w.open(format!("if ({f} == 1)"));
                let first = self.first_element(a, &part.lv, sc);
                self.elements(&a.element, &first, &n, sc);
                self.w.close();
            }
            Planned::String(s, _) => {
                let width = if s.wide { 2 } else { 1 };
                self.w.open(format!("if ({f} == 1)"));
                self.w.line(format!(
                    "sj_planned_bytes(sj_e, {}, ((size_t){n} + 1) * {width});",
                    part.lv
                ));
                self.w.close();
            }
            Planned::Unique(t) => {
                let target = self.model.target(t, &part.lv);
                self.pointee(t, &target, &format!("if ({})", part.lv), sc);
            }
            Planned::InPlace => {}
        }
    }

    fn growing_put(&mut self, op: &Op<'_>, way: Direction) {
        let l = op.layout(way);
        self.w.blank();
        self.w.function(format!(
            "static inline bool sj_of_{}_{}_put(sj_enc *sj_e, const {} *sj_v)",
            op.name(),
            way.name(),
            op.args()
        ));
        self.w.line("size_t sj_at;");
        self.w.require(format!("sj_enc_object(sj_e, {}, &sj_at)", l.size));
        self.w.line("unsigned char *sj_p = sj_e->body + sj_at;");
        self.w.line("(void)sj_p, (void)sj_v;");
        for part in op.parts(way) {
            let sc = op.part_scope(&part, way);
            self.require_pointer(&part);
            self.check_range(part.ty, &part.lv, part.range);
            self.put(part.ty, &part.lv, &part.offset.to_string(), &sc);
        }
        self.zero_padding(&l.padding);
        for part in op.parts(way) {
            let sc = op.part_scope(&part, way);
            self.more(part.ty, &part.lv, &part.offset.to_string(), &sc);
        }
        self.w.line("return true;");
        self.w.close();
    }

    /// Decoder of one direction into the argument structure.
    pub(super) fn body_decoder(&mut self, op: &Op<'_>, way: Direction) {
        let l = op.layout(way);
        let parts = op.parts(way);
        // Nothing but copies and checks: what is left in line of a decoder's state is nothing.
        let is_plain = parts.iter().all(|p| self.model.is_plain(p.ty));
        self.w.blank();
        self.w.function(format!(
            "{} bool sj_of_{}_{}_get(sj_dec *sj_d, {} *sj_v)",
            if is_plain { "SJ_INLINE" } else { "static inline" },
            op.name(),
            way.name(),
            op.args()
        ));
        self.w.line("const unsigned char *sj_p = sj_d->body;");
        self.w.line("(void)sj_p, (void)sj_v;");
        if way == Direction::Reply {
            self.buffer_capacities(op);
        }
        if op.is_fixed(way) {
            self.w.require(format!("sj_dec_is_exactly(sj_d->in, {})", l.size));
        } else {
            self.w.require(format!("sj_dec_primary(sj_d, {})", l.size));
        }
        for (o, n) in &l.padding {
            self.w.require(format!("sj_is_zero(sj_p + {o}, {n})"));
        }
        for part in &parts {
            self.in_memory(op, part, way, |x| x.part_get(op, part, way));
        }
        for part in &parts {
            self.in_memory(op, part, way, |x| x.part_get_more(op, part, way));
        }
        for part in &parts {
            let sc = op.part_scope(part, way);
            self.agree(part.ty, &part.offset.to_string(), &sc);
        }
        if way == Direction::Request {
            self.roomy_strings(op, &parts);
        }
        if op.is_fixed(way) {
            self.w.line("return true;");
        } else {
            self.w.line("return sj_dec_done(sj_d);");
        }
        self.w.close();
    }

    /// Emits what decodes a part, with its memory in the place of the decoder's.
    fn in_memory<'o>(
        &mut self,
        op: &Op<'o>,
        part: &Part<'o>,
        way: Direction,
        emit: impl FnOnce(&mut Self),
    ) {
        let (arena, provider) = match op.memory(part).filter(|_| way == Direction::Reply) {
            Some(Allocate::Pool(pool)) => (format!("&{}", path(pool)), "NULL".to_owned()),
            Some(Allocate::Fn(function)) => ("sj_d->arena".to_owned(), path(function)),
            _ => return emit(self),
        };
        let k = self.fresh();
        self.w
            .line(format!("const sj_dec_memory sj_m{k} = sj_dec_use(sj_d, {arena}, {provider});"));
        emit(self);
        self.w.line(format!("sj_dec_return(sj_d, &sj_m{k});"));
    }

    fn part_get(&mut self, op: &Op<'_>, part: &Part<'_>, way: Direction) {
        let mut sc = op.part_scope(part, way);
        let o = part.offset.to_string();
        let is_inout = part.param.is_some_and(|p| p.is_in() && p.is_out());
        if way == Direction::Request {
            sc.copy = is_inout;
        }
        match (way, part.passing) {
            (Direction::Reply, Passing::Buffer) => self.buffer_get(part, &o),
            (Direction::Request, Passing::Pointer) if !is_inout => {
                self.get_target(part.ty, &format!("sj_v->{}", part.name), &o, &sc);
            }
            (Direction::Request, Passing::Decayed) if !is_inout => {
                let fixed = self.model.resolve(part.ty);
                self.get_target(fixed, &part.lv, &o, &sc);
            }
            _ => self.get(part.ty, &part.lv, &o, &sc),
        }
        self.check_range(part.ty, &part.lv, part.range);
    }

    fn part_get_more(&mut self, op: &Op<'_>, part: &Part<'_>, way: Direction) {
        let mut sc = op.part_scope(part, way);
        let o = part.offset.to_string();
        if way == Direction::Request {
            sc.copy = part.param.is_some_and(|p| p.is_in() && p.is_out());
        }
        if way == Direction::Reply && part.passing == Passing::Buffer {
            self.buffer_get_more(part, &o, &sc);
        } else {
            self.get_more(part.ty, &part.lv, &o, &sc);
        }
    }
}
