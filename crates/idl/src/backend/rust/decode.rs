//! Code that reads values.
//!
//! One expression for every type, that gives an owned value or, for arguments of operations, one
//! that borrows from the message. In generated code `d_` is the decoder, `v_` the view at hand,
//! `h_` the header of an array, `x_` a value to be checked.

use crate::ir::{Array, Scalar, StringTy, Ty, TypeKind};
use crate::layout::{self, Known};

use super::encode::Env;
use super::model::{Gen, Shape, scalar};
use super::text::used;

/// Who owns what is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keep {
    /// The message, where it can.
    Borrow,
    /// The value.
    Own,
}

impl Gen<'_> {
    /// An expression that reads a value of `shape` at `at` of view `v_`.
    pub(super) fn get(&self, shape: Shape<'_>, at: u64, keep: Keep, env: &Env) -> String {
        match shape {
            Shape::Scalar(Scalar::Bool) => format!("v_.boolean::<{at}>()?"),
            Shape::Scalar(s) => format!("v_.get::<{at}, {}>()", scalar(s)),
            Shape::Enum(id) => format!(
                "{}::try_from(v_.get::<{at}, i32>())\
                 .map_err(|_| v_.error(rt::Cause::Enum, {at}))?",
                self.type_name(id)
            ),
            Shape::Handle(id) => {
                format!("{}(d_.context::<{at}, _>(v_, {})?)", self.type_name(id), id.0)
            }
            Shape::Opaque(id, size) => {
                format!("{}(*v_.bytes::<{at}, {size}>())", self.type_name(id))
            }
            Shape::Struct(id) => {
                let size = self.size(&Ty::Named(id));
                format!("get_{}(d_, v_.sub::<{at}, {size}>())?", self.type_snake(id))
            }
            Shape::Union(id, on) => {
                let get = format!("get_{}(d_, v_.sub::<{at}, 8>())?", self.type_snake(id));
                match on.and_then(|on| env.expr(on)) {
                    None => get,
                    Some(on) => format!(
                        "{{ v_.ensure(i128::from(v_.get::<{at}, i64>()) == {on}, \
                         rt::Cause::Discriminant, {at})?; {get} }}"
                    ),
                }
            }
            Shape::Fixed(element, n) => self.get_fixed(element, n, at, keep, env),
            Shape::Array(array) => {
                let header = self.array_header(array, at, env, false);
                let read = self.array_of(array, keep, env);
                format!("{{ let h_ = {header}; {read} }}")
            }
            Shape::Str(s) => {
                let header = self.string_header(s, at, env, false);
                format!("{{ let h_ = {header}; {} }}", string_of(s, keep))
            }
            Shape::Unique(target) => self.get_unique(target, at, keep, env),
            Shape::Shared(target) => {
                let (size, slots) = (self.size(target), self.slots(target));
                let inner = as_result(&self.get(self.shape(target), 0, Keep::Own, env));
                let d = used(&inner, "d_");
                format!("d_.shared::<{at}, {size}, _, _>(v_, {slots}, |{d}, v_| {inner})?")
            }
            Shape::Descriptor => {
                let get = format!("d_.descriptor::<{at}, _>(v_)?");
                if keep == Keep::Borrow { get } else { format!("rt::Descriptor::from({get})") }
            }
            Shape::Interface(_) => format!("d_.interface::<{at}, _>(v_)?"),
            Shape::Converted(id) => {
                let inner = self.get(self.wire_shape(id), at, Keep::Own, env);
                let from_wire = self.conversion(id).from_wire;
                format!("{from_wire}({inner}).ok_or_else(|| v_.error(rt::Cause::Converted, {at}))?")
            }
        }
    }

    /// The value with its range checked.
    pub(super) fn get_ranged(
        &self,
        ty: &Ty,
        range: Option<(i128, i128)>,
        at: u64,
        keep: Keep,
        env: &Env,
    ) -> String {
        let get = self.get(self.shape(ty), at, keep, env);
        let name = match self.shape(ty) {
            Shape::Unique(_) if keep == Keep::Own => "x_.as_deref().copied()",
            _ => "x_",
        };
        match self.range_condition(ty, range, name) {
            None => get,
            Some(condition) => {
                format!("{{ let x_ = {get}; v_.ensure({condition}, rt::Cause::Range, {at})?; x_ }}")
            }
        }
    }

    fn get_fixed(&self, element: &Ty, n: u32, at: u64, keep: Keep, env: &Env) -> String {
        let shape = self.shape(element);
        match shape {
            Shape::Scalar(Scalar::Char | Scalar::Byte | Scalar::U8) if keep == Keep::Borrow => {
                format!("v_.bytes::<{at}, {n}>()")
            }
            Shape::Scalar(s) if s != Scalar::Bool => {
                format!("v_.pods::<{at}, {}, {n}>()", scalar(s))
            }
            _ => {
                let size = self.size(element);
                let one = as_result(&self.get(shape, 0, Keep::Own, env));
                format!("v_.array::<{at}, {size}, {n}, _>(|v_| {one})?")
            }
        }
    }

    /// An expression for the checked header of an array; an `Option` if it may be null.
    pub(super) fn array_header(&self, array: &Array, at: u64, env: &Env, null: bool) -> String {
        let second = at + 8;
        if !layout::is_varying(array) {
            let check = env.expr(&array.size).map(|size| format!(".expect({size})"));
            return simple_header(at, check.as_deref(), null);
        }
        let count = array.length.as_ref().and_then(|l| env.expr(l));
        let check = count.map(|count| format!(".expect({count})?")).unwrap_or_default();
        let size = env.expr(&array.size);
        let size = size.unwrap_or_else(|| format!("i128::from(v_.pair::<{second}>().0)"));
        let first = env.expr(&array.first).unwrap_or_else(|| "0_i128".to_owned());
        let varying = format!("v_.varying::<{second}>(h_, {size}, {first})?;");
        if null {
            return format!(
                "match v_.header_or_null::<{at}>()? {{ \
                 Some(h_) => {{ let h_ = h_{check}; {varying} Some(h_) }} \
                 None => {{ v_.zero::<{second}, 8>()?; None }} }}"
            );
        }
        format!("{{ let h_ = v_.header::<{at}>()?{check}; {varying} h_ }}")
    }

    /// The same for a string.
    pub(super) fn string_header(&self, s: &StringTy, at: u64, env: &Env, null: bool) -> String {
        let bound = s.bound.as_ref().and_then(|b| env.expr(b));
        let check = bound.map(|b| format!(".at_most(rt::expr::sub({b}, 1))"));
        simple_header(at, check.as_deref(), null)
    }

    /// An expression that reads the elements behind header `h_`.
    fn array_of(&self, array: &Array, keep: Keep, env: &Env) -> String {
        let element = self.shape(&array.element);
        if let Shape::Scalar(s) = element
            && s != Scalar::Bool
        {
            let get = format!("d_.pods::<{}>(h_)?", scalar(s));
            return if keep == Keep::Borrow { get } else { format!("{get}.into_owned()") };
        }
        let (size, slots) = (self.size(&array.element), self.slots(&array.element));
        let flat = layout::is_flat(self.module, &array.element);
        let one = as_result(&self.get(element, 0, Keep::Own, env));
        let d = used(&one, "d_");
        format!("d_.array::<{size}, _>(h_, {flat}, {slots}, |{d}, v_| {one})?")
    }

    fn get_unique(&self, target: &Ty, at: u64, keep: Keep, env: &Env) -> String {
        match self.shape(target) {
            Shape::Array(array) => {
                let header = self.array_header(array, at, env, true);
                let read = self.array_of(array, keep, env);
                optional(&header, &read)
            }
            Shape::Str(s) => {
                let header = self.string_header(s, at, env, true);
                optional(&header, &string_of(s, keep))
            }
            shape => {
                let (size, slots) = (self.size(target), self.slots(target));
                let inner = self.get(shape, 0, Keep::Own, env);
                let inner = if keep == Keep::Own { format!("Box::new({inner})") } else { inner };
                let inner = as_result(&inner);
                let d = used(&inner, "d_");
                format!(
                    "if d_.present::<{at}, _>(v_)? {{ \
                     Some(d_.object::<{size}, _>({slots}, |{d}, v_| {inner})?) \
                     }} else {{ None }}"
                )
            }
        }
    }

    // ---- slots ----

    /// The words of `ty` that name something beside or behind it, as a slice expression.
    pub(super) fn slots(&self, ty: &Ty) -> String {
        Self::marked(self.slot_list(ty, 0), self.has_numbers(ty))
    }

    /// A list of words, marked if there are words of `ptr` pointers among them.
    pub(super) fn marked(list: Vec<String>, has_numbers: bool) -> String {
        let mark = if has_numbers { "rt::Slot::Numbers, " } else { "" };
        format!("&[{mark}{}]", list.join(", "))
    }

    /// Whether the bytes in place have words of `ptr` pointers.
    pub(super) fn has_numbers(&self, ty: &Ty) -> bool {
        self.numbers_in(self.shape(ty), &mut Known::default())
    }

    fn numbers_in(&self, shape: Shape<'_>, known: &mut Known<bool>) -> bool {
        match shape {
            Shape::Shared(_) => true,
            Shape::Fixed(element, _) => self.numbers_in(self.shape(element), known),
            Shape::Converted(id) => self.numbers_in(self.wire_shape(id), known),
            Shape::Struct(id) => known.of(id, false, |known| match layout::kind(self.module, id) {
                Some(TypeKind::Struct(s)) => {
                    let mut there = s.fields.iter().filter(|f| !f.ignore);
                    there.any(|f| self.numbers_in(self.shape(&f.ty), known))
                }
                _ => false,
            }),
            _ => false,
        }
    }

    /// The same, one expression for each word, offsets from `at`.
    pub(super) fn slot_list(&self, ty: &Ty, at: u64) -> Vec<String> {
        self.slots_of(self.shape(ty), at)
    }

    fn slots_of(&self, shape: Shape<'_>, at: u64) -> Vec<String> {
        match shape {
            Shape::Array(_) | Shape::Str(_) => vec![format!("rt::Slot::Header({at})")],
            Shape::Descriptor | Shape::Interface(_) => vec![format!("rt::Slot::Fd({at})")],
            Shape::Shared(_) => vec![format!("rt::Slot::Number({at})")],
            Shape::Unique(target) if layout::is_header(self.module, target) => {
                vec![format!("rt::Slot::Header({at})")]
            }
            Shape::Struct(id) if self.has_slots(id) => vec![format!(
                "rt::Slot::Run {{ at: {at}, count: 1, stride: 0, slots: SLOTS_{} }}",
                self.type_snake(id).to_ascii_uppercase()
            )],
            Shape::Fixed(element, n) => {
                let inner = self.slot_list(element, 0);
                if inner.is_empty() {
                    return inner;
                }
                let stride = self.size(element);
                let inner = inner.join(", ");
                vec![format!(
                    "rt::Slot::Run {{ at: {at}, count: {n}, stride: {stride}, slots: &[{inner}] }}"
                )]
            }
            Shape::Converted(id) => self.slots_of(self.wire_shape(id), at),
            _ => Vec::new(),
        }
    }

    /// Whether the structure has any such words.
    pub(super) fn has_slots(&self, id: crate::ir::TypeId) -> bool {
        self.slots_in(Shape::Struct(id), &mut Known::default())
    }

    fn slots_in(&self, shape: Shape<'_>, known: &mut Known<bool>) -> bool {
        match shape {
            Shape::Array(_)
            | Shape::Str(_)
            | Shape::Descriptor
            | Shape::Interface(_)
            | Shape::Shared(_) => true,
            Shape::Unique(target) => layout::is_header(self.module, target),
            Shape::Struct(id) => known.of(id, false, |known| match layout::kind(self.module, id) {
                Some(TypeKind::Struct(s)) => {
                    let mut there = s.fields.iter().filter(|f| !f.ignore);
                    there.any(|f| self.slots_in(self.shape(&f.ty), known))
                }
                _ => false,
            }),
            Shape::Fixed(element, _) => self.slots_in(self.shape(element), known),
            Shape::Converted(id) => self.slots_in(self.wire_shape(id), known),
            _ => false,
        }
    }
}

fn simple_header(at: u64, check: Option<&str>, null: bool) -> String {
    match (null, check) {
        (false, None) => format!("v_.header::<{at}>()?"),
        (false, Some(check)) => format!("v_.header::<{at}>()?{check}?"),
        (true, None) => format!("v_.header_or_null::<{at}>()?"),
        (true, Some(check)) => {
            format!("v_.header_or_null::<{at}>()?.map(|h_| h_{check}).transpose()?")
        }
    }
}

/// A value as what a closure answers.
pub(super) fn as_result(value: &str) -> String {
    match value.strip_suffix('?') {
        Some(fallible) => fallible.to_owned(),
        None => format!("Ok({value})"),
    }
}

fn optional(header: &str, read: &str) -> String {
    format!("match {header} {{ Some(h_) => Some({read}), None => None }}")
}

fn string_of(s: &StringTy, keep: Keep) -> String {
    let get = if s.wide { "d_.wide(h_)?" } else { "d_.string(h_)?" };
    if keep == Keep::Borrow { get.to_owned() } else { format!("{get}.into_owned()") }
}
