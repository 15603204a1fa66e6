//! Emission of the functions that build and take apart the bodies of an operation's messages.

use crate::ir::{Allocate, PtrClass, Ty};
use crate::layout;

use super::emit::{Emit, Scope};
use super::encode::{HeaderCall, width};
use super::model::Passing;
use super::op::{Direction, Op, Part};
use super::template::{Code, c};
use super::text::{path, require, require_zeroes, zero_padding};

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
    pub(super) fn body_encoder(&mut self, op: &Op<'_>, way: Direction) -> Code {
        if op.is_planned(way) {
            let plan = self.plan_struct(op, way) + &self.plan_function(op, way);
            plan + &self.planned_put(op, way)
        } else {
            self.growing_put(op, way)
        }
    }

    fn plan_struct(&self, op: &Op<'_>, way: Direction) -> Code {
        let parts = op.parts(way);
        let headers = parts
            .iter()
            .filter(|p| matches!(self.planned(p.ty), Planned::Array(..) | Planned::String(..)));
        c!(
            "

            struct sj_of_$name_$way_plan {
                size_t size;
                $numbers
            };
            ",
            name = op.name(),
            way = way.name(),
            numbers =
                headers.map(|p| c!("uint32_t n_$name, f_$name;", name = p.name)).collect::<Code>(),
        )
    }

    fn plan_function(&mut self, op: &Op<'_>, way: Direction) -> Code {
        let mut plans = Code::new();
        for part in op.parts(way) {
            plans += &require_pointer(&part);
            plans += &self.check_range(part.ty, &part.lv, part.range);
            plans += &self.plan_part(&part, &op.part_scope(&part, way));
        }
        c!(
            "

            SJ_INLINE bool sj_of_$name_$way_plan(const sj_enc *sj_e, const $args *sj_v, struct sj_of_$name_$way_plan *sj_r)
            {
                (void)sj_e, (void)sj_v;
                sj_r->size = $size;
                $plans
                return true;
            }
            ",
            name = op.name(),
            way = way.name(),
            args = op.args(),
            size = op.layout(way).size,
            plans,
        )
    }

    fn plan_part(&mut self, part: &Part<'_>, sc: &Scope<'_>) -> Code {
        let outs = format!("&sj_r->n_{0}, &sj_r->f_{0}", part.name);
        let (n, f) = (format!("sj_r->n_{}", part.name), format!("sj_r->f_{}", part.name));
        match self.planned(part.ty) {
            Planned::Array(a, nullable) => {
                let first = self.first_element(a, &part.lv, sc);
                c!(
                    "
                    if (SJ_UNLIKELY(!($plan)))
                        return false;
                    $check
                    sj_r->size += $f == 1 ? sj_pad8((size_t)$n * $size) : 0;
                    ",
                    plan = self.plan_array(a, &part.lv, nullable, sc, &outs),
                    check = self.check_elements(&a.element, &format!("({first})"), &n),
                    f,
                    n,
                    size = self.model.size(&a.element),
                )
            }
            Planned::String(s, nullable) => c!(
                "
                if (SJ_UNLIKELY(!($plan)))
                    return false;
                sj_r->size += $f == 1 ? sj_pad8(((size_t)$n + 1) * $width) : 0;
                ",
                plan = self.plan_string(s, &part.lv, nullable, sc, &outs),
                f,
                n,
                width = width(s),
            ),
            Planned::Unique(t) => {
                let target = self.model.target(t, &part.lv);
                c!(
                    "
                    if ($lv) {
                        $check
                        sj_r->size += $size;
                    }
                    ",
                    lv = part.lv,
                    check = self.check_value(t, &target),
                    size = layout::round_up(self.model.size(t), layout::OBJECT_ALIGN),
                )
            }
            Planned::InPlace => self.check_value(part.ty, &part.lv),
        }
    }

    fn first_element(&self, a: &crate::ir::Array, lv: &str, sc: &Scope<'_>) -> String {
        if layout::is_varying(a) {
            format!("{lv} + {}", self.array_numbers(a, sc).first)
        } else {
            lv.to_owned()
        }
    }

    fn planned_put(&mut self, op: &Op<'_>, way: Direction) -> Code {
        let (mut places, mut objects) = (Code::new(), Code::new());
        for part in op.parts(way) {
            places += &self.planned_in_place(&part, &op.part_scope(&part, way));
        }
        for part in op.parts(way) {
            let sc = Scope { planned: true, ..op.part_scope(&part, way) };
            objects += &self.planned_object(&part, &sc);
        }
        c!(
            "

            SJ_INLINE bool sj_of_$name_$way_put(sj_enc *sj_e, const $args *sj_v, const struct sj_of_$name_$way_plan *sj_r)
            {
                unsigned char *sj_p = sj_e->body;
                (void)sj_p, (void)sj_v, (void)sj_r;
                $places
                $zero
                $objects
                return true;
            }
            ",
            name = op.name(),
            way = way.name(),
            args = op.args(),
            places,
            zero = zero_padding(&op.layout(way).padding),
            objects,
        )
    }

    fn planned_in_place(&mut self, part: &Part<'_>, sc: &Scope<'_>) -> Code {
        let (o, lv) = (part.offset.to_string(), &part.lv);
        let (n, f) = (format!("sj_r->n_{}", part.name), format!("sj_r->f_{}", part.name));
        match self.planned(part.ty) {
            Planned::Array(a, _) => {
                let call = HeaderCall { function: "sj_put_planned", n: &n, form: &f };
                self.array_header(a, lv, call, &o, sc)
            }
            Planned::String(s, _) => c!(
                "sj_put_planned(sj_e, sj_p + $o, $lv, $n, $f, ((size_t)$n + 1) * $width);",
                o,
                lv,
                n,
                f,
                width = width(s),
            ),
            Planned::Unique(_) => c!("sj_st64(sj_p + $o, $lv != NULL);", o, lv),
            Planned::InPlace if self.model.has_wire_layout(part.ty) => self.store(part.ty, lv, &o),
            Planned::InPlace => self.put(part.ty, lv, &o, sc),
        }
    }

    fn planned_object(&mut self, part: &Part<'_>, sc: &Scope<'_>) -> Code {
        let (n, f) = (format!("sj_r->n_{}", part.name), format!("sj_r->f_{}", part.name));
        match self.planned(part.ty) {
            Planned::Array(a, _) => {
                let first = self.first_element(a, &part.lv, sc);
                c!(
                    "
                    if ($f == 1) {
                        $elements
                    }
                    ",
                    f,
                    elements = self.elements(&a.element, &first, &n, sc),
                )
            }
            Planned::String(s, _) => c!(
                "
                if ($f == 1) {
                    sj_planned_bytes(sj_e, $lv, ((size_t)$n + 1) * $width);
                }
                ",
                f,
                lv = part.lv,
                n,
                width = width(s),
            ),
            Planned::Unique(t) => {
                let target = self.model.target(t, &part.lv);
                self.pointee(t, &target, &format!("if ({}) ", part.lv), sc)
            }
            Planned::InPlace => Code::new(),
        }
    }

    fn growing_put(&mut self, op: &Op<'_>, way: Direction) -> Code {
        let l = op.layout(way);
        let (mut puts, mut mores) = (Code::new(), Code::new());
        for part in op.parts(way) {
            let sc = op.part_scope(&part, way);
            puts += &require_pointer(&part);
            puts += &self.check_range(part.ty, &part.lv, part.range);
            puts += &self.put(part.ty, &part.lv, &part.offset.to_string(), &sc);
        }
        for part in op.parts(way) {
            let sc = op.part_scope(&part, way);
            mores += &self.more(part.ty, &part.lv, &part.offset.to_string(), &sc);
        }
        c!(
            "

            static inline bool sj_of_$name_$way_put(sj_enc *sj_e, const $args *sj_v)
            {
                size_t sj_at;
                if (SJ_UNLIKELY(!(sj_enc_object(sj_e, $size, &sj_at))))
                    return false;
                unsigned char *sj_p = sj_e->body + sj_at;
                (void)sj_p, (void)sj_v;
                $puts
                $zero
                $mores
                return true;
            }
            ",
            name = op.name(),
            way = way.name(),
            args = op.args(),
            size = l.size,
            puts,
            zero = zero_padding(&l.padding),
            mores,
        )
    }

    /// Decoder of one direction into the argument structure.
    pub(super) fn body_decoder(&mut self, op: &Op<'_>, way: Direction) -> Code {
        let (l, parts) = (op.layout(way), op.parts(way));
        // Nothing but copies and checks: what is left in line of a decoder's state is nothing.
        let has_wire_layout = parts.iter().all(|p| self.model.has_wire_layout(p.ty));
        let begins = if op.is_fixed(way) {
            format!("sj_dec_is_exactly(sj_d->in, {})", l.size)
        } else {
            format!("sj_dec_primary(sj_d, {})", l.size)
        };
        let capacities =
            if way == Direction::Reply { self.buffer_capacities(op) } else { Code::new() };
        c!(
            "

            $inline bool sj_of_$name_$way_get(sj_dec *sj_d, $args *sj_v)
            {
                const unsigned char *sj_p = sj_d->body;
                (void)sj_p, (void)sj_v;
                $capacities
                if (SJ_UNLIKELY(!($begins)))
                    return false;
                $padding
                $parts
                return $done;
            }
            ",
            inline = if has_wire_layout { "SJ_INLINE" } else { "static inline" },
            name = op.name(),
            way = way.name(),
            args = op.args(),
            capacities,
            begins,
            padding = require_zeroes(&l.padding),
            parts = self.decode_parts(op, way),
            done = if op.is_fixed(way) { "true" } else { "sj_dec_done(sj_d)" },
        )
    }

    /// Reads everything in place, then secondary objects, then checks that sizes agree.
    fn decode_parts(&mut self, op: &Op<'_>, way: Direction) -> Code {
        let parts = op.parts(way);
        let mut out = Code::new();
        for part in &parts {
            out += &self.in_memory(op, part, way, |x| x.part_get(op, part, way));
        }
        for part in &parts {
            out += &self.in_memory(op, part, way, |x| x.part_get_more(op, part, way));
        }
        for part in &parts {
            let sc = op.part_scope(part, way);
            out += &self.agree(part.ty, &part.offset.to_string(), &sc);
        }
        if way == Direction::Request {
            out += &self.roomy_strings(op, &parts);
        }
        out
    }

    /// What decodes a part, with its memory in the place of the decoder's.
    fn in_memory<'o>(
        &mut self,
        op: &Op<'o>,
        part: &Part<'o>,
        way: Direction,
        emit: impl FnOnce(&mut Self) -> Code,
    ) -> Code {
        let (arena, provider) = match op.memory(part).filter(|_| way == Direction::Reply) {
            Some(Allocate::Pool(pool)) => (format!("&{}", path(pool)), "NULL".to_owned()),
            Some(Allocate::Fn(function)) => ("sj_d->arena".to_owned(), path(function)),
            _ => return emit(self),
        };
        let k = self.fresh();
        c!(
            "
            const sj_dec_memory sj_m$k = sj_dec_use(sj_d, $arena, $provider);
            $decode
            sj_dec_return(sj_d, &sj_m$k);
            ",
            k,
            arena,
            provider,
            decode = emit(self),
        )
    }

    fn part_get(&mut self, op: &Op<'_>, part: &Part<'_>, way: Direction) -> Code {
        let mut sc = op.part_scope(part, way);
        let o = part.offset.to_string();
        let is_inout = part.param.is_some_and(|p| p.is_in() && p.is_out());
        if way == Direction::Request {
            sc.copy = is_inout;
        }
        let get = match (way, part.passing) {
            (Direction::Reply, Passing::Buffer) => self.buffer_get(part, &o),
            (Direction::Request, Passing::Pointer) if !is_inout => {
                self.get_target(part.ty, &format!("sj_v->{}", part.name), &o, &sc)
            }
            (Direction::Request, Passing::Decayed) if !is_inout => {
                let fixed = self.model.resolve(part.ty);
                self.get_target(fixed, &part.lv, &o, &sc)
            }
            _ => self.get(part.ty, &part.lv, &o, &sc),
        };
        get + &self.check_range(part.ty, &part.lv, part.range)
    }

    fn part_get_more(&mut self, op: &Op<'_>, part: &Part<'_>, way: Direction) -> Code {
        let mut sc = op.part_scope(part, way);
        let o = part.offset.to_string();
        if way == Direction::Request {
            sc.copy = part.param.is_some_and(|p| p.is_in() && p.is_out());
        }
        if way == Direction::Reply && part.passing == Passing::Buffer {
            self.buffer_get_more(part, &o, &sc)
        } else {
            self.get_more(part.ty, &part.lv, &o, &sc)
        }
    }
}

/// Pointers that must not be null.
fn require_pointer(part: &Part<'_>) -> Code {
    match part.passing {
        Passing::Pointer | Passing::Decayed => require(format!("sj_v->{} != NULL", part.name)),
        _ => Code::new(),
    }
}
