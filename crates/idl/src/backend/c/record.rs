//! Emission of the functions of named types: enumerations, plain structures, other structures,
//! unions.

use crate::ir::{Arm, Enum, Struct, Ty, TypeId, TypeKind, Union};
use crate::layout;

use super::emit::{Emit, Scope};
use super::expr::Sibling;
use super::model::Model;
use super::text::int64;

/// A field: where it is in memory and on the wire.
pub(super) struct Member<'a> {
    pub(super) lv: String,
    pub(super) ty: &'a Ty,
    pub(super) range: Option<(i128, i128)>,
    pub(super) offset: u64,
}

pub(super) fn members<'a>(model: Model<'_>, s: &'a Struct) -> Vec<Member<'a>> {
    let l = layout::struct_layout(model.m, s);
    s.fields
        .iter()
        .zip(&l.fields)
        .filter_map(|(f, slot)| {
            Some(Member {
                lv: format!("sj_v->{}", f.name),
                ty: &f.ty,
                range: f.range,
                offset: slot.as_ref()?.offset,
            })
        })
        .collect()
}

pub(super) fn scope(s: &Struct) -> Scope<'_> {
    Scope::new(
        s.fields.iter().map(|f| Sibling { lv: format!("sj_v->{}", f.name), ty: &f.ty }).collect(),
    )
}

impl Emit<'_> {
    /// Functions of all named types; prototypes first, since types may be recursive.
    pub(super) fn type_functions(&mut self) {
        let all: Vec<u32> =
            (0..self.model.m.types.len()).filter_map(|i| u32::try_from(i).ok()).collect();
        for &i in &all {
            self.prototypes(TypeId(i));
        }
        for &i in &all {
            let id = TypeId(i);
            let Some(def) = self.model.def(id) else { continue };
            match &def.kind {
                TypeKind::Enum(e) => self.enum_function(id, e),
                TypeKind::Struct(s) if self.is_plain_named(id) => self.plain_functions(id, s),
                TypeKind::Struct(s) => self.struct_functions(id, s),
                TypeKind::Union(u) => self.union_functions(id, u),
                _ => {}
            }
            self.free_function(id);
        }
    }

    fn prototypes(&mut self, id: TypeId) {
        let name = self.model.type_name(id);
        let Some(def) = self.model.def(id) else { return };
        let encapsulated = matches!(&def.kind, TypeKind::Union(u) if u.encapsulated.is_some());
        let is_struct = matches!(&def.kind, TypeKind::Struct(_)) && !self.is_plain_named(id);
        if encapsulated || is_struct {
            self.w.line(format!(
                "static inline bool sj_put_of_{name}(sj_enc *sj_e, size_t sj_at, const {name} *sj_v);"
            ));
            self.w.line(format!("static inline bool sj_put_more_of_{name}(sj_enc *sj_e, size_t sj_at, const {name} *sj_v);"));
            self.w.line(format!("static inline bool sj_get_of_{name}(sj_dec *sj_d, const unsigned char *sj_p, {name} *sj_v);"));
            self.w.line(format!("static inline bool sj_get_more_of_{name}(sj_dec *sj_d, const unsigned char *sj_p, {name} *sj_v);"));
            if let TypeKind::Struct(s) = &def.kind
                && self.is_linked(s)
            {
                self.w.line(format!(
                    "static bool sj_put_deep_of_{name}(sj_enc *sj_e, const {name} *sj_v);"
                ));
                self.w.line(format!("static bool sj_get_deep_of_{name}(sj_dec *sj_d, const unsigned char *sj_b, {name} *sj_v);"));
            }
        } else if matches!(&def.kind, TypeKind::Union(_)) {
            self.w.line(format!("static inline bool sj_put_arm_of_{name}(sj_enc *sj_e, int64_t sj_k, const {name} *sj_v);"));
            self.w.line(format!(
                "static inline bool sj_get_arm_of_{name}(sj_dec *sj_d, int64_t sj_k, {name} *sj_v);"
            ));
        }
        if self.model.marshal(id).is_some() {
            self.w.line(format!("static inline void sj_free_of_{name}(void *sj_v);"));
        }
    }

    fn free_function(&mut self, id: TypeId) {
        let Some(m) = self.model.marshal(id) else { return };
        let name = self.model.type_name(id);
        self.w.blank();
        self.w.function(format!("static inline void sj_free_of_{name}(void *sj_v)"));
        self.w.line(format!("{}_free(({} *)sj_v);", m.prefix, m.local));
        self.w.close();
    }

    fn enum_function(&mut self, id: TypeId, e: &Enum) {
        let name = self.model.type_name(id);
        let mut values: Vec<i32> = e.members.iter().map(|m| m.value).collect();
        values.sort_unstable();
        values.dedup();
        self.w.blank();
        self.w.function(format!("static inline bool sj_is_of_{name}(int32_t sj_v)"));
        match (values.first(), values.last()) {
            (Some(&low), Some(&high))
                if i64::from(high) - i64::from(low) + 1 == values.len() as i64 =>
            {
                let span = i64::from(high) - i64::from(low);
                let low = if low == i32::MIN { "INT32_MIN".to_owned() } else { low.to_string() };
                self.w.line(format!("return (uint32_t)sj_v - (uint32_t)({low}) <= {span}u;"));
            }
            _ => {
                self.w.open("switch (sj_v)");
                for v in values {
                    let v = if v == i32::MIN { "INT32_MIN".to_owned() } else { v.to_string() };
                    self.w.line(format!("case {v}:"));
                }
                self.w.line("    return true;");
                self.w.line("default:");
                self.w.line("    return false;");
                self.w.close();
            }
        }
        self.w.close();
    }

    /// `sj_check_T` looks at bytes, `sj_copy_T` writes them with zero padding.
    fn plain_functions(&mut self, id: TypeId, s: &Struct) {
        let name = self.model.type_name(id);
        let l = layout::struct_layout(self.model.m, s);
        self.w.blank();
        self.w.function(format!(
            "static inline bool sj_check_of_{name}(const unsigned char *sj_p, bool sj_wire)"
        ));
        self.w.line("(void)sj_p;");
        for m in members(self.model, s) {
            let o = m.offset.to_string();
            self.check_bytes(m.ty, &o, "sj_wire");
            if m.range.is_some() {
                self.w.open("");
                self.w.line(format!("{};", self.model.decl(m.ty, "sj_x")));
                self.load(m.ty, "sj_x", &o);
                self.check_range(m.ty, "sj_x", m.range);
                self.w.close();
            }
        }
        let padding: Vec<String> =
            l.padding.iter().map(|(o, n)| format!("sj_is_zero(sj_p + {o}, {n})")).collect();
        if padding.is_empty() {
            self.w.line("(void)sj_wire;");
            self.w.line("return true;");
        } else {
            self.w.line(format!("return !sj_wire || ({});", padding.join(" && ")));
        }
        self.w.close();
        self.w.blank();
        self.w.function(format!(
            "static inline void sj_copy_of_{name}(unsigned char *sj_p, const {name} *sj_v)"
        ));
        for m in members(self.model, s) {
            self.store(m.ty, &m.lv, &m.offset.to_string());
        }
        self.zero_padding(&l.padding);
        self.w.close();
    }

    pub(super) fn zero_padding(&mut self, padding: &[(u64, u64)]) {
        for (o, n) in padding {
            self.w.line(format!("memset(sj_p + {o}, 0, {n});"));
        }
    }

    fn struct_functions(&mut self, id: TypeId, s: &Struct) {
        let name = self.model.type_name(id);
        let padding = layout::struct_layout(self.model.m, s).padding;
        let sc = scope(s);
        let all = members(self.model, s);
        self.encoder(&format!("put_of_{name}"), &name, |x| {
            x.w.line("unsigned char *sj_p = sj_e->body + sj_at;");
            x.w.line("(void)sj_p;");
            for m in &all {
                x.check_range(m.ty, &m.lv, m.range);
                x.put(m.ty, &m.lv, &m.offset.to_string(), &sc);
            }
            x.zero_padding(&padding);
        });
        let is_linked = self.is_linked(s);
        self.encoder(&format!("put_more_of_{name}"), &name, |x| {
            if is_linked {
                return x.put_more_linked(&name, &all);
            }
            for m in &all {
                x.more(m.ty, &m.lv, &m.offset.to_string(), &sc);
            }
        });
        self.decoder(&format!("get_of_{name}"), &name, |x| {
            for (o, n) in &padding {
                x.w.require(format!("sj_is_zero(sj_p + {o}, {n})"));
            }
            for f in s.fields.iter().filter(|f| f.ignore) {
                x.w.line(format!("sj_v->{} = NULL;", f.name));
            }
            for m in &all {
                x.get(m.ty, &m.lv, &m.offset.to_string(), &sc);
                x.check_range(m.ty, &m.lv, m.range);
            }
        });
        self.decoder(&format!("get_more_of_{name}"), &name, |x| {
            if is_linked {
                x.get_more_linked(&name, &all);
            } else {
                for m in &all {
                    x.get_more(m.ty, &m.lv, &m.offset.to_string(), &sc);
                }
            }
            for m in &all {
                x.agree(m.ty, &m.offset.to_string(), &sc);
            }
        });
        if is_linked {
            self.deep_functions(id, s);
        }
        self.whole_functions(id, s);
    }

    pub(super) fn encoder(&mut self, function: &str, name: &str, body: impl FnOnce(&mut Self)) {
        self.w.blank();
        self.w.function(format!(
            "static inline bool sj_{function}(sj_enc *sj_e, size_t sj_at, const {name} *sj_v)"
        ));
        self.w.line("(void)sj_e, (void)sj_at, (void)sj_v;");
        body(self);
        self.w.line("return true;");
        self.w.close();
    }

    pub(super) fn decoder(&mut self, function: &str, name: &str, body: impl FnOnce(&mut Self)) {
        self.w.blank();
        self.w.function(format!(
            "static inline bool sj_{function}(sj_dec *sj_d, const unsigned char *sj_p, {name} *sj_v)"
        ));
        self.w.line("(void)sj_d, (void)sj_p, (void)sj_v;");
        body(self);
        self.w.line("return true;");
        self.w.close();
    }

    fn union_functions(&mut self, id: TypeId, u: &Union) {
        let name = self.model.type_name(id);
        let Some((tag, member)) = &u.encapsulated else {
            self.w.blank();
            self.w.function(format!(
                "static inline bool sj_put_arm_of_{name}(sj_enc *sj_e, int64_t sj_k, const {name} *sj_v)"
            ));
            self.put_arms(u, "sj_v->");
            self.w.close();
            self.w.blank();
            self.w.function(format!(
                "static inline bool sj_get_arm_of_{name}(sj_dec *sj_d, int64_t sj_k, {name} *sj_v)"
            ));
            self.get_arms(u, "sj_v->");
            self.w.close();
            return;
        };
        let (tag, member) = (format!("sj_v->{}", tag), format!("sj_v->{}.", member));
        let value = self.model.expr(
            &crate::ir::Expr::Var { index: 0, deref: false },
            &[Sibling { lv: tag.clone(), ty: &u.switch }],
        );
        self.encoder(&format!("put_of_{name}"), &name, |x| {
            x.w.line(format!("sj_st64(sj_e->body + sj_at, (uint64_t)({value}));"));
        });
        self.w.blank();
        self.w.function(format!(
            "static inline bool sj_put_more_of_{name}(sj_enc *sj_e, size_t sj_at, const {name} *sj_v)"
        ));
        self.w.line(format!("const int64_t sj_k = {value};"));
        self.w.line("(void)sj_at;");
        self.put_arms(u, &member);
        self.w.close();
        let ty = self.model.name(&u.switch);
        self.decoder(&format!("get_of_{name}"), &name, |x| {
            x.w.line("const int64_t sj_k = (int64_t)sj_ld64(sj_p);");
            x.w.line(format!("{tag} = ({ty})sj_k;"));
            x.w.require(format!("{value} == sj_k"));
        });
        self.w.blank();
        self.w.function(format!(
            "static inline bool sj_get_more_of_{name}(sj_dec *sj_d, const unsigned char *sj_p, {name} *sj_v)"
        ));
        self.w.line("const int64_t sj_k = (int64_t)sj_ld64(sj_p);");
        self.get_arms(u, &member);
        self.w.close();
    }

    /// `case ...: {` for every arm, `body`, `}`; what no arm has is refused.
    fn arms(&mut self, u: &Union, body: &dyn Fn(&mut Self, &Arm)) {
        self.w.open("switch (sj_k)");
        let mut has_default = false;
        for arm in &u.arms {
            if arm.cases.is_empty() {
                has_default = true;
                self.w.line("default:");
            }
            for case in &arm.cases {
                self.w.line(format!("case {}:", int64(*case)));
            }
            self.w.open("");
            body(self, arm);
            self.w.line("return true;");
            self.w.close();
        }
        if !has_default {
            self.w.line("default:");
            self.w.line("    return false;");
        }
        self.w.close();
    }

    fn put_arms(&mut self, u: &Union, prefix: &str) {
        self.w.line("(void)sj_e, (void)sj_v;");
        self.discriminant_is_declared(u);
        self.arms(u, &|x, arm| {
            let Some(f) = &arm.field else { return };
            let sc = Scope::new(Vec::new());
            let lv = format!("{prefix}{}", f.name);
            x.check_range(&f.ty, &lv, f.range);
            x.pointee(&f.ty, &lv, "", &sc);
        });
    }

    fn get_arms(&mut self, u: &Union, prefix: &str) {
        self.w.line("(void)sj_d, (void)sj_v;");
        self.discriminant_is_declared(u);
        self.arms(u, &|x, arm| {
            let Some(f) = &arm.field else {
                let u = prefix.trim_end_matches("->").trim_end_matches('.');
                let u = if u == "sj_v" { "(*sj_v)".to_owned() } else { u.to_owned() };
                x.w.line(format!("memset(&{u}, 0, sizeof {u});"));
                return;
            };
            let sc = Scope::new(Vec::new()).inner();
            let lv = format!("{prefix}{}", f.name);
            let size = x.model.size(&f.ty);
            x.w.line("const unsigned char *sj_p;");
            x.w.require(format!("sj_dec_begin(sj_d, 1, {size}, &sj_p)"));
            x.w.line("(void)sj_p;");
            x.get(&f.ty, &lv, "0", &sc);
            x.check_range(&f.ty, &lv, f.range);
            x.get_more(&f.ty, &lv, "0", &sc);
            x.w.line("sj_dec_end(sj_d);");
        });
    }

    /// With a default arm, values outside an enumeration would pass.
    fn discriminant_is_declared(&mut self, u: &Union) {
        let has_default = u.arms.iter().any(|a| a.cases.is_empty());
        if let (true, Ty::Named(id)) = (has_default, self.model.strip(&u.switch)) {
            let name = self.model.type_name(*id);
            self.w.require(format!("sj_is_of_{name}((int32_t)sj_k) && (int32_t)sj_k == sj_k"));
        }
        if let (true, Ty::Scalar(crate::ir::Scalar::Bool)) =
            (has_default, self.model.strip(&u.switch))
        {
            self.w.require("sj_k == 0 || sj_k == 1");
        }
    }
}
