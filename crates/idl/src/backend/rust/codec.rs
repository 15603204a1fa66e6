//! Functions that measure, write and read the named types.

use crate::ir::{Field, Struct, TypeId, TypeKind, Union};
use crate::layout;

use super::decode::Keep;
use super::encode::Env;
use super::model::{Gen, Shape, limits, threshold};
use super::siblings;
use super::siblings::{Sibling, Source, number};
use super::text::{unref, used};

impl<'a> Gen<'a> {
    /// The functions of every structure and union.
    pub(super) fn codecs(&self) -> String {
        let mut out = String::new();
        for (index, def) in self.module.types.iter().enumerate() {
            let id = TypeId(index as u32);
            match &def.kind {
                TypeKind::Struct(s) => out.push_str(&self.struct_codec(id, s)),
                TypeKind::Union(u) => out.push_str(&self.union_codec(id, u)),
                _ => {}
            }
        }
        out
    }

    /// What siblings are worth when their borrowed forms are `texts`.
    pub(super) fn values(
        &self,
        list: &[Sibling<'_>],
        texts: &[Option<String>],
    ) -> Vec<Option<String>> {
        list.iter()
            .zip(texts)
            .map(|(sibling, text)| match sibling.folded {
                Some(Source::Len(other)) => {
                    texts[other].as_ref().map(|t| format!("{}.len() as i128", unref(t)))
                }
                Some(Source::Tag(other)) => {
                    texts[other].as_ref().map(|t| format!("i128::from({}.tag())", unref(t)))
                }
                None => text.as_ref().and_then(|t| number(self, sibling.ty, t)),
            })
            .collect()
    }

    /// What a folded sibling travels as.
    pub(super) fn folded_value(&self, sibling: &Sibling<'_>, texts: &[Option<String>]) -> String {
        let text = |other: usize| texts[other].clone().unwrap_or_default();
        let shape = self.shape(sibling.ty);
        match (sibling.folded, shape) {
            (Some(Source::Len(other)), _) => {
                format!("{}.len() as {}", text(other), self.owned_shape(shape))
            }
            (Some(Source::Tag(other)), _) => format!("{}.tag()", unref(&text(other))),
            (None, _) => text(0),
        }
    }

    /// Statements that place a folded sibling at `at`.
    pub(super) fn place_folded(
        &self,
        sibling: &Sibling<'_>,
        at: u64,
        texts: &[Option<String>],
    ) -> String {
        let value = self.folded_value(sibling, texts);
        let ty = match self.shape(sibling.ty) {
            Shape::Enum(_) => "i32".to_owned(),
            Shape::Scalar(crate::ir::Scalar::Bool) => "u8".to_owned(),
            shape => self.owned_shape(shape),
        };
        match sibling.folded {
            Some(Source::Tag(_)) if ty != "i64" => {
                format!("b_.put::<{at}, {ty}>({value} as {ty});")
            }
            _ => format!("b_.put::<{at}, {ty}>({value});"),
        }
    }

    /// Statements that check that a folded sibling can say what it must.
    pub(super) fn measure_folded(&self, sibling: &Sibling<'_>, texts: &[Option<String>]) -> String {
        let Some(Source::Len(other)) = sibling.folded else { return String::new() };
        let Shape::Scalar(s) = self.shape(sibling.ty) else { return String::new() };
        let Some((least, most)) = limits(s) else { return String::new() };
        let (low, high) = sibling.range.map_or((least, most), |(l, h)| (l.max(least), h.min(most)));
        let len = format!("{}.len()", texts[other].clone().unwrap_or_default());
        let mut out = String::new();
        let top = i128::from(u32::MAX);
        if high < top {
            let high = high.max(0);
            out.push_str(&format!("rt::ensure({len} <= {high}, rt::EncodeError::TooLong)?;"));
        }
        if low > 0 {
            out.push_str(&format!("rt::ensure({len} >= {low}, rt::EncodeError::Range)?;"));
        }
        out
    }

    fn struct_codec(&self, id: TypeId, s: &'a Struct) -> String {
        let name = self.type_name(id);
        let snake = self.type_snake(id);
        let layout = layout::struct_layout(self.module, s);
        let list = siblings::fields(self, &s.fields);
        let texts: Vec<Option<String>> = list.iter().map(|f| self.field_text(f)).collect();
        let env =
            Env { values: self.values(&list, &texts), threshold: threshold(&[self.local(id)]) };
        let (mut place, mut follow, mut measure) = (String::new(), String::new(), String::new());
        for (index, field) in list.iter().enumerate() {
            let Some(slot) = &layout.fields[index] else { continue };
            if field.folded.is_some() {
                place.push_str(&self.place_folded(field, slot.offset, &texts));
                measure.push_str(&self.measure_folded(field, &texts));
                continue;
            }
            let text = texts[index].clone().unwrap_or_default();
            let shape = self.shape(field.ty);
            measure.push_str(&self.measure_range(field.ty, field.range, &text));
            measure.push_str(&self.measure(shape, &text, &env));
            place.push_str(&self.place(shape, slot.offset, &text, &env));
            follow.push_str(&self.follow(shape, &text, &env));
        }
        for (at, len) in &layout.padding {
            place.push_str(&format!("b_.zero::<{at}, {len}>();"));
        }
        let mut out = self.functions(&snake, name, layout.size, [&measure, &place, &follow]);
        if self.has_slots(id) {
            out.push_str(&self.slots_const(&snake, s, &layout));
        }
        let body = self.struct_body(name, &list, &layout);
        out.push_str(&get_function(&snake, name, layout.size, &body));
        out
    }

    /// The borrowed form of a field of `v_`; `None` for folded ones.
    fn field_text(&self, field: &Sibling<'_>) -> Option<String> {
        (field.folded.is_none() && !field.ignore)
            .then(|| self.borrow(self.shape(field.ty), &format!("v_.{}", field.name)))
    }

    fn slots_const(&self, snake: &str, s: &'a Struct, layout: &layout::StructLayout) -> String {
        let list: Vec<String> = s
            .fields
            .iter()
            .zip(&layout.fields)
            .filter_map(|(f, slot)| Some(self.slot_list(&f.ty, slot.as_ref()?.offset)))
            .flatten()
            .collect();
        let name = snake.to_ascii_uppercase();
        format!("const SLOTS_{name}: &[rt::Slot] = &[{}];\n", list.join(", "))
    }

    fn struct_body(
        &self,
        name: &str,
        list: &[Sibling<'_>],
        layout: &layout::StructLayout,
    ) -> String {
        let mut body: String =
            layout.padding.iter().map(|(at, len)| format!("v_.zero::<{at}, {len}>()?;")).collect();
        let slots: Vec<Option<u64>> =
            layout.fields.iter().map(|s| s.as_ref().map(|s| s.offset)).collect();
        let one = |s: &Sibling<'_>, at: u64, env: &Env| self.get_one(s, at, Keep::Own, env);
        body.push_str(&self.get_list(list, &slots, &[], &one));
        let fields: Vec<&str> =
            list.iter().filter(|f| f.folded.is_none()).map(|f| f.name.as_str()).collect();
        body.push_str(&format!("Ok({name} {{ {} }})", fields.join(", ")));
        body
    }

    /// Statements `let name = ...;` for every sibling: numbers first, because sizes name them.
    /// `known` gives what siblings that do not travel here are worth, `one` reads one that does.
    pub(super) fn get_list<'t>(
        &self,
        list: &[Sibling<'t>],
        slots: &[Option<u64>],
        known: &[Option<String>],
        one: &dyn Fn(&Sibling<'t>, u64, &Env) -> String,
    ) -> String {
        let value = |index: usize, s: &Sibling<'_>| {
            if slots[index].is_none() {
                return known.get(index).cloned().flatten();
            }
            match (s.folded, self.shape(s.ty)) {
                (Some(_), Shape::Enum(_)) => Some(format!("i128::from({})", s.name)),
                (_, Shape::Scalar(_) | Shape::Enum(_)) => number(self, s.ty, &s.name),
                _ => None,
            }
        };
        let values = list.iter().enumerate().map(|(i, s)| value(i, s)).collect();
        let env = Env { values, threshold: String::new() };
        let is_number =
            |s: &Sibling<'_>| matches!(self.shape(s.ty), Shape::Scalar(_) | Shape::Enum(_));
        let mut out = String::new();
        for numbers in [true, false] {
            for (s, slot) in list.iter().zip(slots).filter(|(s, _)| is_number(s) == numbers) {
                out.push_str(&match (slot, s.folded, self.shape(s.ty)) {
                    (None, ..) if s.ignore => format!("let {} = Default::default();", s.name),
                    (None, ..) => String::new(),
                    (Some(at), Some(_), Shape::Enum(_)) => {
                        format!("let {} = v_.get::<{at}, i32>();", s.name)
                    }
                    (Some(at), ..) => one(s, *at, &env),
                });
            }
        }
        out
    }

    /// Statement that reads a sibling.
    pub(super) fn get_one(&self, s: &Sibling<'_>, at: u64, keep: Keep, env: &Env) -> String {
        format!("let {} = {};", s.name, self.get_ranged(s.ty, s.range, at, keep, env))
    }

    /// `measure_`, `place_` and `follow_` of a type, those that have something to do.
    fn functions(&self, snake: &str, name: &str, size: u64, texts: [&str; 3]) -> String {
        let [measure, place, follow] = texts;
        let mut out = String::new();
        if !measure.is_empty() {
            let m = used(measure, "m_");
            out.push_str(&format!(
                "fn measure_{snake}({m}: &mut rt::Measure, v_: &{name}) \
                 -> Result<(), rt::EncodeError> {{ {measure} Ok(()) }}\n"
            ));
        }
        let w = used(place, "w_");
        let b = used(place, "b_");
        let v = used(place, "v_");
        out.push_str(&format!(
            "#[inline]\nfn place_{snake}<'e, 'd>({w}: &mut rt::Writer<'e, 'd>, \
             {b}: rt::Block<'e, {size}>, {v}: &'d {name}) \
             -> Result<(), rt::EncodeError> {{ {place} Ok(()) }}\n"
        ));
        if !follow.is_empty() {
            out.push_str(&format!(
                "fn follow_{snake}<'d>(w_: &mut rt::Writer<'_, 'd>, v_: &'d {name}) \
                 -> Result<(), rt::EncodeError> {{ {follow} Ok(()) }}\n"
            ));
        }
        out
    }

    fn union_codec(&self, id: TypeId, u: &'a Union) -> String {
        let name = self.type_name(id);
        let snake = self.type_snake(id);
        let env = Env { values: Vec::new(), threshold: threshold(&[self.local(id)]) };
        let (mut measure, mut follow, mut get) = (String::new(), String::new(), String::new());
        for v in self.union_variants(u) {
            let arm = v.arm;
            let field = arm.field.as_ref();
            let pattern = |value: &str| match (field.is_some(), v.has_tag) {
                (true, true) => format!("{name}::{} {{ value: {value}, .. }}", v.name),
                (true, false) => format!("{name}::{}({value})", v.name),
                (false, true) => format!("{name}::{} {{ .. }}", v.name),
                (false, false) => format!("{name}::{}", v.name),
            };
            let mut measured = String::new();
            if v.has_tag {
                let condition = tag_condition(u, &v.arm.cases, "v_.tag()");
                measured.push_str(&format!("rt::ensure({condition}, rt::EncodeError::Mismatch)?;"));
            }
            let mut written = String::new();
            if let Some(f) = field {
                let text = self.borrow(self.shape(&f.ty), "(*x_)");
                measured.push_str(&self.measure_range(&f.ty, f.range, &text));
                measured.push_str(&self.measure_object(&f.ty, "(*x_)", &env));
                written = self.follow_object(&f.ty, &text, &env);
            }
            let bound = |text: &str| used(text, "x_");
            measure.push_str(&format!("{} => {{ {measured} }}\n", pattern(bound(&measured))));
            follow.push_str(&format!("{} => {{ {written} }}\n", pattern(bound(&written))));
            get.push_str(&self.union_arm(
                u,
                name,
                &v.name,
                v.has_tag,
                arm.field.as_ref(),
                &arm.cases,
            ));
        }
        if !u.arms.iter().any(|a| a.cases.is_empty()) {
            get.push_str("_ => Err(v_.error(rt::Cause::Discriminant, 0)),\n");
        }
        let measure =
            if u.arms.is_empty() { String::new() } else { format!("match v_ {{ {measure} }}") };
        let has_objects = u.arms.iter().any(|a| a.field.is_some());
        let follow = if has_objects { format!("match v_ {{ {follow} }}") } else { String::new() };
        // A union's place is its discriminant alone, which whoever holds it writes.
        let mut out = format!(
            "fn measure_{snake}({}: &mut rt::Measure, v_: &{name}) \
             -> Result<(), rt::EncodeError> {{ {measure} Ok(()) }}\n",
            used(&measure, "m_")
        );
        if has_objects {
            out.push_str(&format!(
                "fn follow_{snake}<'d>(w_: &mut rt::Writer<'_, 'd>, v_: &'d {name}) \
                 -> Result<(), rt::EncodeError> {{ {follow} Ok(()) }}\n"
            ));
        }
        let body = format!("let tag_ = v_.get::<0, i64>(); match tag_ {{ {get} }}");
        out.push_str(&get_function(&snake, name, 8, &body));
        out
    }

    fn union_arm(
        &self,
        u: &Union,
        name: &str,
        variant: &str,
        has_tag: bool,
        field: Option<&Field>,
        cases: &[i128],
    ) -> String {
        let env = Env { values: Vec::new(), threshold: String::new() };
        let value = field.map(|f| {
            let (size, slots) = (self.size(&f.ty), self.slots(&f.ty));
            let inner = self.get_ranged(&f.ty, f.range, 0, Keep::Own, &env);
            let inner = super::decode::as_result(&inner);
            let d = used(&inner, "d_");
            format!("d_.object::<{size}, _>({slots}, |{d}, v_| {inner})?")
        });
        let pattern = if cases.is_empty() { "_".to_owned() } else { tag_pattern(cases) };
        let tag = self.tag_of(u);
        let made = match (value, has_tag) {
            (Some(value), true) => format!("{variant} {{ tag: {tag}, value: {value} }}"),
            (Some(value), false) => format!("{variant}({value})"),
            (None, true) => format!("{variant} {{ tag: {tag} }}"),
            (None, false) => variant.to_owned(),
        };
        format!("{pattern} => Ok({name}::{made}),\n")
    }

    /// The discriminant `tag_` as its own type.
    fn tag_of(&self, u: &Union) -> String {
        let wrong = "map_err(|_| v_.error(rt::Cause::Discriminant, 0))?";
        match self.shape(&u.switch) {
            Shape::Enum(id) => format!(
                "i32::try_from(tag_).ok().and_then(|t| {}::try_from(t).ok())\
                 .ok_or_else(|| v_.error(rt::Cause::Discriminant, 0))?",
                self.type_name(id)
            ),
            Shape::Scalar(crate::ir::Scalar::Bool) => "match tag_ { 0 => false, 1 => true, \
                 _ => return Err(v_.error(rt::Cause::Discriminant, 0)) }"
                .to_owned(),
            Shape::Scalar(crate::ir::Scalar::I64) => "tag_".to_owned(),
            Shape::Scalar(crate::ir::Scalar::U64) => "tag_.cast_unsigned()".to_owned(),
            shape => format!("{}::try_from(tag_).{wrong}", self.owned_shape(shape)),
        }
    }
}

/// Discriminants as they travel, 64 bits each, as a pattern.
pub(super) fn tag_pattern(cases: &[i128]) -> String {
    let mut tags: Vec<i64> = cases.iter().map(|c| *c as i64).collect();
    tags.sort_unstable();
    tags.dedup();
    let runs = tags.chunk_by(|a, b| a.checked_add(1) == Some(*b));
    let texts: Vec<String> = runs
        .flat_map(|run| match run {
            [first, _, .., last] => vec![format!("{first}..={last}")],
            few => few.iter().map(ToString::to_string).collect(),
        })
        .collect();
    texts.join(" | ")
}

/// Whether `tag` is one of `cases`, or for a default arm none of the others.
fn tag_condition(u: &Union, cases: &[i128], tag: &str) -> String {
    if !cases.is_empty() {
        return format!("matches!({tag}, {})", tag_pattern(cases));
    }
    let others: Vec<i128> = u.arms.iter().flat_map(|a| a.cases.iter().copied()).collect();
    if others.is_empty() {
        "true".to_owned()
    } else {
        format!("!matches!({tag}, {})", tag_pattern(&others))
    }
}

fn get_function(snake: &str, name: &str, size: u64, body: &str) -> String {
    let d = used(body, "d_");
    let v = used(body, "v_");
    format!(
        "#[inline]\nfn get_{snake}({d}: &mut rt::Decoder<'_>, {v}: rt::View<'_, {size}>) \
         -> Result<{name}, rt::DecodeError> {{ {body} }}\n"
    )
}
