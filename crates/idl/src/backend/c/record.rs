//! Emission of the functions of named types: enumerations, plain structures, other structures. Not
//! here: what unions have (`unions`).

use crate::ir::{Enum, IntRange, Struct, Ty, TypeId, TypeKind};
use crate::layout;

use super::emit::{Emit, Scope};
use super::expr::Sibling;
use super::model::Model;
use super::template::{Code, c};
use super::text::{is_zero, require_zeroes, zero_padding};

/// A field: where it is in memory and on the wire.
pub(super) struct Member<'a> {
    pub(super) lv: String,
    pub(super) ty: &'a Ty,
    pub(super) range: Option<IntRange>,
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

/// Prototypes of a structure's functions, or of an encapsulated union's.
fn value_prototypes(name: &str) -> Code {
    c!(
        "
        static inline bool sj_put_of_$name(sj_enc *sj_e, size_t sj_at, const $name *sj_v);
        static inline bool sj_put_more_of_$name(sj_enc *sj_e, size_t sj_at, const $name *sj_v);
        static inline bool sj_get_of_$name(sj_dec *sj_d, const unsigned char *sj_p, $name *sj_v);
        static inline bool sj_get_more_of_$name(sj_dec *sj_d, const unsigned char *sj_p, $name *sj_v);
        ",
        name,
    )
}

/// A function that encodes a part of a value.
pub(super) fn encoder(function: &str, name: &str, body: &Code) -> Code {
    c!(
        "

        static inline bool sj_$function(sj_enc *sj_e, size_t sj_at, const $name *sj_v)
        {
            (void)sj_e, (void)sj_at, (void)sj_v;
            $body
            return true;
        }
        ",
        function,
        name,
        body,
    )
}

/// A function that decodes a part of a value.
pub(super) fn decoder(function: &str, name: &str, body: &Code) -> Code {
    c!(
        "

        static inline bool sj_$function(sj_dec *sj_d, const unsigned char *sj_p, $name *sj_v)
        {
            (void)sj_d, (void)sj_p, (void)sj_v;
            $body
            return true;
        }
        ",
        function,
        name,
        body,
    )
}

impl Emit<'_> {
    /// Functions of all named types; prototypes first, since types may be recursive.
    pub(super) fn type_functions(&mut self) -> Code {
        let all: Vec<TypeId> = (0..self.model.m.types.len())
            .filter_map(|i| u32::try_from(i).ok().map(TypeId))
            .collect();
        let mut out: Code = all.iter().map(|id| self.prototypes(*id)).collect();
        for id in all {
            let Some(def) = self.model.def(id) else { continue };
            out += &match &def.kind {
                TypeKind::Enum(e) => self.enum_function(id, e),
                TypeKind::Struct(s) if self.named_has_wire_layout(id) => {
                    self.plain_functions(id, s)
                }
                TypeKind::Struct(s) => self.struct_functions(id, s),
                TypeKind::Union(u) => self.union_functions(id, u),
                _ => Code::new(),
            };
            out += &self.free_function(id);
        }
        out
    }

    fn prototypes(&self, id: TypeId) -> Code {
        let name = self.model.type_name(id);
        let Some(def) = self.model.def(id) else { return Code::new() };
        let mut out = match &def.kind {
            TypeKind::Union(u) if u.encapsulated.is_some() => value_prototypes(&name),
            TypeKind::Struct(_) if !self.named_has_wire_layout(id) => value_prototypes(&name),
            TypeKind::Union(_) => c!(
                "
                static inline bool sj_put_arm_of_$name(sj_enc *sj_e, int64_t sj_k, const $name *sj_v);
                static inline bool sj_get_arm_of_$name(sj_dec *sj_d, int64_t sj_k, $name *sj_v);
                ",
                name,
            ),
            _ => Code::new(),
        };
        if let TypeKind::Struct(s) = &def.kind
            && !self.named_has_wire_layout(id)
            && self.is_linked(s)
        {
            out += &c!(
                "
                static bool sj_put_deep_of_$name(sj_enc *sj_e, const $name *sj_v);
                static bool sj_get_deep_of_$name(sj_dec *sj_d, const unsigned char *sj_b, $name *sj_v);
                ",
                name,
            );
        }
        if self.model.marshal(id).is_some() {
            out += &c!("static inline void sj_free_of_$name(void *sj_v);", name);
        }
        out
    }

    fn free_function(&self, id: TypeId) -> Code {
        let Some(m) = self.model.marshal(id) else { return Code::new() };
        c!(
            "

            static inline void sj_free_of_$name(void *sj_v)
            {
                $prefix_free(($local *)sj_v);
            }
            ",
            name = self.model.type_name(id),
            prefix = m.prefix,
            local = m.local,
        )
    }

    fn enum_function(&self, id: TypeId, e: &Enum) -> Code {
        let mut values: Vec<i32> = e.members.iter().map(|m| m.value).collect();
        values.sort_unstable();
        values.dedup();
        let body = match (values.first(), values.last()) {
            (Some(&low), Some(&high))
                if i64::from(high) - i64::from(low) + 1 == values.len() as i64 =>
            {
                c!(
                    "return (uint32_t)sj_v - (uint32_t)($low) <= $span;",
                    low = int32(low),
                    span = format!("{}u", i64::from(high) - i64::from(low)),
                )
            }
            _ => c!(
                "
                switch (sj_v) {
                    $cases
                        return true;
                    default:
                        return false;
                }
                ",
                cases = values.iter().map(|v| c!("case $v:", v = int32(*v))).collect::<Code>(),
            ),
        };
        c!(
            "

            static inline bool sj_is_of_$name(int32_t sj_v)
            {
                $body
            }
            ",
            name = self.model.type_name(id),
            body,
        )
    }

    /// `sj_check_T` looks at bytes, `sj_copy_T` writes them with zero padding.
    fn plain_functions(&mut self, id: TypeId, s: &Struct) -> Code {
        let l = layout::struct_layout(self.model.m, s);
        let (mut check, mut copy) = (Code::new(), Code::new());
        for m in members(self.model, s) {
            let o = m.offset.to_string();
            check += &self.check_bytes(m.ty, &o, "sj_wire");
            if m.range.is_some() {
                check += &c!(
                    "
                    {
                        $decl;
                        $load
                        $range
                    }
                    ",
                    decl = self.model.decl(m.ty, "sj_x"),
                    load = self.load(m.ty, "sj_x", &o),
                    range = self.check_range(m.ty, "sj_x", m.range),
                );
            }
        }
        let padding: Vec<String> = l.padding.iter().map(is_zero).collect();
        let done = if padding.is_empty() {
            c!("
                (void)sj_wire;
                return true;
                ")
        } else {
            c!("return !sj_wire || ($padding);", padding = padding.join(" && "))
        };
        for m in members(self.model, s) {
            copy += &self.store(m.ty, &m.lv, &m.offset.to_string());
        }
        c!(
            "

            static inline bool sj_check_of_$name(const unsigned char *sj_p, bool sj_wire)
            {
                (void)sj_p;
                $check
                $done
            }

            static inline void sj_copy_of_$name(unsigned char *sj_p, const $name *sj_v)
            {
                $copy
                $zero
            }
            ",
            name = self.model.type_name(id),
            check,
            done,
            copy,
            zero = zero_padding(&l.padding),
        )
    }

    fn struct_functions(&mut self, id: TypeId, s: &Struct) -> Code {
        let name = self.model.type_name(id);
        let (sc, all) = (scope(s), members(self.model, s));
        let is_linked = self.is_linked(s);
        let put = self.struct_put(s, &all, &sc);
        let mut put_more = Code::new();
        if is_linked {
            put_more = self.put_more_linked(&name, &all);
        } else {
            for m in &all {
                put_more += &self.more(m.ty, &m.lv, &m.offset.to_string(), &sc);
            }
        }
        let get = self.struct_get(s, &all, &sc);
        let mut get_more = Code::new();
        if is_linked {
            get_more = self.get_more_linked(&name, &all);
        } else {
            for m in &all {
                get_more += &self.get_more(m.ty, &m.lv, &m.offset.to_string(), &sc);
            }
        }
        for m in &all {
            get_more += &self.agree(m.ty, &m.offset.to_string(), &sc);
        }
        let deep = if is_linked { self.deep_functions(id, s) } else { Code::new() };
        encoder(&format!("put_of_{name}"), &name, &put)
            + &encoder(&format!("put_more_of_{name}"), &name, &put_more)
            + &decoder(&format!("get_of_{name}"), &name, &get)
            + &decoder(&format!("get_more_of_{name}"), &name, &get_more)
            + &deep
            + &self.whole_functions(id, s)
    }

    fn struct_put(&mut self, s: &Struct, all: &[Member<'_>], sc: &Scope<'_>) -> Code {
        let mut put = Code::new();
        for m in all {
            put += &self.check_range(m.ty, &m.lv, m.range);
            put += &self.put(m.ty, &m.lv, &m.offset.to_string(), sc);
        }
        c!(
            "
            unsigned char *sj_p = sj_e->body + sj_at;
            (void)sj_p;
            $put
            $zero
            ",
            put,
            zero = zero_padding(&layout::struct_layout(self.model.m, s).padding),
        )
    }

    fn struct_get(&mut self, s: &Struct, all: &[Member<'_>], sc: &Scope<'_>) -> Code {
        let mut get = require_zeroes(&layout::struct_layout(self.model.m, s).padding);
        for f in s.fields.iter().filter(|f| f.ignore) {
            get += &c!("sj_v->$name = NULL;", name = f.name);
        }
        for m in all {
            get += &self.get(m.ty, &m.lv, &m.offset.to_string(), sc);
            get += &self.check_range(m.ty, &m.lv, m.range);
        }
        get
    }
}

/// A constant of 32 bits.
pub(super) fn int32(n: i32) -> String {
    if n == i32::MIN { "INT32_MIN".to_owned() } else { n.to_string() }
}
