//! Structures met often enough within others to have ways of their own: those with strings and
//! nothing else beside plain values (entries of lists), and those whose only secondary objects are
//! behind unique pointers (nodes of lists and trees).
//!
//! Bytes and checks are those of `record`'s functions; what differs is how often memory is looked
//! at. Read `record` first.

use crate::ir::{PtrClass, StringTy, Struct, Ty, TypeId, TypeKind};
use crate::layout;

use super::emit::{Emit, Scope};
use super::record::{Member, decoder, encoder, members, scope};
use super::template::{Code, c};
use super::text::{require, require_zeroes, zero_padding};

/// A string of bytes.
struct Narrow<'t> {
    string: &'t StringTy,
    nullable: bool,
}

impl Emit<'_> {
    /// The structure's number if every value of it is plain but for strings, one at least: header
    /// and characters can be handled together, since no header of another kind comes between them.
    pub(super) fn with_strings(&self, ty: &Ty) -> Option<TypeId> {
        let Ty::Named(id) = self.model.resolve(ty) else { return None };
        let Some(TypeKind::Struct(s)) = self.model.def(*id).map(|d| &d.kind) else { return None };
        let fits = self.model.marshal(*id).is_none()
            && s.fields.iter().all(|f| {
                !f.ignore && (self.model.has_wire_layout(&f.ty) || self.narrow(&f.ty).is_some())
            })
            && s.fields.iter().any(|f| self.narrow(&f.ty).is_some());
        fits.then_some(*id)
    }

    /// Returns the string of bytes that a type is.
    fn narrow<'t>(&'t self, ty: &'t Ty) -> Option<Narrow<'t>> {
        let (nullable, ty) = match self.model.resolve(ty) {
            Ty::Pointer(class, t) => (*class != PtrClass::Ref, self.model.resolve(t)),
            other => (false, other),
        };
        match ty {
            Ty::String(string) if !string.wide => Some(Narrow { string, nullable }),
            _ => None,
        }
    }

    /// `sj_put_whole_T` and `sj_get_whole_T`: a structure and its strings.
    pub(super) fn whole_functions(&mut self, id: TypeId, s: &Struct) -> Code {
        if self.with_strings(&Ty::Named(id)).is_none() {
            return Code::new();
        }
        let name = self.model.type_name(id);
        let padding = layout::struct_layout(self.model.m, s).padding;
        let (sc, all) = (scope(s), members(self.model, s));
        let (mut put, mut get) = (Code::new(), Code::new());
        for m in all.iter().filter(|m| self.narrow(m.ty).is_none()).collect::<Vec<_>>() {
            put += &self.check_range(m.ty, &m.lv, m.range);
            put += &self.put(m.ty, &m.lv, &m.offset.to_string(), &sc);
        }
        let put_strings: Code = all.iter().map(|m| self.put_whole_string(m, &sc)).collect();
        let put = c!(
            "
            unsigned char *sj_p = sj_e->body + sj_at;
            $put
            $zero
            $strings
            ",
            put,
            zero = zero_padding(&padding),
            strings = put_strings,
        );
        for m in all.iter().filter(|m| self.narrow(m.ty).is_none()).collect::<Vec<_>>() {
            get += &self.get(m.ty, &m.lv, &m.offset.to_string(), &sc);
            get += &self.check_range(m.ty, &m.lv, m.range);
        }
        let strings: Code = all.iter().map(|m| self.get_whole_string(m)).collect();
        let mut agree = Code::new();
        for m in &all {
            agree += &self.agree(m.ty, &m.offset.to_string(), &sc);
        }
        let get = require_zeroes(&padding) + &get + &strings + &agree;
        encoder(&format!("put_whole_of_{name}"), &name, &put)
            + &decoder(&format!("get_whole_of_{name}"), &name, &get)
    }

    fn put_whole_string(&self, m: &Member<'_>, sc: &Scope<'_>) -> Code {
        let Some(Narrow { string, nullable }) = self.narrow(m.ty) else { return Code::new() };
        let bound = string.bound.as_ref();
        let bound = bound.map_or("INT64_MAX".to_owned(), |b| self.model.expr(b, &sc.siblings));
        let (lv, o) = (&m.lv, m.offset);
        require(format!("sj_put_string_whole(sj_e, sj_at + {o}, {lv}, {nullable}, {bound})"))
    }

    fn get_whole_string(&self, m: &Member<'_>) -> Code {
        let Some(Narrow { nullable, .. }) = self.narrow(m.ty) else { return Code::new() };
        c!(
            "
            {
                void *sj_t;
                if (SJ_UNLIKELY(!(sj_get_string_whole(sj_d, sj_p + $o, $nullable, false, &sj_t))))
                    return false;
                $lv = (char *)sj_t;
            }
            ",
            o = m.offset,
            nullable,
            lv = m.lv,
        )
    }

    /// Returns true if all secondary objects of a structure are behind unique pointers of its own.
    pub(super) fn is_linked(&self, s: &Struct) -> bool {
        let mut linked = s.fields.iter().filter(|f| self.model.has_more(&f.ty)).peekable();
        linked.peek().is_some() && linked.all(|f| !f.ignore && self.unique(&f.ty).is_some())
    }

    fn unique<'t>(&'t self, ty: &'t Ty) -> Option<&'t Ty> {
        match self.model.resolve(ty) {
            Ty::Pointer(PtrClass::Unique, t) if !self.model.is_header(t) => Some(t),
            _ => None,
        }
    }

    /// `sj_put_deep_T` and `sj_get_deep_T`, for values that have any pointer set: one level for all
    /// of them.
    pub(super) fn deep_functions(&mut self, id: TypeId, s: &Struct) -> Code {
        let name = self.model.type_name(id);
        let inner = scope(s).inner();
        let all = members(self.model, s);
        let linked = || all.iter().filter_map(|m| Some((m, self.unique(m.ty)?.clone())));
        let linked: Vec<_> = linked().filter(|(m, _)| self.model.has_more(m.ty)).collect();
        let (mut puts, mut gets) = (Code::new(), Code::new());
        for (m, t) in &linked {
            puts += &self.put_deep(m, t, &inner);
        }
        for (m, t) in &linked {
            gets += &self.get_deep(m, t, &inner);
        }
        c!(
            "

            static bool sj_put_deep_of_$name(sj_enc *sj_e, const $name *sj_v)
            {
                if (SJ_UNLIKELY(!(++sj_e->depth <= SJ_DEPTH_MAX)))
                    return false;
                $puts
                return sj_enc_end(sj_e);
            }

            static bool sj_get_deep_of_$name(sj_dec *sj_d, const unsigned char *sj_b, $name *sj_v)
            {
                if (SJ_UNLIKELY(!(++sj_d->depth <= SJ_DEPTH_MAX)))
                    return false;
                $gets
                return sj_dec_end(sj_d);
            }
            ",
            name,
            puts,
            gets,
        )
    }

    fn put_deep(&mut self, m: &Member<'_>, t: &Ty, sc: &Scope<'_>) -> Code {
        let target = self.model.target(t, &m.lv);
        c!(
            "
            if ($lv) {
                size_t sj_at;
                if (SJ_UNLIKELY(!(sj_enc_object(sj_e, $size, &sj_at))))
                    return false;
                unsigned char *sj_p = sj_e->body + sj_at;
                (void)sj_p;
                $put
                $more
            }
            ",
            lv = m.lv,
            size = self.model.size(t),
            put = self.put(t, &target, "0", sc),
            more = self.more(t, &target, "0", sc),
        )
    }

    fn get_deep(&mut self, m: &Member<'_>, t: &Ty, sc: &Scope<'_>) -> Code {
        let target = self.model.target(t, &m.lv);
        c!(
            "
            if (sj_ld64(sj_b + $o) != 0) {
                const unsigned char *sj_p;
                if (SJ_UNLIKELY(!(sj_dec_object(sj_d, 1, $size, &sj_p))))
                    return false;
                $get
                $more
            }
            ",
            o = m.offset,
            size = self.model.size(t),
            get = self.get_target(t, &m.lv, "0", sc),
            more = self.get_more(t, &target, "0", sc),
        )
    }

    /// The bodies of `put_more` and `get_more` of a linked structure.
    pub(super) fn put_more_linked(&self, name: &str, all: &[Member<'_>]) -> Code {
        let linked = all.iter().filter(|m| self.model.has_more(m.ty));
        let any: Vec<&str> = linked.map(|m| m.lv.as_str()).collect();
        c!(
            "
            if ($any)
                return sj_put_deep_of_$name(sj_e, sj_v);
            ",
            any = any.join(" || "),
            name,
        )
    }

    pub(super) fn get_more_linked(&self, name: &str, all: &[Member<'_>]) -> Code {
        let linked = all.iter().filter(|m| self.model.has_more(m.ty));
        let any: Vec<String> = linked.map(|m| format!("sj_ld64(sj_p + {})", m.offset)).collect();
        c!(
            "
            if (($any) != 0) {
                if (SJ_UNLIKELY(!(sj_get_deep_of_$name(sj_d, sj_p, sj_v))))
                    return false;
            }
            ",
            any = any.join(" | "),
            name,
        )
    }
}
