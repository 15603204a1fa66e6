//! Code that measures and writes values.
//!
//! Three texts for every value in borrowed form: *measure* (checks, and the sizes of its secondary
//! objects), *place* (its bytes in place), *follow* (its secondary objects). In generated code `m_`
//! is the measure, `w_` the writer, `b_` the block at hand, `x_` an element, `v_` a whole
//! structure.

use crate::ir::{Array, Scalar, StringTy, Ty};
use crate::layout::{self, Known};

use super::model::{AUTO, Gen, Shape, limits, scalar};
use super::siblings::expr;
use super::text::unref;

/// What expressions can name, and where arrays begin to go by reference.
pub(super) struct Env {
    /// Siblings as `i128` expressions; `None`: not known here.
    pub(super) values: Vec<Option<String>>,
    /// Threshold as a Rust expression, in bytes.
    pub(super) threshold: String,
}

impl Env {
    /// The threshold while measuring.
    fn measured_threshold(&self) -> String {
        self.threshold.replace(AUTO, "m_.auto()")
    }

    /// The threshold while writing.
    fn written_threshold(&self) -> String {
        self.threshold.replace(AUTO, "w_.auto()")
    }

    pub(super) fn expr(&self, e: &crate::ir::Expr) -> Option<String> {
        expr(e, &|index| self.values.get(index).cloned().flatten())
    }
}

const MISMATCH: &str = "rt::EncodeError::Mismatch";

impl Gen<'_> {
    // ---- measure ----

    /// Statements that measure `val`; empty if there is nothing to do.
    pub(super) fn measure(&self, shape: Shape<'_>, val: &str, env: &Env) -> String {
        match shape {
            Shape::Struct(id) | Shape::Union(id, _) if self.is_measured_shape(shape) => {
                let mut out = format!("measure_{}(m_, {val})?;", self.type_snake(id));
                if let Shape::Union(_, Some(on)) = shape
                    && let Some(on) = env.expr(on)
                    && on != format!("i128::from({}.tag())", unref(val))
                {
                    let tag = unref(val);
                    let tag = format!("rt::ensure(i128::from({tag}.tag()) == {on}, {MISMATCH})?;");
                    out.push_str(&tag);
                }
                out
            }
            Shape::Fixed(element, _) if self.is_measured(element) => {
                let one = self.measure(self.shape(element), &self.element(element), env);
                format!("for x_ in {val} {{ {one} }}")
            }
            Shape::Array(array) => self.measure_array(array, val, env),
            Shape::Str(s) => self.measure_string(s, val, env),
            Shape::Unique(target) => self.measure_unique(target, val, env),
            Shape::Shared(target) => {
                let object = self.measure_object(target, "(*x_)", env);
                if super::text::mentions(&object, "x_") {
                    format!("if let Some(x_) = m_.shared({val}) {{ {object} }}")
                } else {
                    format!("if m_.shared({val}).is_some() {{ {object} }}")
                }
            }
            Shape::Descriptor | Shape::Interface(_) => format!("m_.fd({val}.is_some());"),
            Shape::Converted(id) if self.is_measured_shape(shape) => {
                let inner = self.measure(self.wire_shape(id), &self.converted(id), env);
                let to_wire = self.conversion(id).to_wire;
                format!("m_.copying(|m_| {{ let x_ = &{to_wire}({val}); {inner} Ok(()) }})?;")
            }
            _ => String::new(),
        }
    }

    /// The borrowed form of element `x_`.
    fn element(&self, element: &Ty) -> String {
        self.borrow(self.shape(element), "(*x_)")
    }

    /// The borrowed form of the converted value `x_`.
    fn converted(&self, id: crate::ir::TypeId) -> String {
        self.borrow(self.wire_shape(id), "(*x_)")
    }

    fn is_measured_shape(&self, shape: Shape<'_>) -> bool {
        self.is_measured_of(shape, &mut Known::default())
    }

    fn measure_array(&self, array: &Array, val: &str, env: &Env) -> String {
        let mut out = self.check_counts(array, val, env);
        let element = self.shape(&array.element);
        if Self::is_pod(element) {
            let threshold = env.measured_threshold();
            out.push_str(&format!(
                "m_.flat({val}.len(), core::mem::size_of_val({val}), {threshold})?;"
            ));
            return out;
        }
        let size = self.size(&array.element);
        let one = self.measure(element, &self.element(&array.element), env);
        let visit = if one.is_empty() {
            "|_| Ok(())".to_owned()
        } else {
            format!("|m_| {{ for x_ in {val} {{ {one} }} Ok(()) }}")
        };
        out.push_str(&format!("m_.object({val}.len(), {size}, {visit})?;"));
        out
    }

    /// Checks the number of elements against the expressions.
    fn check_counts(&self, array: &Array, val: &str, env: &Env) -> String {
        let len = format!("{val}.len() as i128");
        let size = env.expr(&array.size);
        let mut out = String::new();
        let mut ensure = |condition: String| {
            out.push_str(&format!("rt::ensure({condition}, {MISMATCH})?;"));
        };
        if !layout::is_varying(array) {
            // A sibling folded into this very array says nothing new.
            if let Some(size) = size.filter(|s| *s != len) {
                ensure(format!("{len} == {size}"));
            }
            return out;
        }
        let first = env.expr(&array.first).unwrap_or_else(|| "0_i128".to_owned());
        if let Some(count) = array.length.as_ref().and_then(|l| env.expr(l)).filter(|c| *c != len) {
            ensure(format!("{len} == {count}"));
        }
        if let Some(size) = size {
            if first == "0_i128" {
                ensure(format!("{len} <= {size} && {size} <= i128::from(u32::MAX)"));
            } else {
                ensure(format!(
                    "{first} >= 0 && rt::expr::add({first}, {len}) <= {size} \
                     && {size} <= i128::from(u32::MAX)"
                ));
            }
        }
        out
    }

    fn measure_string(&self, s: &StringTy, val: &str, env: &Env) -> String {
        let len = if s.wide { format!("{val}.len()") } else { format!("{val}.count_bytes()") };
        let mut out = String::new();
        if let Some(bound) = s.bound.as_ref().and_then(|b| env.expr(b)) {
            out.push_str(&format!("rt::ensure(({len} as i128) < {bound}, {MISMATCH})?;"));
        }
        if s.wide {
            out.push_str(&format!("rt::ensure(!{val}.contains(&0), rt::EncodeError::Zero)?;"));
            out.push_str(&format!("m_.flat({len}, 2 * {len} + 2, usize::MAX)?;"));
        } else {
            out.push_str(&format!("m_.flat({len}, {len} + 1, {})?;", env.measured_threshold()));
        }
        out
    }

    fn measure_unique(&self, target: &Ty, val: &str, env: &Env) -> String {
        let shape = self.shape(target);
        if matches!(shape, Shape::Array(_) | Shape::Str(_)) {
            let inner = self.measure(shape, "x_", env);
            return format!("if let Some(x_) = {val} {{ {inner} }}");
        }
        let inner = self.measure_object_of(target, "x_", env);
        if super::text::mentions(&inner, "x_") {
            format!("if let Some(x_) = {val} {{ {inner} }}")
        } else {
            format!("if {val}.is_some() {{ {inner} }}")
        }
    }

    /// The object behind a pointer; `at` is the place of the owned value.
    pub(super) fn measure_object(&self, target: &Ty, at: &str, env: &Env) -> String {
        self.measure_object_of(target, &self.borrow(self.shape(target), at), env)
    }

    fn measure_object_of(&self, target: &Ty, val: &str, env: &Env) -> String {
        let size = self.size(target);
        let inner = self.measure(self.shape(target), val, env);
        if inner.is_empty() {
            return format!("m_.object(1, {size}, |_| Ok(()))?;");
        }
        format!("m_.object(1, {size}, |m_| {{ {inner} Ok(()) }})?;")
    }

    /// The check of a `range`; empty if the type cannot leave it.
    pub(super) fn measure_range(&self, ty: &Ty, range: Option<(i128, i128)>, val: &str) -> String {
        let Some(condition) = self.range_condition(ty, range, val) else { return String::new() };
        format!("rt::ensure({condition}, rt::EncodeError::Range)?;")
    }

    /// `val` (borrowed form) lies within `range`; `None` if it cannot but do.
    pub(super) fn range_condition(
        &self,
        ty: &Ty,
        range: Option<(i128, i128)>,
        val: &str,
    ) -> Option<String> {
        let (low, high) = range?;
        match self.shape(ty) {
            Shape::Scalar(s) => {
                let (least, most) = limits(s)?;
                match (low > least, high < most) {
                    (true, true) if low == high => Some(format!("{val} == {low}")),
                    (true, true) => Some(format!("({low}..={high}).contains(&{val})")),
                    (true, false) => Some(format!("{val} >= {low}")),
                    (false, true) => Some(format!("{val} <= {high}")),
                    (false, false) => None,
                }
            }
            Shape::Enum(_) => Some(format!("({low}..={high}).contains(&i128::from({val} as i32))")),
            Shape::Unique(target) => {
                let inner = self.range_condition(target, range, "x_")?;
                Some(format!("{val}.is_none_or(|x_| {inner})"))
            }
            _ => None,
        }
    }

    // ---- place ----

    /// Statements that write `val` at `at` of block `b_`.
    pub(super) fn place(&self, shape: Shape<'_>, at: u64, val: &str, env: &Env) -> String {
        match shape {
            Shape::Scalar(Scalar::Bool) => format!("b_.put::<{at}, u8>(u8::from({val}));"),
            Shape::Scalar(s) => format!("b_.put::<{at}, {}>({val});", scalar(s)),
            Shape::Enum(_) => format!("b_.put::<{at}, i32>({val} as i32);"),
            Shape::Handle(id) if val.starts_with('*') => {
                format!("w_.context::<{at}, _>(b_, {}, ({val}).0);", id.0)
            }
            Shape::Handle(id) => format!("w_.context::<{at}, _>(b_, {}, {val}.0);", id.0),
            Shape::Opaque(_, size) => {
                format!("b_.pods::<{at}, u8, {size}>(&{}.0);", unref(val))
            }
            Shape::Struct(id) => {
                let size = self.size(&Ty::Named(id));
                format!("place_{}(w_, b_.sub::<{at}, {size}>(), {val})?;", self.type_snake(id))
            }
            Shape::Union(..) => {
                format!("b_.put::<{at}, i64>({}.tag());", unref(val))
            }
            Shape::Fixed(element, n) => self.place_fixed(element, n, at, val, env),
            Shape::Array(array) => self.place_array(array, at, val, env),
            Shape::Str(s) if s.wide => format!("w_.header::<{at}, _>(b_, {val}.len());"),
            Shape::Str(_) => format!(
                "w_.header_sized::<{at}, _>(b_, {val}.count_bytes(), \
                 {val}.to_bytes_with_nul(), {})?;",
                env.written_threshold()
            ),
            Shape::Unique(target) => self.place_unique(target, at, val, env),
            Shape::Shared(_) => format!("w_.shared::<{at}, _, _>(b_, {val});"),
            Shape::Descriptor => format!("w_.descriptor::<{at}, _>(b_, {val})?;"),
            Shape::Interface(_) => format!("w_.interface::<{at}, _>(b_, {val})?;"),
            Shape::Converted(id) => {
                let inner = self.place(self.wire_shape(id), at, &self.converted(id), env);
                let to_wire = self.conversion(id).to_wire;
                let w = super::text::used(&inner, "w_");
                format!(
                    "w_.copying_at(b_, &{to_wire}({val}), |{w}, b_, x_| {{ {inner} Ok(()) }})?;"
                )
            }
        }
    }

    fn place_fixed(&self, element: &Ty, n: u32, at: u64, val: &str, env: &Env) -> String {
        let shape = self.shape(element);
        if let Shape::Scalar(s) = shape
            && s != Scalar::Bool
        {
            return format!("b_.pods::<{at}, {}, {n}>({val});", scalar(s));
        }
        let size = self.size(element);
        let one = self.place(shape, 0, &self.element(element), env);
        format!("for (b_, x_) in b_.run::<{at}, {size}, {n}>().zip({val}) {{ {one} }}")
    }

    fn place_array(&self, array: &Array, at: u64, val: &str, env: &Env) -> String {
        let mut out = if Self::is_pod(self.shape(&array.element)) {
            format!("w_.header_of::<{at}, _, _>(b_, {val}, {})?;", env.written_threshold())
        } else {
            format!("w_.header::<{at}, _>(b_, {val}.len());")
        };
        if layout::is_varying(array) {
            let size = env.expr(&array.size).unwrap_or_else(|| format!("{val}.len() as i128"));
            let first = env.expr(&array.first).unwrap_or_else(|| "0_i128".to_owned());
            let at = at + 8;
            let pair = if first == "0_i128" {
                format!("rt::pair(({size}) as u32, 0)")
            } else {
                format!("rt::pair(({size}) as u32, ({first}) as u32)")
            };
            out.push_str(&format!("b_.put::<{at}, u64>({pair});"));
        }
        out
    }

    fn place_unique(&self, target: &Ty, at: u64, val: &str, env: &Env) -> String {
        let shape = self.shape(target);
        if matches!(shape, Shape::Array(_) | Shape::Str(_)) {
            let inner = self.place(shape, at, "x_", env);
            let size = self.size(target);
            let zero = format!("b_.zero::<{at}, {size}>();");
            return format!("match {val} {{ Some(x_) => {{ {inner} }} None => {{ {zero} }} }}");
        }
        format!("b_.put::<{at}, u64>(rt::pair(u32::from({val}.is_some()), 0));")
    }

    // ---- follow ----

    /// Statements that write the secondary objects of `val`; empty if it has none.
    pub(super) fn follow(&self, shape: Shape<'_>, val: &str, env: &Env) -> String {
        match shape {
            Shape::Struct(id) | Shape::Union(id, _) if self.has_objects(&Ty::Named(id)) => {
                format!("follow_{}(w_, {val})?;", self.type_snake(id))
            }
            Shape::Fixed(element, _) if self.has_objects(element) => {
                let one = self.follow(self.shape(element), &self.element(element), env);
                format!("for x_ in {val} {{ {one} }}")
            }
            Shape::Array(array) => self.follow_array(array, val, env),
            Shape::Str(s) if s.wide => format!("w_.terminated({val})?;"),
            Shape::Str(_) => {
                let bytes = format!("{val}.to_bytes_with_nul()");
                let threshold = env.written_threshold();
                format!("w_.pods_below({bytes}, {threshold})?;")
            }
            Shape::Unique(target) => {
                let shape = self.shape(target);
                let inner = if matches!(shape, Shape::Array(_) | Shape::Str(_)) {
                    self.follow(shape, "x_", env)
                } else {
                    self.follow_object(target, "x_", env)
                };
                format!("if let Some(x_) = {val} {{ {inner} }}")
            }
            Shape::Shared(target) => {
                let val_inner = self.borrow(self.shape(target), "(*x_)");
                let inner = self.follow_object(target, &val_inner, env);
                format!("if let Some(x_) = w_.shared_first({val}) {{ {inner} }}")
            }
            Shape::Converted(id) => {
                let inner = self.follow(self.wire_shape(id), &self.converted(id), env);
                if inner.is_empty() {
                    return inner;
                }
                let to_wire = self.conversion(id).to_wire;
                format!("w_.copying(&{to_wire}({val}), |w_, x_| {{ {inner} Ok(()) }})?;")
            }
            _ => String::new(),
        }
    }

    fn follow_array(&self, array: &Array, val: &str, env: &Env) -> String {
        let element = self.shape(&array.element);
        if Self::is_pod(element) {
            let threshold = env.written_threshold();
            return format!("w_.pods_below({val}, {threshold})?;");
        }
        let size = self.size(&array.element);
        let one = self.element(&array.element);
        let place = self.place(element, 0, &one, env);
        let follow = self.follow(element, &one, env);
        let mut out =
            format!("for (b_, x_) in w_.run::<{size}>({val}.len())?.zip({val}) {{ {place} }}");
        if !follow.is_empty() {
            out.push_str(&format!("for x_ in {val} {{ {follow} }}"));
        }
        out
    }

    /// The object behind a pointer, `val` its borrowed form.
    pub(super) fn follow_object(&self, target: &Ty, val: &str, env: &Env) -> String {
        let size = self.size(target);
        let shape = self.shape(target);
        let place = self.place(shape, 0, val, env);
        let follow = self.follow(shape, val, env);
        format!("let b_ = w_.object::<{size}>()?; {place} {follow}")
    }
}
