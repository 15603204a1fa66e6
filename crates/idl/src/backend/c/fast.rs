//! The short way into a server: requests whose parts all lie in the body, taken apart without a
//! decoder's state.
//!
//! What it accepts, the decoder of `body` accepts, with the same values; the rest it leaves to that
//! one. So nothing is refused here and nothing allocated, and the tests compare the two on mutated
//! bodies. Read `body` first.

use crate::ir::{Array, Param, PtrClass, StringTy, Ty};
use crate::layout;

use super::decode::characters;
use super::emit::Emit;
use super::encode::width;
use super::model::Passing;
use super::op::{Direction, Op, Part};
use super::template::{Code, c};
use super::text::{require, require_zeroes};

/// Larger elements are left to the decoder: a count times this cannot overflow.
const ELEMENT_MAX: u64 = 1 << 30;

/// What a part is to the short way.
enum Short<'t> {
    Plain,
    Array(&'t Array),
    String(&'t StringTy),
}

fn is_inout(part: &Part<'_>) -> bool {
    part.param.is_some_and(|p| p.is_in() && p.is_out())
}

impl Op<'_> {
    /// Returns true if requests of this operation have a short way: at least one array or string,
    /// and nothing that needs memory.
    pub(super) fn has_short_way(&self) -> bool {
        let parts = self.parts(Direction::Request);
        self.op.acf.max_message.is_none()
            && !self.op.params.iter().any(|p: &Param| p.dir == crate::ir::Dir::InOut)
            && parts.iter().all(|p| self.short(p.ty).is_some())
            && parts.iter().any(|p| !matches!(self.short(p.ty), Some(Short::Plain)))
    }

    fn short<'t>(&'t self, ty: &'t Ty) -> Option<Short<'t>> {
        let model = self.model;
        if model.has_wire_layout(ty) {
            return Some(Short::Plain);
        }
        let header = match model.resolve(ty) {
            Ty::Pointer(class, t) if *class != PtrClass::Ref && model.is_header(t) => {
                model.resolve(t)
            }
            other => other,
        };
        match header {
            Ty::String(s) => Some(Short::String(s)),
            Ty::Array(a)
                if model.has_wire_layout(&a.element)
                    && !layout::is_varying(a)
                    && (1..=ELEMENT_MAX).contains(&model.size(&a.element)) =>
            {
                Some(Short::Array(a))
            }
            _ => None,
        }
    }
}

impl Emit<'_> {
    /// `sj_OP_request_short`: false says nothing about the request.
    pub(super) fn short_decoder(&mut self, op: &Op<'_>) -> Code {
        if !op.has_short_way() {
            return Code::new();
        }
        let l = op.layout(Direction::Request);
        let parts = op.parts(Direction::Request);
        let (mut plain, mut others) = (Code::new(), Code::new());
        for part in &parts {
            if matches!(op.short(part.ty), Some(Short::Plain)) {
                plain += &self.short_plain(op, part);
            }
        }
        for part in &parts {
            others += &match op.short(part.ty) {
                Some(Short::Array(a)) => self.short_array(op, part, a),
                Some(Short::String(s)) => self.short_string(op, part, s),
                _ => Code::new(),
            };
        }
        c!(
            "

            SJ_INLINE bool sj_of_$name_request_short(const sj_in *sj_m, $args *sj_v)
            {
                const unsigned char *sj_p = sj_m->body;
                size_t sj_q = $size;
                if (SJ_UNLIKELY(!(sj_m->body_len >= sj_q && (sj_m->n_items | sj_m->n_fds | sj_m->n_grants) == 0)))
                    return false;
                $padding
                $plain
                $others
                return sj_q == sj_m->body_len;
            }
            ",
            name = op.name(),
            args = op.args(),
            size = l.size,
            padding = require_zeroes(&l.padding),
            plain,
            others,
        )
    }

    /// A value in place: where it is, if it is passed by pointer.
    fn short_plain(&mut self, op: &Op<'_>, part: &Part<'_>) -> Code {
        let o = part.offset.to_string();
        let value =
            if matches!(part.passing, Passing::Pointer | Passing::Decayed) && !is_inout(part) {
                let ty = match part.passing {
                    Passing::Decayed => self.model.resolve(part.ty),
                    _ => part.ty,
                };
                c!(
                    "
                $check
                sj_v->$name = ($cast)(uintptr_t)(sj_p + $o);
                ",
                    check = self.check_bytes(ty, &o, "true"),
                    name = part.name,
                    cast = self.model.pointer(ty),
                    o,
                )
            } else {
                let sc = op.part_scope(part, Direction::Request);
                self.get(part.ty, &part.lv, &o, &sc)
            };
        value + &self.check_range(part.ty, &part.lv, part.range)
    }

    fn short_array(&mut self, op: &Op<'_>, part: &Part<'_>, a: &Array) -> Code {
        let k = self.fresh();
        let sc = op.part_scope(part, Direction::Request);
        c!(
            "
            const uint32_t sj_n$k = sj_ld32(sj_p + $o);
            const unsigned char *sj_q$k;
            if (SJ_UNLIKELY(!(sj_ld32(sj_p + $o + 4) == 1 && (int64_t)sj_n$k == $count)))
                return false;
            if (SJ_UNLIKELY(!(sj_short_object(sj_m, (size_t)sj_n$k * $size, &sj_q, &sj_q$k))))
                return false;
            $check
            $lv = ($cast)(uintptr_t)sj_q$k;
            ",
            k,
            o = part.offset,
            count = self.array_numbers(a, &sc).count,
            size = self.model.size(&a.element),
            check = self.check_array(&a.element, k),
            lv = part.lv,
            cast = self.model.name(part.ty),
        )
    }

    fn short_string(&mut self, op: &Op<'_>, part: &Part<'_>, s: &StringTy) -> Code {
        let k = self.fresh();
        let sc = op.part_scope(part, Direction::Request);
        let bound = s.bound.as_ref().map(|bound| {
            let bound = self.model.expr(bound, &sc.siblings);
            require(format!("(int64_t)sj_n{k} < {bound}"))
        });
        c!(
            "
            const size_t sj_n$k = sj_ld32(sj_p + $o);
            const unsigned char *sj_q$k;
            if (SJ_UNLIKELY(!(sj_ld32(sj_p + $o + 4) == 1)))
                return false;
            $bound
            if (SJ_UNLIKELY(!(sj_short_object(sj_m, (sj_n$k + 1) * $width, &sj_q, &sj_q$k) && sj_check_string(sj_q$k, sj_n$k, $width))))
                return false;
            $lv = ($cast)(uintptr_t)sj_q$k;
            ",
            k,
            o = part.offset,
            bound = bound.unwrap_or_default(),
            width = width(s),
            lv = part.lv,
            cast = characters(s),
        )
    }
}
