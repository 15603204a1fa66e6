//! An operation as the Rust back end sees it: who passes what, and in which form.

use crate::ir::{Interface, LocalAttrs, Operation, Param, Scalar};

use super::model::{Gen, Shape, threshold};
use super::names::{self, op_name};
use super::siblings::{self, Buffer, Sibling, Source};

/// An operation of an interface.
pub(super) struct Op<'a> {
    pub(super) op: &'a Operation,
    /// Its Rust name.
    pub(super) name: String,
    /// The same as part of other names.
    pub(super) plain: String,
    /// Prefix of its types: interface and operation in camel case.
    pub(super) prefix: String,
    /// Module of its wire functions.
    pub(super) wire: String,
    /// As in signatures.
    pub(super) list: Vec<Sibling<'a>>,
    /// As in wire functions: what is folded into a caller's buffer is a parameter there.
    pub(super) wire_list: Vec<Sibling<'a>>,
    pub(super) deferred: bool,
    pub(super) iface_acf: &'a LocalAttrs,
}

/// A value of the reply.
pub(super) struct OutValue<'o, 'a> {
    pub(super) name: &'o str,
    pub(super) ty: &'a crate::ir::Ty,
    /// Index of the parameter; `None` for the result.
    pub(super) param: Option<usize>,
}

impl<'a> Op<'a> {
    pub(super) fn new(g: &Gen<'a>, iface: &'a Interface, op: &'a Operation) -> Self {
        let deferred = op.acf.deferred && !op.oneway;
        let list = siblings::params(g, op, deferred);
        let mut wire_list = list.clone();
        for s in &mut wire_list {
            if let Some(Source::Len(other)) = s.folded
                && list[other].buffer.is_some()
                && !s.is_out()
            {
                s.folded = None;
            }
        }
        Self {
            op,
            name: op_name(&op.name),
            plain: names::plain_snake(&op.name),
            prefix: format!("{}{}", names::camel(&iface.name), names::camel(&op.name)),
            wire: format!("{}_wire", names::plain_snake(&iface.name)),
            list,
            wire_list,
            deferred,
            iface_acf: &iface.acf,
        }
    }

    /// The threshold of a parameter, or of the result.
    pub(super) fn threshold(&self, param: Option<&'a Param>) -> String {
        threshold(&[param.map(|p| &p.acf), Some(&self.op.acf), Some(self.iface_acf)])
    }

    /// Result, `out` and, with `inouts`, `in, out` parameters, without what is folded.
    pub(super) fn outs(&self, inouts: bool) -> Vec<OutValue<'_, 'a>> {
        let result = self.op.result.as_ref().map(|ty| OutValue { name: "ret", ty, param: None });
        let params = self.list.iter().enumerate().filter(|(_, s)| {
            s.is_out() && s.folded.is_none() && s.buffer.is_none() && (inouts || !s.is_in())
        });
        result
            .into_iter()
            .chain(params.map(|(index, s)| OutValue {
                name: &s.name,
                ty: s.ty,
                param: Some(index),
            }))
            .collect()
    }

    /// What the operation returns: see `docs/reference/idl-rust.md`.
    pub(super) fn returned(&self) -> Vec<OutValue<'_, 'a>> {
        self.outs(self.deferred)
    }

    /// `in, out` parameters passed as `&mut`.
    pub(super) fn inouts(&self) -> Vec<(usize, &Sibling<'a>)> {
        let is_one = |s: &Sibling<'_>| s.is_in() && s.is_out() && s.folded.is_none();
        if self.deferred {
            return Vec::new();
        }
        self.list.iter().enumerate().filter(|(_, s)| is_one(s)).collect()
    }

    /// Rust type of what the operation returns.
    pub(super) fn return_type(&self, g: &Gen<'a>) -> String {
        match self.returned().as_slice() {
            [] => "()".to_owned(),
            [one] => g.owned_param(one.ty),
            _ => format!("{}Out", self.prefix),
        }
    }

    /// The `in` siblings that expressions of the reply name, as `name_` of type `i128`.
    pub(super) fn reply_siblings(&self, g: &Gen<'a>) -> Vec<usize> {
        let mut named = Vec::new();
        for s in self.list.iter().filter(|s| s.is_out()) {
            siblings::named_in(g, s.ty, &mut named);
        }
        if let Some(result) = &self.op.result {
            siblings::named_in(g, result, &mut named);
        }
        named.sort_unstable();
        named.dedup();
        named.retain(|i| self.list.get(*i).is_some_and(|s| !s.is_out()));
        named
    }

    /// Name of the argument that holds such a sibling.
    pub(super) fn sibling_arg(&self, index: usize) -> String {
        let name = &self.list[index].name;
        format!("{}_in_", name.strip_prefix("r#").unwrap_or(name))
    }
}

impl<'a> Gen<'a> {
    /// Owned type of a parameter or result.
    pub(super) fn owned_param(&self, ty: &crate::ir::Ty) -> String {
        match self.shape(ty) {
            Shape::Descriptor => "Option<std::os::fd::OwnedFd>".to_owned(),
            shape => self.owned_shape(shape),
        }
    }

    /// The borrowed form of the owned parameter at `at`.
    pub(super) fn borrow_param(&self, ty: &crate::ir::Ty, at: &str) -> String {
        match self.shape(ty) {
            Shape::Descriptor => format!("{at}.as_ref().map(std::os::fd::AsFd::as_fd)"),
            shape => self.borrow(shape, at),
        }
    }

    /// Type of a request's value as it is kept while the operation runs.
    pub(super) fn stored(&self, s: &Sibling<'_>, own: bool) -> String {
        if own || s.is_out() || self.provider(s).is_some() {
            return self.owned_param(s.ty);
        }
        self.stored_shape(self.shape(s.ty))
    }

    fn stored_shape(&self, shape: Shape<'_>) -> String {
        match shape {
            Shape::Fixed(element, n) if self.is_byte(element) => format!("&'m [u8; {n}]"),
            Shape::Array(array) if Self::is_pod(self.shape(&array.element)) => {
                format!("std::borrow::Cow<'m, [{}]>", self.owned(&array.element))
            }
            Shape::Str(s) if s.wide => "std::borrow::Cow<'m, [u16]>".to_owned(),
            Shape::Str(_) => "std::borrow::Cow<'m, std::ffi::CStr>".to_owned(),
            Shape::Unique(target) => match self.shape(target) {
                header @ (Shape::Array(_) | Shape::Str(_)) => {
                    format!("Option<{}>", self.stored_shape(header))
                }
                target => format!("Option<{}>", self.owned_shape(target)),
            },
            Shape::Descriptor => "Option<std::os::fd::OwnedFd>".to_owned(),
            other => self.owned_shape(other),
        }
    }

    fn is_byte(&self, ty: &crate::ir::Ty) -> bool {
        matches!(self.shape(ty), Shape::Scalar(Scalar::Char | Scalar::Byte | Scalar::U8))
    }

    /// The stored value at `at` as an argument of the server's method.
    pub(super) fn pass(&self, s: &Sibling<'_>, at: &str) -> String {
        let shape = self.shape(s.ty);
        match shape {
            Shape::Scalar(_) | Shape::Enum(_) | Shape::Handle(_) | Shape::Descriptor => {
                at.to_owned()
            }
            Shape::Fixed(element, _) if self.is_byte(element) => at.to_owned(),
            Shape::Unique(target) => match self.shape(target) {
                Shape::Array(_) | Shape::Str(_) => format!("{at}.as_deref()"),
                Shape::Scalar(_) | Shape::Enum(_) | Shape::Handle(_) => at.to_owned(),
                inner @ (Shape::Unique(_) | Shape::Descriptor | Shape::Interface(_)) => {
                    format!("{at}.as_ref().map(|x_| {})", self.borrow(inner, "(*x_)"))
                }
                _ => format!("{at}.as_ref()"),
            },
            Shape::Interface(_) => format!("{at}.as_ref()"),
            _ => format!("&{at}"),
        }
    }

    /// The stored value at `at` in borrowed form, as wire functions want it.
    pub(super) fn restore(&self, s: &Sibling<'_>, at: &str, own: bool) -> String {
        if own || s.is_out() {
            return self.borrow_param(s.ty, at);
        }
        match self.shape(s.ty) {
            Shape::Descriptor => self.borrow_param(s.ty, at),
            _ => self.pass(s, at),
        }
    }

    /// The parameters of a signature: name and type. `server`: as the server's method has them.
    pub(super) fn signature(&self, op: &Op<'a>, server: bool) -> Vec<(String, String)> {
        let mut params = Vec::new();
        for s in op.list.iter().filter(|s| s.folded.is_none()) {
            let shape = self.shape(s.ty);
            let ty = match (s.is_in(), s.is_out(), s.buffer) {
                (_, _, Some(buffer)) => self.buffer_type(s, buffer),
                (false, _, _) => continue,
                (true, true, _) if !op.deferred => format!("&mut {}", self.owned_param(s.ty)),
                (true, ..) if server && op.deferred => self.owned_param(s.ty),
                (true, ..) if server && matches!(shape, Shape::Descriptor) => {
                    self.owned_param(s.ty)
                }
                (true, ..) => self.borrowed(shape, ""),
            };
            params.push((s.name.clone(), ty));
        }
        params
    }

    fn buffer_type(&self, s: &Sibling<'_>, buffer: Buffer) -> String {
        let element = self.buffer_element(s);
        match buffer {
            Buffer::Slice => format!("&mut [{element}]"),
            Buffer::Vec => format!("&mut Vec<{element}>"),
        }
    }

    /// Element type of a caller's buffer.
    pub(super) fn buffer_element(&self, s: &Sibling<'_>) -> String {
        match self.shape(s.ty) {
            Shape::Array(array) => self.owned(&array.element),
            _ => "u8".to_owned(),
        }
    }

    /// What siblings are worth in a reply: those that travel by `texts`, the others by argument.
    pub(super) fn reply_values(
        &self,
        op: &Op<'a>,
        texts: &[Option<String>],
    ) -> Vec<Option<String>> {
        let mut values = self.values(&op.wire_list, texts);
        for (index, s) in op.wire_list.iter().enumerate() {
            if !s.is_out() {
                values[index] = None;
            }
        }
        for index in op.reply_siblings(self) {
            values[index] = Some(op.sibling_arg(index));
        }
        values
    }
}
