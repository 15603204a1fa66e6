//! Counters and tags of random values: drawn first, checked against what names them.
//!
//! `docs/reference/idl-random.md`, "Lists of siblings", as code that draws. In generated code they
//! are `c0_`, `c1_`, ... of type `i128`.

use crate::ir::{Expr, StringTy, Ty};

use super::model::{Gen, Shape, limits};
use super::siblings::{self, Sibling, expr};

/// What a sibling that others name is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Control {
    Counter,
    Tag,
}

/// Values by sibling, as `i128` expressions.
pub(super) type Values = Vec<Option<String>>;

impl Gen<'_> {
    pub(super) fn control(&self, list: &[Sibling<'_>], index: usize) -> Option<Control> {
        let (mut switches, mut counts) = (false, Vec::new());
        for s in list {
            if let Shape::Union(_, Some(Expr::Var { index: on, .. })) = self.shape(s.ty) {
                switches |= *on as usize == index;
            }
            self.counts_in(s.ty, &mut counts);
        }
        if switches {
            return Some(Control::Tag);
        }
        let is_integer =
            |ty: &Ty| matches!(self.shape(ty), Shape::Scalar(s) if limits(s).is_some());
        let ty = list[index].ty;
        let integer =
            is_integer(ty) || matches!(self.shape(ty), Shape::Unique(target) if is_integer(target));
        (integer && counts.contains(&index)).then_some(Control::Counter)
    }

    /// Siblings named in sizes, lengths and bounds.
    fn counts_in(&self, ty: &Ty, out: &mut Vec<usize>) {
        match self.shape(ty) {
            Shape::Array(array) => {
                siblings::vars(&array.size, out);
                siblings::vars(&array.first, out);
                array.length.iter().for_each(|l| siblings::vars(l, out));
                self.counts_in(&array.element, out);
            }
            Shape::Str(s) => s.bound.iter().for_each(|b| siblings::vars(b, out)),
            Shape::Unique(t) | Shape::Shared(t) | Shape::Fixed(t, _) => self.counts_in(t, out),
            _ => {}
        }
    }

    /// Statement that draws the counters and tags that are `here`, and what each is worth. Arrays
    /// `checked` beside those that are here are checked too; `known` has the values of the others.
    pub(super) fn draw_controls(
        &self,
        list: &[Sibling<'_>],
        here: &[bool],
        checked: &[usize],
        known: &[Option<String>],
    ) -> (String, Values) {
        let mut values: Values = (0..list.len()).map(|i| known.get(i).cloned().flatten()).collect();
        let (mut names, mut draws, mut lowest) = (Vec::new(), String::new(), Vec::new());
        for (index, s) in list.iter().enumerate().filter(|(i, _)| here[*i]) {
            let Some(control) = self.control(list, index) else { continue };
            let name = format!("c{index}_");
            let (low, high) = s.range.unwrap_or((0, 8));
            let draw = match control {
                Control::Counter => format!("r_.counter({low}, {high})"),
                Control::Tag => format!("i128::from({})", self.draw_tag_of(list, index)),
            };
            draws.push_str(&format!("let {name} = {draw};"));
            lowest.push(if control == Control::Counter { low.to_string() } else { name.clone() });
            values[index] = Some(name.clone());
            names.push(name);
        }
        if names.is_empty() {
            return (String::new(), values);
        }
        let mut conditions = Vec::new();
        for (index, s) in list.iter().enumerate() {
            if here[index] || checked.contains(&index) {
                self.conditions(s.ty, &values, &mut conditions);
            }
        }
        let tuple = |items: &[String]| match items {
            [one] => one.clone(),
            many => format!("({})", many.join(", ")),
        };
        let text = if conditions.is_empty() {
            draws
        } else {
            format!(
                "let {0} = {{ let mut tries_ = 0; loop {{ {draws} tries_ += 1; \
                 if {1} {{ break {0}; }} if tries_ == 256 {{ break {2}; }} }} }};",
                tuple(&names),
                conditions.join(" && "),
                tuple(&lowest)
            )
        };
        (text, values)
    }

    /// The draw of the tag `index`, by the first union that switches on it.
    fn draw_tag_of(&self, list: &[Sibling<'_>], index: usize) -> String {
        list.iter()
            .find_map(|s| match self.shape(s.ty) {
                Shape::Union(id, Some(Expr::Var { index: on, .. })) if *on as usize == index => {
                    Some(format!("tag_{}(r_)", self.type_snake(id)))
                }
                _ => None,
            })
            .unwrap_or_else(|| "0".to_owned())
    }

    /// What must hold of the arrays and strings of `ty`, as far as it is known.
    fn conditions(&self, ty: &Ty, values: &Values, out: &mut Vec<String>) {
        let value = |e: &Expr| expr(e, &|i| values.get(i).cloned().flatten());
        let varies = |e: &Expr| !matches!(e, Expr::Const(_));
        match self.shape(ty) {
            Shape::Array(array) => {
                let all = [Some(&array.size), Some(&array.first), array.length.as_ref()];
                let mut known = all.iter().flatten().map(|e| value(e));
                if known.all(|v| v.is_some()) && all.iter().flatten().any(|e| varies(e)) {
                    let size = value(&array.size).unwrap_or_default();
                    let first = value(&array.first).unwrap_or_default();
                    let length =
                        array.length.as_ref().and_then(&value).unwrap_or_else(|| size.clone());
                    out.push(format!("rt::random::fits({size}, {first}, {length})"));
                }
                self.conditions(&array.element, values, out);
            }
            Shape::Str(StringTy { bound: Some(bound), .. }) if varies(bound) => {
                if let Some(bound) = value(bound) {
                    out.push(format!("{bound} >= 1"));
                }
            }
            Shape::Unique(t) | Shape::Shared(t) | Shape::Fixed(t, _) => {
                self.conditions(t, values, out);
            }
            _ => {}
        }
    }
}
