//! Code that measures and writes values.
//!
//! Three pieces of code for every value in borrowed form: *measure* (checks, and the sizes of its
//! secondary objects), *place* (its bytes in place), *follow* (its secondary objects). In generated
//! code `m_` is the measure, `w_` the writer, `b_` the block at hand, `x_` an element, `v_` a whole
//! structure.

use crate::ir::{Array, IntRange, Scalar, StringTy, Threshold, Ty, TypeId};
use crate::layout::{self, Known};
use proc_macro2::Ident;
use quote::{format_ident, quote};

use super::model::{Gen, Operand, Shape, limits, scalar};
use super::siblings::expr;
use super::tokens::{Code, begins_with, is_same, mentions, num, num_of, unref, used};

/// What expressions can name, and where arrays begin to go by reference.
pub(super) struct Env {
    /// Siblings as `i128` expressions; `None`: not known here.
    pub(super) values: Vec<Option<Code>>,
    pub(super) threshold: Threshold,
}

impl Env {
    /// An environment in which values are read, for which no threshold matters.
    pub(super) fn reading(values: Vec<Option<Code>>) -> Self {
        Self { values, threshold: Threshold::Auto }
    }

    /// The threshold in bytes; `auto` has the machine's.
    fn threshold(&self, auto: &str) -> Code {
        match self.threshold {
            Threshold::Bytes(bytes) => num_of(bytes, "usize"),
            Threshold::Auto => {
                let auto = super::tokens::ident(auto);
                quote!(#auto.auto())
            }
        }
    }

    /// The threshold while measuring.
    fn measured_threshold(&self) -> Code {
        self.threshold("m_")
    }

    /// The threshold while writing.
    fn written_threshold(&self) -> Code {
        self.threshold("w_")
    }

    pub(super) fn expr(&self, e: &crate::ir::Expr) -> Option<Code> {
        expr(e, &|index| self.values.get(index).cloned().flatten())
    }

    /// The first element that travels.
    fn first(&self, array: &Array) -> Code {
        self.expr(&array.first).unwrap_or_else(zero)
    }
}

/// What an expression is worth of which nothing is known.
pub(super) fn zero() -> Code {
    quote!(0_i128)
}

/// `rt::ensure(condition, rt::EncodeError::error)?;`
pub(super) fn ensure(condition: &Code, error: &str) -> Code {
    let error = super::tokens::ident(error);
    quote!(rt::ensure(#condition, rt::EncodeError::#error)?;)
}

impl Gen<'_> {
    /// A function of a structure or union: `measure_`, `place_`, `follow_`, `get_` and its name.
    pub(super) fn codec(&self, what: &str, id: TypeId) -> Ident {
        format_ident!("{what}_{}", self.type_snake(id))
    }

    // ---- measure ----

    /// Statements that measure `val`; empty if there is nothing to do.
    pub(super) fn measure(&self, shape: Shape<'_>, val: &Code, env: &Env) -> Code {
        match shape {
            Shape::Struct(id) | Shape::Union(id, _) if self.is_measured_shape(shape) => {
                let measure = self.codec("measure", id);
                let check = self.check_tag(shape, val, env);
                quote!(#measure(m_, #val)?; #check)
            }
            Shape::Fixed(element, _) if self.is_measured(element) => {
                let one = self.measure(self.shape(element), &self.element(element), env);
                quote!(for x_ in #val { #one })
            }
            Shape::Array(array) => self.measure_array(array, val, env),
            Shape::Str(s) => measure_string(s, val, env),
            Shape::Unique(target) => self.measure_unique(target, val, env),
            Shape::Shared(target) => {
                let object = self.measure_object(target, env);
                if mentions(&object, "x_") {
                    quote!(if let Some(x_) = m_.shared(#val) { #object })
                } else {
                    quote!(if m_.shared(#val).is_some() { #object })
                }
            }
            Shape::Descriptor | Shape::Interface(_) => quote!(m_.fd(#val.is_some());),
            Shape::Converted(id) if self.is_measured_shape(shape) => {
                let inner = self.measure(self.wire_shape(id), &self.converted(id), env);
                let to_wire = self.conversion(id).to_wire;
                quote!(m_.copying(|m_| { let x_ = &#to_wire(#val); #inner Ok(()) })?;)
            }
            _ => Code::new(),
        }
    }

    /// Checks that a union has the arm that its sibling names, unless that is computed from it.
    fn check_tag(&self, shape: Shape<'_>, val: &Code, env: &Env) -> Code {
        let Shape::Union(_, Some(on)) = shape else { return Code::new() };
        let val = unref(val);
        let tag = quote!(i128::from(#val.tag()));
        match env.expr(on).filter(|on| !is_same(on, &tag)) {
            Some(on) => ensure(&quote!(#tag == #on), "Mismatch"),
            None => Code::new(),
        }
    }

    /// The borrowed form of element `x_`.
    fn element(&self, element: &Ty) -> Code {
        self.borrow(self.shape(element), &Operand::Item)
    }

    /// The borrowed form of the converted value `x_`.
    fn converted(&self, id: TypeId) -> Code {
        self.borrow(self.wire_shape(id), &Operand::Item)
    }

    fn is_measured_shape(&self, shape: Shape<'_>) -> bool {
        self.is_measured_of(shape, &mut Known::default())
    }

    fn measure_array(&self, array: &Array, val: &Code, env: &Env) -> Code {
        let counts = check_counts(array, val, env);
        let element = self.shape(&array.element);
        if Self::is_pod(element) {
            let threshold = env.measured_threshold();
            return quote! {
                #counts
                m_.flat(#val.len(), core::mem::size_of_val(#val), #threshold)?;
            };
        }
        let size = num(self.size(&array.element));
        let one = self.measure(element, &self.element(&array.element), env);
        let visit = if one.is_empty() {
            quote!(|_| Ok(()))
        } else {
            quote!(|m_| { for x_ in #val { #one } Ok(()) })
        };
        quote!(#counts m_.object(#val.len(), #size, #visit)?;)
    }

    fn measure_unique(&self, target: &Ty, val: &Code, env: &Env) -> Code {
        let shape = self.shape(target);
        let item = quote!(x_);
        if matches!(shape, Shape::Array(_) | Shape::Str(_)) {
            let inner = self.measure(shape, &item, env);
            return quote!(if let Some(x_) = #val { #inner });
        }
        let inner = self.measure_object_of(target, &item, env);
        if mentions(&inner, "x_") {
            quote!(if let Some(x_) = #val { #inner })
        } else {
            quote!(if #val.is_some() { #inner })
        }
    }

    /// The object behind a pointer; `x_` refers to the owned value.
    pub(super) fn measure_object(&self, target: &Ty, env: &Env) -> Code {
        self.measure_object_of(target, &self.element(target), env)
    }

    fn measure_object_of(&self, target: &Ty, val: &Code, env: &Env) -> Code {
        let size = num(self.size(target));
        let inner = self.measure(self.shape(target), val, env);
        if inner.is_empty() {
            return quote!(m_.object(1, #size, |_| Ok(()))?;);
        }
        quote!(m_.object(1, #size, |m_| { #inner Ok(()) })?;)
    }

    /// The check of a `range`; empty if the type cannot leave it.
    pub(super) fn measure_range(&self, ty: &Ty, range: Option<IntRange>, val: &Code) -> Code {
        match self.range_condition(ty, range, val) {
            Some(condition) => ensure(&condition, "Range"),
            None => Code::new(),
        }
    }

    /// `val` (borrowed form) lies within `range`; `None` if it cannot but do.
    pub(super) fn range_condition(
        &self,
        ty: &Ty,
        range: Option<IntRange>,
        val: &Code,
    ) -> Option<Code> {
        let IntRange { low: least, high: most } = range?;
        let (low, high) = (num(least), num(most));
        match self.shape(ty) {
            Shape::Scalar(s) => {
                let limits = limits(s)?;
                match (least > limits.low, most < limits.high) {
                    (true, true) if least == most => Some(quote!(#val == #low)),
                    (true, true) => Some(quote!((#low..=#high).contains(&#val))),
                    (true, false) => Some(quote!(#val >= #low)),
                    (false, true) => Some(quote!(#val <= #high)),
                    (false, false) => None,
                }
            }
            Shape::Enum(_) => Some(quote!((#low..=#high).contains(&i128::from(#val as i32)))),
            Shape::Unique(target) => {
                let inner = self.range_condition(target, range, &quote!(x_))?;
                Some(quote!(#val.is_none_or(|x_| #inner)))
            }
            _ => None,
        }
    }

    // ---- place ----

    /// Statements that write `val` at `offset` of block `b_`.
    pub(super) fn place(&self, shape: Shape<'_>, offset: u64, val: &Code, env: &Env) -> Code {
        let at = num(offset);
        match shape {
            Shape::Scalar(Scalar::Bool) => quote!(b_.put::<#at, u8>(u8::from(#val));),
            Shape::Scalar(s) => {
                let ty = scalar(s);
                quote!(b_.put::<#at, #ty>(#val);)
            }
            Shape::Enum(_) => quote!(b_.put::<#at, i32>(#val as i32);),
            Shape::Handle(id) => {
                let kind = num(id.0);
                let handle = if begins_with(val, '*') { quote!((#val)) } else { val.clone() };
                quote!(w_.context::<#at, _>(b_, #kind, #handle.0);)
            }
            Shape::Opaque(_, size) => {
                let (size, val) = (num(size), unref(val));
                quote!(b_.pods::<#at, u8, #size>(&#val.0);)
            }
            Shape::Struct(id) => {
                let (place, size) = (self.codec("place", id), num(self.size(&Ty::Named(id))));
                quote!(#place(w_, b_.sub::<#at, #size>(), #val)?;)
            }
            Shape::Union(..) => {
                let val = unref(val);
                quote!(b_.put::<#at, i64>(#val.tag());)
            }
            Shape::Fixed(element, n) => self.place_fixed(element, n, offset, val, env),
            Shape::Array(array) => self.place_array(array, offset, val, env),
            Shape::Str(s) if s.wide => quote!(w_.header::<#at, _>(b_, #val.len());),
            Shape::Str(_) => {
                let threshold = env.written_threshold();
                quote! {
                    w_.header_sized::<#at, _>(
                        b_, #val.count_bytes(), #val.to_bytes_with_nul(), #threshold
                    )?;
                }
            }
            Shape::Unique(target) => self.place_unique(target, offset, val, env),
            Shape::Shared(_) => quote!(w_.shared::<#at, _, _>(b_, #val);),
            Shape::Descriptor => quote!(w_.descriptor::<#at, _>(b_, #val)?;),
            Shape::Interface(_) => quote!(w_.interface::<#at, _>(b_, #val)?;),
            Shape::Converted(id) => {
                let inner = self.place(self.wire_shape(id), offset, &self.converted(id), env);
                let to_wire = self.conversion(id).to_wire;
                let w = used(&inner, "w_");
                quote!(w_.copying_at(b_, &#to_wire(#val), |#w, b_, x_| { #inner Ok(()) })?;)
            }
        }
    }

    fn place_fixed(&self, element: &Ty, n: u32, offset: u64, val: &Code, env: &Env) -> Code {
        let shape = self.shape(element);
        let (at, n) = (num(offset), num(n));
        if let Shape::Scalar(s) = shape
            && s != Scalar::Bool
        {
            let ty = scalar(s);
            return quote!(b_.pods::<#at, #ty, #n>(#val););
        }
        let size = num(self.size(element));
        let one = self.place(shape, 0, &self.element(element), env);
        quote!(for (b_, x_) in b_.run::<#at, #size, #n>().zip(#val) { #one })
    }

    fn place_array(&self, array: &Array, offset: u64, val: &Code, env: &Env) -> Code {
        let at = num(offset);
        let header = if Self::is_pod(self.shape(&array.element)) {
            let threshold = env.written_threshold();
            quote!(w_.header_of::<#at, _, _>(b_, #val, #threshold)?;)
        } else {
            quote!(w_.header::<#at, _>(b_, #val.len());)
        };
        if !layout::is_varying(array) {
            return header;
        }
        let size = env.expr(&array.size).unwrap_or_else(|| quote!(#val.len() as i128));
        let first = env.first(array);
        let first = if is_same(&first, &zero()) { quote!(0) } else { quote!((#first) as u32) };
        let second = num(offset + 8);
        quote!(#header b_.put::<#second, u64>(rt::pair((#size) as u32, #first));)
    }

    fn place_unique(&self, target: &Ty, offset: u64, val: &Code, env: &Env) -> Code {
        let shape = self.shape(target);
        let at = num(offset);
        if matches!(shape, Shape::Array(_) | Shape::Str(_)) {
            let inner = self.place(shape, offset, &quote!(x_), env);
            let size = num(self.size(target));
            return quote! {
                match #val {
                    Some(x_) => { #inner }
                    None => { b_.zero::<#at, #size>(); }
                }
            };
        }
        quote!(b_.put::<#at, u64>(rt::pair(u32::from(#val.is_some()), 0));)
    }

    // ---- follow ----

    /// Statements that write the secondary objects of `val`; empty if it has none.
    pub(super) fn follow(&self, shape: Shape<'_>, val: &Code, env: &Env) -> Code {
        match shape {
            Shape::Struct(id) | Shape::Union(id, _) if self.has_objects(&Ty::Named(id)) => {
                let follow = self.codec("follow", id);
                quote!(#follow(w_, #val)?;)
            }
            Shape::Fixed(element, _) if self.has_objects(element) => {
                let one = self.follow(self.shape(element), &self.element(element), env);
                quote!(for x_ in #val { #one })
            }
            Shape::Array(array) => self.follow_array(array, val, env),
            Shape::Str(s) if s.wide => quote!(w_.terminated(#val)?;),
            Shape::Str(_) => {
                let threshold = env.written_threshold();
                quote!(w_.pods_below(#val.to_bytes_with_nul(), #threshold)?;)
            }
            Shape::Unique(target) => {
                let (shape, item) = (self.shape(target), quote!(x_));
                let inner = if matches!(shape, Shape::Array(_) | Shape::Str(_)) {
                    self.follow(shape, &item, env)
                } else {
                    self.follow_object(target, &item, env)
                };
                quote!(if let Some(x_) = #val { #inner })
            }
            Shape::Shared(target) => {
                let inner = self.follow_object(target, &self.element(target), env);
                quote!(if let Some(x_) = w_.shared_first(#val) { #inner })
            }
            Shape::Converted(id) => {
                let inner = self.follow(self.wire_shape(id), &self.converted(id), env);
                if inner.is_empty() {
                    return inner;
                }
                let to_wire = self.conversion(id).to_wire;
                quote!(w_.copying(&#to_wire(#val), |w_, x_| { #inner Ok(()) })?;)
            }
            _ => Code::new(),
        }
    }

    fn follow_array(&self, array: &Array, val: &Code, env: &Env) -> Code {
        let element = self.shape(&array.element);
        if Self::is_pod(element) {
            let threshold = env.written_threshold();
            return quote!(w_.pods_below(#val, #threshold)?;);
        }
        let size = num(self.size(&array.element));
        let one = self.element(&array.element);
        let place = self.place(element, 0, &one, env);
        let follow = self.follow(element, &one, env);
        let follow = if follow.is_empty() { follow } else { quote!(for x_ in #val { #follow }) };
        quote! {
            for (b_, x_) in w_.run::<#size>(#val.len())?.zip(#val) { #place }
            #follow
        }
    }

    /// The object behind a pointer, `val` its borrowed form.
    pub(super) fn follow_object(&self, target: &Ty, val: &Code, env: &Env) -> Code {
        let (size, shape) = (num(self.size(target)), self.shape(target));
        let place = self.place(shape, 0, val, env);
        let follow = self.follow(shape, val, env);
        quote!(let b_ = w_.object::<#size>()?; #place #follow)
    }
}

/// Checks the number of elements against the expressions.
fn check_counts(array: &Array, val: &Code, env: &Env) -> Code {
    let len = quote!(#val.len() as i128);
    let size = env.expr(&array.size);
    if !layout::is_varying(array) {
        // A sibling folded into this very array says nothing new.
        return match size.filter(|size| !is_same(size, &len)) {
            Some(size) => ensure(&quote!(#len == #size), "Mismatch"),
            None => Code::new(),
        };
    }
    let mut out = Code::new();
    let count = array.length.as_ref().and_then(|l| env.expr(l));
    if let Some(count) = count.filter(|count| !is_same(count, &len)) {
        out.extend(ensure(&quote!(#len == #count), "Mismatch"));
    }
    let first = env.first(array);
    if let Some(size) = size {
        let fits = if is_same(&first, &zero()) {
            quote!(#len <= #size)
        } else {
            quote!(#first >= 0 && rt::expr::add(#first, #len) <= #size)
        };
        out.extend(ensure(&quote!(#fits && #size <= i128::from(u32::MAX)), "Mismatch"));
    }
    out
}

fn measure_string(s: &StringTy, val: &Code, env: &Env) -> Code {
    let len = if s.wide { quote!(#val.len()) } else { quote!(#val.count_bytes()) };
    let bound = s.bound.as_ref().and_then(|b| env.expr(b));
    let bound = bound.map(|bound| ensure(&quote!((#len as i128) < #bound), "Mismatch"));
    if s.wide {
        let terminated = ensure(&quote!(!#val.contains(&0)), "Zero");
        return quote!(#bound #terminated m_.flat(#len, 2 * #len + 2, usize::MAX)?;);
    }
    let threshold = env.measured_threshold();
    quote!(#bound m_.flat(#len, #len + 1, #threshold)?;)
}
