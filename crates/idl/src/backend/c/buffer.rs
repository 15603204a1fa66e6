//! Arrays and strings that a reply fills in the caller's memory (`Passing::Buffer`).
//!
//! The client knows the room from its own arguments, before the call changes any. The server makes
//! a buffer of the same room.

use crate::ir::{Expr, Ty};
use crate::layout;

use super::decode::characters;
use super::decode_more::bound_empty;
use super::emit::{Emit, Scope};
use super::encode::width;
use super::model::{Passing, visit_vars};
use super::op::{Direction, Op, Part};
use super::template::{Code, c};
use super::text::require;

/// C types of a buffer.
pub(super) struct BufferType {
    pub(super) element: String,
    /// The type of the pointer to the first element.
    pub(super) pointer: String,
}

/// The room of a buffer, in elements.
pub(super) struct Room {
    /// The variable that keeps the room.
    pub(super) name: String,
    /// C expression of the room.
    pub(super) value: String,
}

impl Emit<'_> {
    /// Room of every buffer, in elements, before anything of the reply is stored.
    pub(super) fn buffer_capacities(&self, op: &Op<'_>) -> Code {
        let sc = op.scope();
        let parts = op.parts(Direction::Reply);
        let buffers = parts.iter().filter(|part| part.passing == Passing::Buffer);
        buffers
            .map(|part| {
                let room = self.room(part, &sc);
                c!("const int64_t sj_room_$name = $room;", name = part.name, room)
            })
            .collect()
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

    pub(super) fn buffer_get(&self, part: &Part<'_>, o: &str) -> Code {
        let (lv, room) = (&part.lv, format!("sj_room_{}", part.name));
        match self.model.resolve(part.ty) {
            Ty::String(s) => {
                let width = width(s);
                require(format!(
                    "{room} > 0 && sj_fill_string(sj_d, sj_p + {o}, {width}, (size_t){room}, {lv})"
                ))
            }
            Ty::Array(a) => {
                let flat = self.model.has_wire_layout(&a.element)
                    && layout::is_flat(self.model.m, &a.element);
                let (valid, whole, first) = if layout::is_varying(a) {
                    ("sj_varying_is_valid", 8, format!(" + sj_ld32(sj_p + {o} + 12)"))
                } else {
                    ("sj_header_is_valid", 0, String::new())
                };
                let size = self.model.size(&a.element);
                let fill = match flat {
                    true => require(format!("sj_fill_flat(sj_d, sj_p + {o}, {size}, {lv}{first})")),
                    false => Code::new(),
                };
                c!(
                    "
                    if (SJ_UNLIKELY(!($valid(sj_p + $o, false, $flat))))
                        return false;
                    if (SJ_UNLIKELY(!((int64_t)sj_ld32(sj_p + $o + $whole) <= $room)))
                        return false;
                    $fill
                    ",
                    valid,
                    o,
                    flat,
                    whole,
                    room,
                    fill,
                )
            }
            _ => Code::new(),
        }
    }

    pub(super) fn buffer_get_more(&mut self, part: &Part<'_>, o: &str, sc: &Scope<'_>) -> Code {
        let lv = &part.lv;
        let a = match self.model.resolve(part.ty) {
            Ty::String(s) => {
                let width = width(s);
                return require(format!("sj_fill_string_more(sj_d, sj_p + {o}, {width}, {lv})"));
            }
            Ty::Array(a) => a,
            _ => return Code::new(),
        };
        let k = self.fresh();
        let size = self.model.size(&a.element);
        let (skip, first) = match layout::is_varying(a) {
            true => (
                c!("const size_t sj_first$k = sj_ld32(sj_p + $o + 12);", k, o),
                format!("sj_first{k}"),
            ),
            false => (Code::new(), "0".to_owned()),
        };
        let fill = if self.model.has_wire_layout(&a.element) {
            let fill = format!("sj_fill_elements(sj_d, sj_n{k}, {size}, &sj_q{k}, {lv} + {first})");
            require(fill) + &self.check_array(&a.element, k)
        } else {
            let first = if skip.is_empty() { String::new() } else { format!("{first} + ") };
            bound_empty(size, k) + &self.get_elements(&a.element, lv, &first, k, sc)
        };
        c!(
            "
            if (sj_ld32(sj_p + $o + 4) == 1) {
                const uint32_t sj_n$k = sj_ld32(sj_p + $o);
                const unsigned char *sj_q$k;
                $skip
                $fill
            }
            ",
            o,
            k,
            skip,
            fill,
        )
    }

    /// `in, out` strings with a bound: the implementation may use all of it.
    pub(super) fn roomy_strings(&self, op: &Op<'_>, parts: &[Part<'_>]) -> Code {
        let sc = op.scope();
        let mut out = Code::new();
        for part in parts.iter().filter(|p| p.passing == Passing::Buffer) {
            let Ty::String(s) = self.model.resolve(part.ty) else { continue };
            if s.bound.is_none() {
                continue;
            }
            out += &c!(
                "
                {
                    void *sj_t = sj_dec_array_zeroed(sj_d, (size_t)$room, $width);
                    if (SJ_UNLIKELY(!(sj_t != NULL)))
                        return false;
                    sj_copy_any(sj_t, $lv, ((size_t)sj_ld32(sj_p + $o) + 1) * $width);
                    $lv = ($cast)sj_t;
                }
                ",
                room = self.room(part, &sc),
                width = width(s),
                lv = part.lv,
                o = part.offset,
                cast = characters(s),
            );
        }
        out
    }

    /// The server's buffers for what is only `out`: zero, so that nothing else is told to the
    /// client.
    pub(super) fn server_buffers(&self, op: &Op<'_>) -> Code {
        let sc = op.scope();
        let mut out = Code::new();
        for part in op.parts(Direction::Reply) {
            let only_out = part.param.is_some_and(|p| !p.is_in());
            if part.passing != Passing::Buffer || !only_out {
                continue;
            }
            let BufferType { element, pointer: cast } = self.buffer_type(&part);
            out += &c!(
                "
                {
                    const int64_t sj_n = $room;
                    if (sj_n < 0 || sj_n > (int64_t)UINT32_MAX)
                        return SJ_OUTCOME_VIOLATION;
                    $lv = ($cast)sj_arena_zeroed(&sj_s->arena, (size_t)sj_n * sizeof($element));
                    if (!$lv)
                        return SJ_FAULT_NO_RESOURCES;
                }
                ",
                room = self.room(&part, &sc),
                lv = part.lv,
                cast,
                element,
            );
        }
        out
    }

    pub(super) fn buffer_type(&self, part: &Part<'_>) -> BufferType {
        let (element, pointer) = match self.model.resolve(part.ty) {
            Ty::Array(a) => (self.model.name(&a.element), self.model.name(part.ty)),
            Ty::String(s) if s.wide => ("uint16_t".to_owned(), "uint16_t *".to_owned()),
            _ => ("char".to_owned(), "char *".to_owned()),
        };
        BufferType { element, pointer }
    }

    /// The rooms of buffers whose size an implementation may have changed.
    pub(super) fn server_rooms(&self, op: &Op<'_>) -> Vec<Room> {
        let sc = op.scope();
        let mut all = Vec::new();
        for part in op.parts(Direction::Reply) {
            let Ty::Array(a) = self.model.resolve(part.ty) else { continue };
            if part.passing == Passing::Buffer && self.mentions_out(op, &a.size) {
                let name = format!("sj_room_{}", part.name);
                all.push(Room { name, value: self.room(&part, &sc) });
            }
        }
        all
    }

    fn mentions_out(&self, op: &Op<'_>, e: &Expr) -> bool {
        let mut any = false;
        visit_vars(e, &mut |i| any |= op.op.params.get(i as usize).is_some_and(|p| p.is_out()));
        any
    }
}
