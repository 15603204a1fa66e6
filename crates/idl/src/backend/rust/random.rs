//! Random values for generated tests: `docs/reference/idl-random.md` as code that draws them.
//!
//! `r_` is the stream. Siblings that others name (counters and tags) are drawn first, as `c0_`,
//! `c1_`, ... of type `i128`.

use crate::ir::{Array, Expr, Scalar, Ty, TypeId, TypeKind, Union};
use crate::layout;

use super::controls::Values;
use super::model::{Gen, Shape, limits, scalar};
use super::op::Op;
use super::siblings::{self, Sibling, expr};

impl<'a> Gen<'a> {
    /// Functions that draw every structure and union.
    pub(super) fn random_types(&self) -> String {
        let mut out = String::new();
        for (index, def) in self.module.types.iter().enumerate() {
            let id = TypeId(index as u32);
            let (name, snake) = (self.type_name(id), self.type_snake(id));
            match &def.kind {
                TypeKind::Struct(s) => {
                    let list = siblings::fields(self, &s.fields);
                    let here: Vec<bool> = list.iter().map(|f| !f.ignore).collect();
                    let (drawn, values) = self.draw_controls(&list, &here, &[], &[]);
                    let mut body = drawn;
                    body.push_str(&self.draw_rest(&list, &here, &values));
                    let fields: Vec<String> = list
                        .iter()
                        .filter(|f| f.folded.is_none())
                        .map(|f| match f.ignore {
                            true => format!("{}: Default::default()", f.name),
                            false => f.name.clone(),
                        })
                        .collect();
                    out.push_str(&format!(
                        "fn random_{snake}(r_: &mut rt::random::Random) -> {name} {{ {body} \
                         {name} {{ {} }} }}\n",
                        fields.join(", ")
                    ));
                }
                TypeKind::Union(u) => out.push_str(&self.random_union(name, &snake, u)),
                _ => {}
            }
        }
        out
    }

    fn random_union(&self, name: &str, snake: &str, u: &'a Union) -> String {
        let mut arms = String::new();
        for v in self.union_variants(u) {
            let value = v.arm.field.as_ref().map(|f| {
                format!("r_.deeper({})", closure(&self.draw(&f.ty, f.range, &Vec::new())))
            });
            let tag = self.tag_value(u, "tag_");
            let made = match (value, v.has_tag) {
                (Some(value), true) => format!("{} {{ tag: {tag}, value: {value} }}", v.name),
                (Some(value), false) => format!("{}({value})", v.name),
                (None, true) => format!("{} {{ tag: {tag} }}", v.name),
                (None, false) => v.name.clone(),
            };
            let pattern = if v.arm.cases.is_empty() {
                "_".to_owned()
            } else {
                super::codec::tag_pattern(&v.arm.cases)
            };
            arms.push_str(&format!("{pattern} => {name}::{made},\n"));
        }
        if !u.arms.iter().any(|a| a.cases.is_empty()) {
            arms.push_str("_ => unreachable!(\"no such arm\"),\n");
        }
        format!(
            "fn tag_{snake}(r_: &mut rt::random::Random) -> i64 {{ {} }}\n\
             fn random_{snake}(r_: &mut rt::random::Random, tag_: i64) -> {name} {{ \
             match tag_ {{ {arms} }} }}\n",
            self.draw_tag(u)
        )
        .replace(
            "(r_: &mut rt::random::Random, tag_",
            if arms.contains("r_.") || arms.contains("(r_") {
                "(r_: &mut rt::random::Random, tag_"
            } else {
                "(_r: &mut rt::random::Random, tag_"
            },
        )
    }

    /// A discriminant as a value of its own type.
    fn tag_value(&self, u: &Union, tag: &str) -> String {
        match self.shape(&u.switch) {
            Shape::Enum(id) => self.enum_of(id, tag),
            Shape::Scalar(Scalar::Bool) => format!("{tag} != 0"),
            shape => format!("{tag} as {}", self.owned_shape(shape)),
        }
    }

    fn enum_of(&self, id: TypeId, number: &str) -> String {
        format!("{}::try_from({number} as i32).expect(\"a member\")", self.type_name(id))
    }

    /// An expression of type `i64` that draws a discriminant.
    fn draw_tag(&self, u: &Union) -> String {
        let lists: Vec<String> = u
            .arms
            .iter()
            .map(|arm| {
                let cases = if arm.cases.is_empty() {
                    vec![self.default_tag(u)]
                } else {
                    arm.cases.clone()
                };
                let texts: Vec<String> = cases.iter().map(|c| (*c as i64).to_string()).collect();
                (texts.join(", "), arm.cases.is_empty())
            })
            .map(|(list, is_default)| match is_default {
                true => list,
                false => format!("[{list}][r_.below({}) as usize]", list.matches(", ").count() + 1),
            })
            .collect();
        let arms = lists.iter().enumerate().fold(String::new(), |out, (i, text)| {
            let pattern = if i + 1 == lists.len() { "_".to_owned() } else { i.to_string() };
            format!("{out}{pattern} => {text}, ")
        });
        format!("match r_.below({}) {{ {arms} }}", lists.len())
    }

    fn default_tag(&self, u: &Union) -> i128 {
        let cases: Vec<i128> = u.arms.iter().flat_map(|a| a.cases.iter().copied()).collect();
        let free = |n: &i128| !cases.contains(n);
        let found = match layout::strip(self.module, &u.switch) {
            Ty::Named(id) => match layout::kind(self.module, *id) {
                Some(TypeKind::Enum(e)) => {
                    e.members.iter().map(|m| i128::from(m.value)).find(|n| free(n))
                }
                _ => None,
            },
            Ty::Scalar(Scalar::Bool) => (0..2).find(free),
            Ty::Scalar(s) => {
                let most = limits(*s).map_or(0, |l| l.1);
                (0..=most.min(cases.len() as i128)).find(free)
            }
            _ => None,
        };
        found.or_else(|| cases.first().copied()).unwrap_or(0)
    }

    /// Statements that draw what is neither counter nor tag, and give those their own types.
    pub(super) fn draw_rest(&self, list: &[Sibling<'_>], here: &[bool], values: &Values) -> String {
        let mut out = String::new();
        for (index, s) in list.iter().enumerate().filter(|(i, _)| here[*i]) {
            let control = self.control(list, index);
            if s.folded.is_some() {
                continue;
            }
            let draw = match (control, &values[index]) {
                (Some(_), Some(value)) => self.typed(s.ty, value),
                _ if s.dir.is_none() => self.draw(s.ty, s.range, values),
                _ => self.draw_param(s.ty, s.range, values),
            };
            out.push_str(&format!("let {} = {draw};", s.name));
        }
        out
    }

    /// An `i128` as a value of type `ty`.
    fn typed(&self, ty: &Ty, value: &str) -> String {
        match self.shape(ty) {
            Shape::Scalar(Scalar::Bool) => format!("{value} != 0"),
            Shape::Scalar(s) => format!("{value} as {}", scalar(s)),
            Shape::Enum(id) => self.enum_of(id, value),
            Shape::Unique(target) => format!("Some(Box::new({}))", self.typed(target, value)),
            _ => value.to_owned(),
        }
    }

    // ---- values ----

    fn draw_param(&self, ty: &Ty, range: Option<(i128, i128)>, values: &Values) -> String {
        match self.shape(ty) {
            Shape::Descriptor => "r_.descriptor()".to_owned(),
            _ => self.draw(ty, range, values),
        }
    }

    /// An expression that draws an owned value.
    pub(super) fn draw(&self, ty: &Ty, range: Option<(i128, i128)>, values: &Values) -> String {
        self.draw_shape(self.shape(ty), range, values)
    }

    fn draw_shape(&self, shape: Shape<'_>, range: Option<(i128, i128)>, values: &Values) -> String {
        let value = |e: &Expr| {
            expr(e, &|i| values.get(i).cloned().flatten()).unwrap_or_else(|| "0_i128".to_owned())
        };
        match shape {
            Shape::Scalar(s) => draw_scalar(s, range),
            Shape::Enum(id) => match layout::kind(self.module, id) {
                Some(TypeKind::Enum(e)) => {
                    let list: Vec<String> = e.members.iter().map(|m| m.value.to_string()).collect();
                    let number =
                        format!("[{}][r_.below({}) as usize]", list.join(", "), list.len());
                    self.enum_of(id, &number)
                }
                _ => String::new(),
            },
            Shape::Handle(id) => format!("{}::NULL", self.type_name(id)),
            Shape::Opaque(id, _) => {
                format!("{}(core::array::from_fn(|_| r_.bits(8) as u8))", self.type_name(id))
            }
            Shape::Struct(id) => format!("random_{}(r_)", self.type_snake(id)),
            Shape::Union(id, None) => {
                let snake = self.type_snake(id);
                format!("{{ let tag_ = tag_{snake}(r_); random_{snake}(r_, tag_) }}")
            }
            Shape::Union(id, Some(on)) => {
                format!("random_{}(r_, ({}) as i64)", self.type_snake(id), value(on))
            }
            Shape::Fixed(element, _) => {
                format!("core::array::from_fn(|_| {})", self.draw(element, None, values))
            }
            Shape::Array(array) => self.draw_array(array, &value, values),
            Shape::Str(s) => {
                let bound = s.bound.as_ref().map(value);
                let bound = bound.map_or("None".to_owned(), |b| format!("Some({b})"));
                let kind = if s.wide { "wide" } else { "narrow" };
                format!("r_.{kind}({bound})")
            }
            Shape::Unique(target) => {
                let inner = match self.shape(target) {
                    header @ (Shape::Array(_) | Shape::Str(_)) => {
                        self.draw_shape(header, None, values)
                    }
                    _ => {
                        let inner = closure(&self.draw(target, range, values));
                        format!("Box::new(r_.deeper({inner}))")
                    }
                };
                format!("if r_.present() {{ Some({inner}) }} else {{ None }}")
            }
            Shape::Shared(target) => {
                let shares = matches!(self.shape(target), Shape::Struct(_));
                format!("r_.shared({shares}, {})", closure(&self.draw(target, None, values)))
            }
            Shape::Descriptor => "rt::Descriptor::from(r_.descriptor())".to_owned(),
            Shape::Interface(reference) => {
                let uuid = reference.interface.and_then(|id| self.interface(id)).map(|i| i.uuid);
                match uuid {
                    Some(uuid) => format!("r_.interface(Some({uuid:?}))"),
                    None => "r_.interface(None)".to_owned(),
                }
            }
            Shape::Converted(id) => {
                let inner = self.draw_shape(self.wire_shape(id), range, values);
                format!("{}({inner}).expect(\"convertible\")", self.conversion(id).from_wire)
            }
        }
    }

    fn draw_array(
        &self,
        array: &Array,
        value: &dyn Fn(&Expr) -> String,
        values: &Values,
    ) -> String {
        let count = value(array.length.as_ref().unwrap_or(&array.size));
        let one = closure(&self.draw(&array.element, None, values));
        format!("r_.many(({count}) as usize, {one})")
    }

    // ---- operations ----

    /// Structures and functions that draw the request and the reply of an operation.
    pub(super) fn random_op(&self, op: &Op<'a>) -> String {
        let list = &op.wire_list;
        let is_in: Vec<bool> = list.iter().map(Sibling::is_in).collect();
        let outs: Vec<usize> = (0..list.len()).filter(|i| !is_in[*i]).collect();
        let (controls, values) = self.draw_controls(list, &is_in, &outs, &[]);
        let mut body = controls;
        body.push_str(&self.draw_rest(list, &is_in, &values));
        let (mut fields, mut names) = (String::new(), Vec::new());
        for s in list.iter().filter(|s| s.is_in() && s.folded.is_none()) {
            fields.push_str(&format!("pub {}: {},\n", s.name, self.owned_param(s.ty)));
            names.push(s.name.clone());
        }
        for (index, value) in values.iter().enumerate() {
            if value.is_some() {
                fields.push_str(&format!("pub c{index}_: i128,\n"));
                names.push(format!("c{index}_"));
            }
        }
        let r = super::text::used(&body, "r_");
        let mut out = format!(
            "#[derive(Debug)]\npub struct {0}RandomIn {{ {fields} }}\n\
             pub fn {1}_in({r}: &mut rt::random::Random) -> {0}RandomIn {{ {body} \
             {0}RandomIn {{ {2} }} }}\n",
            op.prefix,
            op.plain,
            names.join(", ")
        );
        if !op.op.oneway {
            out.push_str(&self.random_reply(op, &values));
        }
        out
    }

    fn random_reply(&self, op: &Op<'a>, request: &Values) -> String {
        let list = &op.wire_list;
        let is_out: Vec<bool> = list.iter().map(Sibling::is_out).collect();
        let known: Values = list
            .iter()
            .enumerate()
            .map(|(i, s)| (!s.is_out() && request[i].is_some()).then(|| format!("in_.c{i}_")))
            .collect();
        let (mut body, values) = self.draw_controls(list, &is_out, &[], &known);
        let (mut fields, mut names) = (String::new(), Vec::new());
        if let Some(ty) = &op.op.result {
            body.push_str(&format!("let ret = {};", self.draw_param(ty, None, &values)));
            fields.push_str(&format!("pub ret: {},\n", self.owned_param(ty)));
            names.push("ret".to_owned());
        }
        body.push_str(&self.draw_rest(list, &is_out, &values));
        for s in list.iter().filter(|s| s.is_out() && s.folded.is_none()) {
            fields.push_str(&format!("pub {}: {},\n", s.name, self.owned_param(s.ty)));
            names.push(s.name.clone());
        }
        format!(
            "#[derive(Debug)]\npub struct {0}RandomOut {{ {fields} }}\n\
             pub fn {1}_out({r}: &mut rt::random::Random, {i}: &{0}RandomIn) -> {0}RandomOut {{ \
             {body} {0}RandomOut {{ {2} }} }}\n",
            op.prefix,
            op.plain,
            names.join(", "),
            r = super::text::used(&body, "r_"),
            i = super::text::used(&body, "in_"),
        )
    }
}

/// What draws `value`, as a function of the stream.
fn closure(value: &str) -> String {
    match value.strip_suffix("(r_)").filter(|f| !f.contains(['{', '(', ' '])) {
        Some(function) => function.to_owned(),
        None => format!("|{}| {value}", super::text::used(value, "r_")),
    }
}

fn draw_scalar(s: Scalar, range: Option<(i128, i128)>) -> String {
    let name = scalar(s);
    match (s, range) {
        (Scalar::Bool, _) => "r_.bits(1) != 0".to_owned(),
        (Scalar::F32, _) => "r_.float()".to_owned(),
        (Scalar::F64, _) => "f64::from(r_.float())".to_owned(),
        (_, Some((low, high))) => format!("r_.ranged({low}, {high}) as {name}"),
        (Scalar::U64, None) => "r_.bits(64)".to_owned(),
        (_, None) => format!("r_.bits({}) as {name}", layout::scalar_size(s) * 8),
    }
}
