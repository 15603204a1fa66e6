//! Emission of the functions of unions: the arm that the discriminant names, and none for any other
//! discriminant.

use crate::ir::{Arm, Encapsulation, Ty, TypeId, Union};

use super::emit::{Emit, Scope};
use super::expr::Sibling;
use super::template::{Code, c};
use super::text::{int64, require};

impl Emit<'_> {
    /// The functions of a union whose discriminant is elsewhere.
    fn arm_functions(&mut self, name: &str, u: &Union) -> Code {
        c!(
            "

            static inline bool sj_put_arm_of_$name(sj_enc *sj_e, int64_t sj_k, const $name *sj_v)
            {
                $put
            }

            static inline bool sj_get_arm_of_$name(sj_dec *sj_d, int64_t sj_k, $name *sj_v)
            {
                $get
            }
            ",
            name,
            put = self.put_arms(u, "sj_v->"),
            get = self.get_arms(u, "sj_v->"),
        )
    }

    /// The functions of a union, encapsulated or not.
    pub(super) fn union_functions(&mut self, id: TypeId, u: &Union) -> Code {
        let name = self.model.type_name(id);
        let Some(Encapsulation { tag, member }) = &u.encapsulated else {
            return self.arm_functions(&name, u);
        };
        let (tag, member) = (format!("sj_v->{tag}"), format!("sj_v->{member}."));
        let value = self.model.expr(
            &crate::ir::Expr::Var { index: 0, deref: false },
            &[Sibling { lv: tag.clone(), ty: &u.switch }],
        );
        c!(
            "

            static inline bool sj_put_of_$name(sj_enc *sj_e, size_t sj_at, const $name *sj_v)
            {
                (void)sj_e, (void)sj_at, (void)sj_v;
                sj_st64(sj_e->body + sj_at, (uint64_t)($value));
                return true;
            }

            static inline bool sj_put_more_of_$name(sj_enc *sj_e, size_t sj_at, const $name *sj_v)
            {
                const int64_t sj_k = $value;
                (void)sj_at;
                $put
            }

            static inline bool sj_get_of_$name(sj_dec *sj_d, const unsigned char *sj_p, $name *sj_v)
            {
                (void)sj_d, (void)sj_p, (void)sj_v;
                const int64_t sj_k = (int64_t)sj_ld64(sj_p);
                $tag = ($ty)sj_k;
                if (SJ_UNLIKELY(!($value == sj_k)))
                    return false;
                return true;
            }

            static inline bool sj_get_more_of_$name(sj_dec *sj_d, const unsigned char *sj_p, $name *sj_v)
            {
                const int64_t sj_k = (int64_t)sj_ld64(sj_p);
                $get
            }
            ",
            name,
            value,
            put = self.put_arms(u, &member),
            tag,
            ty = self.model.name(&u.switch),
            get = self.get_arms(u, &member),
        )
    }

    /// `case ...: {` for every arm, `body`, `}`; what no arm has is refused.
    fn arms(&mut self, u: &Union, body: &dyn Fn(&mut Self, &Arm) -> Code) -> Code {
        let mut arms = Code::new();
        for arm in &u.arms {
            arms += &c!(
                "
                $cases
                {
                    $body
                    return true;
                }
                ",
                cases = cases(arm),
                body = body(self, arm),
            );
        }
        if !u.arms.iter().any(|arm| arm.cases.is_empty()) {
            arms += &c!("
                default:
                    return false;
                ");
        }
        c!(
            "
            switch (sj_k) {
                $arms
            }
            ",
            arms,
        )
    }

    fn put_arms(&mut self, u: &Union, prefix: &str) -> Code {
        let arms = self.arms(u, &|x, arm| {
            let Some(f) = &arm.field else { return Code::new() };
            let lv = format!("{prefix}{}", f.name);
            x.check_range(&f.ty, &lv, f.range) + &x.pointee(&f.ty, &lv, "", &Scope::new(Vec::new()))
        });
        c!(
            "
            (void)sj_e, (void)sj_v;
            $declared
            $arms
            ",
            declared = self.discriminant_is_declared(u),
            arms,
        )
    }

    fn get_arms(&mut self, u: &Union, prefix: &str) -> Code {
        let arms = self.arms(u, &|x, arm| {
            let Some(f) = &arm.field else {
                let u = prefix.trim_end_matches("->").trim_end_matches('.');
                let u = if u == "sj_v" { "(*sj_v)" } else { u };
                return c!("memset(&$u, 0, sizeof $u);", u);
            };
            let sc = Scope::new(Vec::new()).inner();
            let lv = format!("{prefix}{}", f.name);
            c!(
                "
                const unsigned char *sj_p;
                if (SJ_UNLIKELY(!(sj_dec_begin(sj_d, 1, $size, &sj_p))))
                    return false;
                (void)sj_p;
                $get
                $range
                $more
                sj_dec_end(sj_d);
                ",
                size = x.model.size(&f.ty),
                get = x.get(&f.ty, &lv, "0", &sc),
                range = x.check_range(&f.ty, &lv, f.range),
                more = x.get_more(&f.ty, &lv, "0", &sc),
            )
        });
        c!(
            "
            (void)sj_d, (void)sj_v;
            $declared
            $arms
            ",
            declared = self.discriminant_is_declared(u),
            arms,
        )
    }

    /// With a default arm, values outside an enumeration would pass.
    fn discriminant_is_declared(&self, u: &Union) -> Code {
        let has_default = u.arms.iter().any(|a| a.cases.is_empty());
        match self.model.strip(&u.switch) {
            Ty::Named(id) if has_default => {
                let name = self.model.type_name(*id);
                require(format!("sj_is_of_{name}((int32_t)sj_k) && (int32_t)sj_k == sj_k"))
            }
            Ty::Scalar(crate::ir::Scalar::Bool) if has_default => require("sj_k == 0 || sj_k == 1"),
            _ => Code::new(),
        }
    }
}

/// The labels of an arm.
pub(super) fn cases(arm: &Arm) -> Code {
    if arm.cases.is_empty() {
        return c!("default:");
    }
    arm.cases.iter().map(|case| c!("case $n:", n = int64(*case))).collect()
}
