//! Emission of functions that draw random values: `docs/reference/idl-random.md` in C.

use crate::ir::{Arm, Encapsulation, Expr, IntRange, Scalar, Ty, TypeId, TypeKind, Union};

use super::emit::{Emit, Scope};
use super::encode::ArrayNumbers;
use super::expr::Sibling;
use super::model::{visit_exprs, visit_vars};
use super::template::{Code, c};
use super::text::int64;
use super::unions::cases;

/// A member of a list that is drawn together.
pub(super) struct Item<'a> {
    /// Which sibling it is; `None` for the result of an operation.
    pub(super) index: Option<u32>,
    pub(super) lv: String,
    pub(super) ty: &'a Ty,
    pub(super) range: Option<IntRange>,
    /// Elements go to the memory there is.
    pub(super) in_buffer: bool,
    /// Null, not drawn.
    pub(super) ignore: bool,
}

/// All types whose expressions speak about a list.
pub(super) struct List<'a> {
    pub(super) types: Vec<&'a Ty>,
    /// Siblings whose values are there before anything is drawn.
    pub(super) known: Vec<u32>,
}

/// What a pointer points to.
pub(super) struct Behind {
    /// Gives the pointer memory to point to.
    pub(super) memory: Code,
    /// C expression of the target.
    pub(super) target: String,
}

/// The values of an integer as C constants of 64 bits.
pub(super) struct Span {
    pub(super) low: String,
    /// The number of values; 2^64 is 0.
    pub(super) count: String,
}

pub(super) fn span(range: IntRange) -> Span {
    let count = (range.high - range.low + 1) as u64;
    Span { low: format!("(uint64_t){}", int64(range.low)), count: format!("UINT64_C({count})") }
}

impl<'a> List<'a> {
    /// The union that a sibling selects the arm of.
    fn tag_of(&self, index: u32) -> Option<TypeId> {
        fn find(ty: &Ty, index: u32) -> Option<TypeId> {
            match ty {
                Ty::Fixed(t, _) | Ty::Pointer(_, t) => find(t, index),
                Ty::Array(a) => find(&a.element, index),
                Ty::Union(id, Expr::Var { index: i, .. }) if *i == index => Some(*id),
                _ => None,
            }
        }
        self.types.iter().find_map(|t| find(t, index))
    }

    fn is_counted(&self, index: u32) -> bool {
        let mut any = false;
        for ty in &self.types {
            visit_sizes(ty, &mut |e| visit_vars(e, &mut |i| any |= i == index));
        }
        any
    }
}

/// Expressions of arrays and strings, not of unions.
fn visit_sizes<'t>(ty: &'t Ty, f: &mut dyn FnMut(&'t Expr)) {
    match ty {
        Ty::Union(..) => {}
        Ty::Fixed(t, _) | Ty::Pointer(_, t) => visit_sizes(t, f),
        Ty::Array(a) => {
            f(&a.size);
            f(&a.first);
            if let Some(l) = &a.length {
                f(l);
            }
            visit_sizes(&a.element, f);
        }
        other => visit_exprs(other, f),
    }
}

impl<'a> Emit<'a> {
    fn is_integer(&self, ty: &Ty) -> bool {
        match self.model.strip(ty) {
            Ty::Scalar(s) => !matches!(s, Scalar::Bool | Scalar::F32 | Scalar::F64),
            Ty::Pointer(_, t) => self.is_integer(t),
            _ => false,
        }
    }

    /// Draws a list: tags and counters first, until the sizes are possible, then everything else.
    pub(super) fn draw_list(
        &mut self,
        list: &List<'_>,
        items: &[Item<'_>],
        sc: &Scope<'_>,
    ) -> Code {
        let tag = |x: &Item<'_>| x.index.and_then(|i| list.tag_of(i));
        let is_counter = |e: &Self, x: &Item<'_>| {
            tag(x).is_none() && x.index.is_some_and(|i| list.is_counted(i)) && e.is_integer(x.ty)
        };
        let first: Vec<&Item<'_>> = items
            .iter()
            .filter(|x| !x.ignore && (tag(x).is_some() || is_counter(self, x)))
            .collect();
        let mut out = Code::new();
        if !first.is_empty() {
            out += &self.draw_controls(list, &first, sc);
        }
        for x in items {
            if x.ignore {
                out += &c!("$lv = NULL;", lv = x.lv);
            } else if tag(x).is_none() && !is_counter(self, x) {
                out += &self.draw_item(x, sc);
            }
        }
        out
    }

    /// Draws tags and counters until the sizes are possible, or takes the lowest.
    fn draw_controls(&self, list: &List<'_>, first: &[&Item<'_>], sc: &Scope<'_>) -> Code {
        let tag = |x: &Item<'_>| x.index.and_then(|i| list.tag_of(i));
        let mut known = list.known.clone();
        known.extend(first.iter().filter_map(|x| x.index));
        let conditions = self.possible(list, &known, sc);
        let (mut draws, mut lowest) = (Code::new(), Code::new());
        for x in first {
            draws += &match tag(x) {
                Some(id) => self.draw_tag(x.ty, &x.lv, id),
                None => self.draw_counter(x.ty, &x.lv, x.range),
            };
            if tag(x).is_none() {
                lowest += &self.lowest(x.ty, &x.lv, x.range);
            }
        }
        if conditions.is_empty() {
            return c!(
                "
                {
                    $draws
                }
                ",
                draws,
            );
        }
        c!(
            "
            for (int sj_try = 0;; sj_try++) {
                $draws
                if ($conditions)
                    break;
                if (sj_try == 255) {
                    $lowest
                    break;
                }
            }
            ",
            draws,
            conditions = conditions.join(" && "),
            lowest,
        )
    }

    /// Conditions on the sizes that are known by now.
    fn possible(&self, list: &List<'_>, known: &[u32], sc: &Scope<'_>) -> Vec<String> {
        let mut all = Vec::new();
        for ty in &list.types {
            self.possible_in(ty, known, sc, &mut all);
        }
        all
    }

    fn possible_in(&self, ty: &Ty, known: &[u32], sc: &Scope<'_>, all: &mut Vec<String>) {
        let is_known = |e: &Expr| {
            let mut yes = true;
            visit_vars(e, &mut |i| yes &= known.contains(&i));
            yes
        };
        match ty {
            Ty::Fixed(t, _) | Ty::Pointer(_, t) => self.possible_in(t, known, sc, all),
            Ty::String(s) => {
                if let Some(b) = s.bound.as_ref().filter(|b| is_known(b)) {
                    all.push(format!("sj_random_is_bound({})", self.model.expr(b, &sc.siblings)));
                }
            }
            Ty::Array(a) => {
                let length_known = a.length.as_ref().is_none_or(is_known);
                if is_known(&a.size) && is_known(&a.first) && length_known {
                    let ArrayNumbers { whole, first, count } = self.array_numbers(a, sc);
                    all.push(format!("sj_random_is_possible({whole}, {first}, {count})"));
                }
                self.possible_in(&a.element, known, sc, all);
            }
            _ => {}
        }
    }

    pub(super) fn behind(&self, t: &Ty, lv: &str) -> Behind {
        let memory = c!(
            "$lv = ($cast)sj_random_memory(sj_r, 1, sizeof($name));",
            lv,
            cast = self.model.pointer(t),
            name = self.model.name(t),
        );
        Behind { memory, target: self.model.target(t, lv) }
    }

    fn draw_counter(&self, ty: &Ty, lv: &str, range: Option<IntRange>) -> Code {
        if let Ty::Pointer(_, t) = self.model.strip(ty) {
            let Behind { memory, target } = self.behind(t, lv);
            return memory + &self.draw_counter(t, &target, range);
        }
        let Span { low, count } = span(range.unwrap_or(IntRange::new(0, 8)));
        let name = self.model.name(ty);
        c!("$lv = ($name)sj_random_counter(sj_r, $low, $count);", lv, name, low, count)
    }

    /// A counter's lowest value, where no draw gave possible sizes.
    fn lowest(&self, ty: &Ty, lv: &str, range: Option<IntRange>) -> Code {
        if let Ty::Pointer(_, t) = self.model.strip(ty) {
            let target = self.model.target(t, lv);
            return self.lowest(t, &target, range);
        }
        let (name, low) = (self.model.name(ty), int64(range.map_or(0, |range| range.low)));
        c!("$lv = ($name)$low;", lv, name, low)
    }

    fn draw_tag(&self, ty: &Ty, lv: &str, id: TypeId) -> Code {
        if let Ty::Pointer(_, t) = self.model.strip(ty) {
            let Behind { memory, target } = self.behind(t, lv);
            return memory + &self.draw_tag(t, &target, id);
        }
        let Some(TypeKind::Union(u)) = self.model.def(id).map(|d| &d.kind) else {
            return Code::new();
        };
        let name = self.model.name(ty);
        let mut arms = Code::new();
        for (i, arm) in u.arms.iter().enumerate() {
            let draw = if arm.cases.is_empty() {
                c!("$lv = ($name)$value;", lv, name, value = int64(self.default_case(u)))
            } else {
                let cases: Vec<String> = arm.cases.iter().map(|c| int64(*c)).collect();
                c!(
                    "
                    static const int64_t sj_k[] = {$cases};
                    $lv = ($name)sj_k[sj_random_below(sj_r, $count)];
                    ",
                    cases = cases.join(", "),
                    lv,
                    name,
                    count = cases.len(),
                )
            };
            arms += &c!(
                "
                case $i: {
                    $draw
                    break;
                }
                ",
                i,
                draw,
            );
        }
        c!(
            "
            switch (sj_random_below(sj_r, $count)) {
                $arms
            }
            ",
            count = u.arms.len(),
            arms,
        )
    }

    /// A value that selects the default arm.
    fn default_case(&self, u: &Union) -> i128 {
        let is_case = |n: i128| u.arms.iter().any(|a: &Arm| a.cases.contains(&n));
        let fallback = u.arms.iter().find_map(|a| a.cases.first().copied()).unwrap_or(0);
        let (values, most): (Vec<i128>, i128) = match self.model.strip(&u.switch) {
            Ty::Named(id) => match self.model.def(*id).map(|d| &d.kind) {
                Some(TypeKind::Enum(e)) => {
                    (e.members.iter().map(|m| i128::from(m.value)).collect(), 0)
                }
                _ => (Vec::new(), 0),
            },
            Ty::Scalar(Scalar::Bool) => (vec![0, 1], 0),
            Ty::Scalar(Scalar::I8) => (Vec::new(), 0x7F),
            Ty::Scalar(Scalar::Char | Scalar::Byte | Scalar::U8) => (Vec::new(), 0xFF),
            _ => (Vec::new(), 0x7FFF),
        };
        let mut all = values.into_iter().chain(0..=most);
        all.find(|n| !is_case(*n) && (most != 0 || self.is_declared(u, *n))).unwrap_or(fallback)
    }

    fn is_declared(&self, u: &Union, n: i128) -> bool {
        match self.model.strip(&u.switch) {
            Ty::Named(id) => match self.model.def(*id).map(|d| &d.kind) {
                Some(TypeKind::Enum(e)) => e.members.iter().any(|m| i128::from(m.value) == n),
                _ => true,
            },
            _ => n == 0 || n == 1,
        }
    }

    /// Drawing functions of all structures and unions.
    pub(super) fn draw_functions(&mut self) -> Code {
        let count = u32::try_from(self.model.m.types.len()).unwrap_or(0);
        let (mut prototypes, mut functions) = (Code::new(), Code::new());
        for id in (0..count).map(TypeId) {
            let Some(def) = self.model.def(id) else { continue };
            let name = self.model.type_name(id);
            let (head, draw) = match &def.kind {
                TypeKind::Union(u) if u.encapsulated.is_none() => (
                    format!(
                        "static inline void sj_draw_arm_of_{name}(sj_random *sj_r, int64_t sj_k, {name} *sj_v)"
                    ),
                    self.draw_union(id, u),
                ),
                TypeKind::Union(u) => (draw_head(&name), self.draw_union(id, u)),
                TypeKind::Struct(s) => (draw_head(&name), self.draw_fields(s)),
                _ => continue,
            };
            prototypes += &c!("$head;", head);
            functions += &c!(
                "

                $head
                {
                    (void)sj_r;
                    memset(sj_v, 0, sizeof *sj_v);
                    $draw
                }
                ",
                head,
                draw,
            );
        }
        prototypes + &functions
    }

    fn draw_fields(&mut self, s: &crate::ir::Struct) -> Code {
        let items: Vec<Item<'_>> = (0_u32..)
            .zip(&s.fields)
            .map(|(i, f)| Item {
                index: Some(i),
                lv: format!("sj_v->{}", f.name),
                ty: &f.ty,
                range: f.range,
                in_buffer: false,
                ignore: f.ignore,
            })
            .collect();
        let list = List { types: s.fields.iter().map(|f| &f.ty).collect(), known: Vec::new() };
        self.draw_list(&list, &items, &super::record::scope(s))
    }

    fn draw_union(&mut self, id: TypeId, u: &Union) -> Code {
        let (draw_tag, prefix) = match &u.encapsulated {
            None => (Code::new(), "sj_v->".to_owned()),
            Some(Encapsulation { tag, member }) => {
                let tag = format!("sj_v->{tag}");
                let draw = self.draw_tag(&u.switch, &tag, id);
                let value = self.model.expr(
                    &Expr::Var { index: 0, deref: false },
                    &[Sibling { lv: tag, ty: &u.switch }],
                );
                let keep = c!("const int64_t sj_k = $value;", value);
                (draw + &keep, format!("sj_v->{member}."))
            }
        };
        let mut arms = Code::new();
        for arm in &u.arms {
            let draw = arm.field.as_ref().map(|f| {
                let item = Item {
                    index: None,
                    lv: format!("{prefix}{}", f.name),
                    ty: &f.ty,
                    range: f.range,
                    in_buffer: false,
                    ignore: f.ignore,
                };
                self.draw_item(&item, &Scope::new(Vec::new()))
            });
            arms += &c!(
                "
                $cases
                {
                    $draw
                    break;
                }
                ",
                cases = cases(arm),
                draw = draw.unwrap_or_default(),
            );
        }
        c!(
            "
            $tag
            sj_r->depth++;
            switch (sj_k) {
                $arms
            }
            sj_r->depth--;
            ",
            tag = draw_tag,
            arms,
        )
    }
}

fn draw_head(name: &str) -> String {
    format!("static inline void sj_draw_of_{name}(sj_random *sj_r, {name} *sj_v)")
}
