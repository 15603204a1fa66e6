//! Counters and tags of random values: drawn first, checked against what names them.
//!
//! `docs/reference/idl-random.md`, "Lists of siblings", as code that draws. In generated code they
//! are `c0_`, `c1_`, ... of type `i128`.

use crate::ir::{Expr, IntRange, StringTy, Ty};

use super::model::{Gen, Shape, limits};
use super::siblings::{self, Sibling, expr};
use super::tokens::{Code, num};
use proc_macro2::Ident;
use quote::{format_ident, quote};

/// What a sibling that others name is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Control {
    Counter,
    Tag,
}

/// Values by sibling, as `i128` expressions.
pub(super) type Values = Vec<Option<Code>>;

/// Counters and tags that have been drawn.
pub(super) struct Drawn {
    /// The statement that draws them.
    pub(super) statement: Code,
    /// What each sibling is worth after it, as far as that is known.
    pub(super) values: Values,
}

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

    /// Draws the counters and tags that are `here`. Arrays `checked` beside those that are here are
    /// checked too; `known` has the values of the others.
    pub(super) fn draw_controls(
        &self,
        list: &[Sibling<'_>],
        here: &[bool],
        checked: &[usize],
        known: &[Option<Code>],
    ) -> Drawn {
        let mut values: Values = (0..list.len()).map(|i| known.get(i).cloned().flatten()).collect();
        let (mut names, mut draws, mut lowest) = (Vec::new(), Code::new(), Vec::new());
        for (index, s) in list.iter().enumerate().filter(|(i, _)| here[*i]) {
            let Some(control) = self.control(list, index) else { continue };
            let name = drawn_control(index);
            let range = s.range.unwrap_or(IntRange::new(0, 8));
            let (low, high) = (num(range.low), num(range.high));
            let (draw, least) = match control {
                Control::Counter => (quote!(r_.counter(#low, #high)), low),
                Control::Tag => {
                    let tag = self.draw_tag_of(list, index);
                    (quote!(i128::from(#tag)), quote!(#name))
                }
            };
            draws.extend(quote!(let #name = #draw;));
            lowest.push(least);
            values[index] = Some(quote!(#name));
            names.push(quote!(#name));
        }
        if names.is_empty() {
            return Drawn { statement: Code::new(), values };
        }
        let mut conditions = Vec::new();
        for (index, s) in list.iter().enumerate() {
            if here[index] || checked.contains(&index) {
                self.conditions(s.ty, &values, &mut conditions);
            }
        }
        if conditions.is_empty() {
            return Drawn { statement: draws, values };
        }
        let (names, lowest) = (tuple(&names), tuple(&lowest));
        let text = quote! {
            let #names = {
                let mut tries_ = 0;
                loop {
                    #draws
                    tries_ += 1;
                    if #(#conditions)&&* { break #names; }
                    if tries_ == 256 { break #lowest; }
                }
            };
        };
        Drawn { statement: text, values }
    }

    /// The draw of the tag `index`, by the first union that switches on it.
    fn draw_tag_of(&self, list: &[Sibling<'_>], index: usize) -> Code {
        let union = list.iter().find_map(|s| match self.shape(s.ty) {
            Shape::Union(id, Some(Expr::Var { index: on, .. })) if *on as usize == index => {
                Some(self.codec("tag", id))
            }
            _ => None,
        });
        union.map_or(quote!(0), |tag| quote!(#tag(r_)))
    }

    /// What must hold of the arrays and strings of `ty`, as far as it is known.
    fn conditions(&self, ty: &Ty, values: &Values, out: &mut Vec<Code>) {
        let value = |e: &Expr| expr(e, &|i| values.get(i).cloned().flatten());
        let varies = |e: &Expr| !matches!(e, Expr::Const(_));
        match self.shape(ty) {
            Shape::Array(array) => {
                let all = [Some(&array.size), Some(&array.first), array.length.as_ref()];
                let numbers: Option<Vec<Code>> = all.iter().flatten().map(|e| value(e)).collect();
                if let Some([size, first, rest @ ..]) = numbers.as_deref()
                    && all.iter().flatten().any(|e| varies(e))
                {
                    let length = rest.first().unwrap_or(size);
                    out.push(quote!(rt::random::fits(#size, #first, #length)));
                }
                self.conditions(&array.element, values, out);
            }
            Shape::Str(StringTy { bound: Some(bound), .. }) if varies(bound) => {
                if let Some(bound) = value(bound) {
                    out.push(quote!(#bound >= 1));
                }
            }
            Shape::Unique(t) | Shape::Shared(t) | Shape::Fixed(t, _) => {
                self.conditions(t, values, out);
            }
            _ => {}
        }
    }
}

/// One item, or several as a tuple.
fn tuple(items: &[Code]) -> Code {
    match items {
        [one] => one.clone(),
        many => quote!((#(#many),*)),
    }
}

/// The variable and the field that hold a counter or tag.
pub(super) fn drawn_control(index: usize) -> Ident {
    format_ident!("c{index}_")
}
