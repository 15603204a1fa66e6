//! Structures met often enough within others to have ways of their own: those with strings and
//! nothing else beside plain values (entries of lists), and those whose only secondary objects are
//! behind unique pointers (nodes of lists and trees).
//!
//! Bytes and checks are those of `record`'s functions; what differs is how often memory is looked
//! at. Read `record` first.

use crate::ir::{PtrClass, Struct, Ty, TypeId, TypeKind};
use crate::layout;

use super::emit::{Emit, Scope};
use super::record::{Member, members, scope};

impl Emit<'_> {
    /// The structure's number if every value of it is plain but for strings, one at least: header
    /// and characters can be handled together, since no header of another kind comes between them.
    pub(super) fn with_strings(&self, ty: &Ty) -> Option<TypeId> {
        let Ty::Named(id) = self.model.resolve(ty) else { return None };
        let Some(TypeKind::Struct(s)) = self.model.def(*id).map(|d| &d.kind) else { return None };
        let fits = self.model.marshal(*id).is_none()
            && s.fields
                .iter()
                .all(|f| !f.ignore && (self.model.is_plain(&f.ty) || self.narrow(&f.ty).is_some()))
            && s.fields.iter().any(|f| self.narrow(&f.ty).is_some());
        fits.then_some(*id)
    }

    /// Whether a string of bytes may be null, and its bound.
    fn narrow<'t>(&'t self, ty: &'t Ty) -> Option<(bool, &'t crate::ir::StringTy)> {
        let (nullable, ty) = match self.model.resolve(ty) {
            Ty::Pointer(class, t) => (*class != PtrClass::Ref, self.model.resolve(t)),
            other => (false, other),
        };
        match ty {
            Ty::String(s) if !s.wide => Some((nullable, s)),
            _ => None,
        }
    }

    /// `sj_put_whole_T` and `sj_get_whole_T`: a structure and its strings.
    pub(super) fn whole_functions(&mut self, id: TypeId, s: &Struct) {
        if self.with_strings(&Ty::Named(id)).is_none() {
            return;
        }
        let name = self.model.type_name(id);
        let padding = layout::struct_layout(self.model.m, s).padding;
        let (sc, all) = (scope(s), members(self.model, s));
        let plain: Vec<_> = all.iter().filter(|m| self.narrow(m.ty).is_none()).collect();
        self.encoder(&format!("put_whole_of_{name}"), &name, |x| {
            x.w.line("unsigned char *sj_p = sj_e->body + sj_at;");
            for m in &plain {
                x.check_range(m.ty, &m.lv, m.range);
                x.put(m.ty, &m.lv, &m.offset.to_string(), &sc);
            }
            x.zero_padding(&padding);
            for m in &all {
                x.put_whole_string(m, &sc);
            }
        });
        self.decoder(&format!("get_whole_of_{name}"), &name, |x| {
            for (o, n) in &padding {
                x.w.require(format!("sj_is_zero(sj_p + {o}, {n})"));
            }
            for m in &plain {
                x.get(m.ty, &m.lv, &m.offset.to_string(), &sc);
                x.check_range(m.ty, &m.lv, m.range);
            }
            for m in &all {
                x.get_whole_string(m);
            }
            for m in &all {
                x.agree(m.ty, &m.offset.to_string(), &sc);
            }
        });
    }

    fn put_whole_string(&mut self, m: &Member<'_>, sc: &Scope<'_>) {
        let Some((nullable, s)) = self.narrow(m.ty) else { return };
        let bound =
            s.bound.as_ref().map_or("INT64_MAX".to_owned(), |b| self.model.expr(b, &sc.siblings));
        let (lv, o) = (&m.lv, m.offset);
        self.w
            .require(format!("sj_put_string_whole(sj_e, sj_at + {o}, {lv}, {nullable}, {bound})"));
    }

    fn get_whole_string(&mut self, m: &Member<'_>) {
        let Some((nullable, _)) = self.narrow(m.ty) else { return };
        let (lv, o) = (&m.lv, m.offset);
        self.w.open("");
        self.w.line("void *sj_t;");
        self.w.require(format!("sj_get_string_whole(sj_d, sj_p + {o}, {nullable}, false, &sj_t)"));
        self.w.line(format!("{lv} = (char *)sj_t;"));
        self.w.close();
    }

    /// Whether all secondary objects of a structure are behind unique pointers of its own.
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
    pub(super) fn deep_functions(&mut self, id: TypeId, s: &Struct) {
        let name = self.model.type_name(id);
        let inner = scope(s).inner();
        let all = members(self.model, s);
        let linked: Vec<_> = all.iter().filter(|m| self.model.has_more(m.ty)).collect();
        self.w.blank();
        self.w.function(format!(
            "static bool sj_put_deep_of_{name}(sj_enc *sj_e, const {name} *sj_v)"
        ));
        self.w.require("++sj_e->depth <= SJ_DEPTH_MAX");
        for m in &linked {
            let Some(t) = self.unique(m.ty).cloned() else { continue };
            let (target, size) = (self.model.target(&t, &m.lv), self.model.size(&t));
            self.w.open(format!("if ({})", m.lv));
            self.w.line("size_t sj_at;");
            self.w.require(format!("sj_enc_object(sj_e, {size}, &sj_at)"));
            self.w.line("unsigned char *sj_p = sj_e->body + sj_at;");
            self.w.line("(void)sj_p;");
            self.put(&t, &target, "0", &inner);
            self.more(&t, &target, "0", &inner);
            self.w.close();
        }
        self.w.line("return sj_enc_end(sj_e);");
        self.w.close();
        self.w.blank();
        self.w.function(format!(
            "static bool sj_get_deep_of_{name}(sj_dec *sj_d, const unsigned char *sj_b, {name} *sj_v)"
        ));
        self.w.require("++sj_d->depth <= SJ_DEPTH_MAX");
        for m in &linked {
            let Some(t) = self.unique(m.ty).cloned() else { continue };
            let (target, size) = (self.model.target(&t, &m.lv), self.model.size(&t));
            self.w.open(format!("if (sj_ld64(sj_b + {}) != 0)", m.offset));
            self.w.line("const unsigned char *sj_p;");
            self.w.require(format!("sj_dec_object(sj_d, 1, {size}, &sj_p)"));
            self.get_target(&t, &m.lv, "0", &inner);
            self.get_more(&t, &target, "0", &inner);
            self.w.close();
        }
        self.w.line("return sj_dec_end(sj_d);");
        self.w.close();
    }

    /// The bodies of `put_more` and `get_more` of a linked structure.
    pub(super) fn put_more_linked(&mut self, name: &str, all: &[Member<'_>]) {
        let any: Vec<_> = all.iter().filter(|m| self.model.has_more(m.ty)).collect();
        let any: Vec<String> = any.iter().map(|m| m.lv.clone()).collect();
        self.w.line(format!("if ({})", any.join(" || ")));
        self.w.line(format!("    return sj_put_deep_of_{name}(sj_e, sj_v);"));
    }

    pub(super) fn get_more_linked(&mut self, name: &str, all: &[Member<'_>]) {
        let any: Vec<_> = all.iter().filter(|m| self.model.has_more(m.ty)).collect();
        let any: Vec<String> =
            any.iter().map(|m| format!("sj_ld64(sj_p + {})", m.offset)).collect();
        self.w.open(format!("if (({}) != 0)", any.join(" | ")));
        self.w.require(format!("sj_get_deep_of_{name}(sj_d, sj_p, sj_v)"));
        self.w.close();
    }
}
