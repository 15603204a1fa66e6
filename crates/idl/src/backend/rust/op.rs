//! An operation as the Rust back end sees it: who passes what, and in which form.

use crate::ir::{Interface, LocalAttrs, Operation, Param, Scalar, Threshold, Ty};
use proc_macro2::Ident;
use quote::{format_ident, quote};

use super::model::{Gen, Operand, Shape, threshold};
use super::names::{self, op_name};
use super::siblings::{self, Buffer, Sibling, Source};
use super::tokens::{self, Code, bare, ident, num};

/// An operation of an interface.
pub(super) struct Op<'a> {
    pub(super) op: &'a Operation,
    /// Its Rust name.
    pub(super) name: String,
    /// The same as part of other names.
    pub(super) plain: String,
    /// Prefix of its types: interface and operation in camel case.
    pub(super) prefix: String,
    /// Name of its interface as part of other names.
    pub(super) interface: String,
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
    pub(super) ty: &'a Ty,
    /// Index of the parameter; `None` for the result.
    pub(super) param: Option<usize>,
}

impl OutValue<'_, '_> {
    /// Its name as code.
    pub(super) fn ident(&self) -> Ident {
        ident(self.name)
    }
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
            interface: names::plain_snake(&iface.name),
            list,
            wire_list,
            deferred,
            iface_acf: &iface.acf,
        }
    }

    /// Its Rust name as code.
    pub(super) fn ident(&self) -> Ident {
        ident(&self.name)
    }

    /// The type of its own with that ending: `Request`, `Out`.
    pub(super) fn type_of(&self, ending: &str) -> Ident {
        format_ident!("{}{ending}", self.prefix)
    }

    /// The name of a function made for it: `put_NAME_request`.
    pub(super) fn function(&self, before: &str, after: &str) -> Ident {
        let before = if before.is_empty() { String::new() } else { format!("{before}_") };
        format_ident!("{before}{}{after}", self.plain)
    }

    /// The path of one of its wire functions.
    pub(super) fn wire(&self, before: &str, after: &str) -> Code {
        let (home, function) =
            (format_ident!("{}_wire", self.interface), self.function(before, after));
        quote!(#home::#function)
    }

    /// The path of one of its functions or types that draw values, from a module beside theirs.
    pub(super) fn random(&self, item: &Ident) -> Code {
        let home = format_ident!("{}_random", self.interface);
        quote!(super::#home::#item)
    }

    /// The threshold of a parameter, or of the result.
    pub(super) fn threshold(&self, param: Option<&'a Param>) -> Threshold {
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
    pub(super) fn inouts(&self) -> Vec<&Sibling<'a>> {
        let is_one = |s: &Sibling<'_>| s.is_in() && s.is_out() && s.folded.is_none();
        if self.deferred {
            return Vec::new();
        }
        self.list.iter().filter(|s| is_one(s)).collect()
    }

    /// Rust type of what the operation returns.
    pub(super) fn return_type(&self, g: &Gen<'a>) -> Code {
        match self.returned().as_slice() {
            [] => quote!(()),
            [one] => g.owned_param(one.ty),
            _ => {
                let name = self.type_of("Out");
                quote!(#name)
            }
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
    pub(super) fn sibling_arg(&self, index: usize) -> Ident {
        format_ident!("{}_in_", bare(&self.list[index].name))
    }

    /// The names of all of them.
    pub(super) fn sibling_args(&self, g: &Gen<'a>) -> Vec<Ident> {
        self.reply_siblings(g).into_iter().map(|index| self.sibling_arg(index)).collect()
    }
}

impl<'a> Gen<'a> {
    /// Owned type of a parameter or result.
    pub(super) fn owned_param(&self, ty: &Ty) -> Code {
        match self.shape(ty) {
            Shape::Descriptor => quote!(Option<std::os::fd::OwnedFd>),
            shape => self.owned_shape(shape),
        }
    }

    /// The borrowed form of the owned parameter at a place.
    pub(super) fn borrow_param(&self, ty: &Ty, place: &Operand) -> Code {
        match self.shape(ty) {
            Shape::Descriptor => {
                let borrowed = place.as_ref();
                quote!(#borrowed.map(std::os::fd::AsFd::as_fd))
            }
            shape => self.borrow(shape, place),
        }
    }

    /// Type of a request's value as it is kept while the operation runs.
    pub(super) fn stored(&self, s: &Sibling<'_>, own: bool) -> Code {
        if own || s.is_out() || self.provider(s).is_some() {
            return self.owned_param(s.ty);
        }
        self.stored_shape(self.shape(s.ty))
    }

    fn stored_shape(&self, shape: Shape<'_>) -> Code {
        match shape {
            Shape::Fixed(element, n) if self.is_byte(element) => {
                let n = num(n);
                quote!(&'m [u8; #n])
            }
            Shape::Array(array) if Self::is_pod(self.shape(&array.element)) => {
                let element = self.owned(&array.element);
                quote!(std::borrow::Cow<'m, [#element]>)
            }
            Shape::Str(s) if s.wide => quote!(std::borrow::Cow<'m, [u16]>),
            Shape::Str(_) => quote!(std::borrow::Cow<'m, std::ffi::CStr>),
            Shape::Unique(target) => {
                let target = match self.shape(target) {
                    header @ (Shape::Array(_) | Shape::Str(_)) => self.stored_shape(header),
                    target => self.owned_shape(target),
                };
                quote!(Option<#target>)
            }
            Shape::Descriptor => quote!(Option<std::os::fd::OwnedFd>),
            other => self.owned_shape(other),
        }
    }

    fn is_byte(&self, ty: &Ty) -> bool {
        matches!(self.shape(ty), Shape::Scalar(Scalar::Char | Scalar::Byte | Scalar::U8))
    }

    /// The stored value at `at` as an argument of the server's method.
    pub(super) fn pass(&self, s: &Sibling<'_>, at: &Code) -> Code {
        let shape = self.shape(s.ty);
        match shape {
            Shape::Scalar(_) | Shape::Enum(_) | Shape::Handle(_) | Shape::Descriptor => at.clone(),
            Shape::Fixed(element, _) if self.is_byte(element) => at.clone(),
            Shape::Unique(target) => match self.shape(target) {
                Shape::Array(_) | Shape::Str(_) => quote!(#at.as_deref()),
                Shape::Scalar(_) | Shape::Enum(_) | Shape::Handle(_) => at.clone(),
                inner @ (Shape::Unique(_) | Shape::Descriptor | Shape::Interface(_)) => {
                    let inner = self.borrow(inner, &Operand::Item);
                    quote!(#at.as_ref().map(|x_| #inner))
                }
                _ => quote!(#at.as_ref()),
            },
            Shape::Interface(_) => quote!(#at.as_ref()),
            _ => quote!(&#at),
        }
    }

    /// The stored value at `at` in borrowed form, as wire functions want it.
    pub(super) fn restore(&self, s: &Sibling<'_>, at: &Code, own: bool) -> Code {
        let is_owned = own || s.is_out() || matches!(self.shape(s.ty), Shape::Descriptor);
        match is_owned {
            true => self.borrow_param(s.ty, &Operand::At(at.clone())),
            false => self.pass(s, at),
        }
    }

    /// The parameters of a signature. `server`: as the server's method has them.
    pub(super) fn signature(&self, op: &Op<'a>, server: bool) -> Vec<tokens::Param> {
        let mut params = Vec::new();
        for s in op.list.iter().filter(|s| s.folded.is_none()) {
            let shape = self.shape(s.ty);
            let ty = match (s.is_in(), s.is_out(), s.buffer) {
                (_, _, Some(buffer)) => self.buffer_type(s, buffer),
                (false, _, _) => continue,
                (true, true, _) if !op.deferred => {
                    let ty = self.owned_param(s.ty);
                    quote!(&mut #ty)
                }
                (true, ..) if server && op.deferred => self.owned_param(s.ty),
                (true, ..) if server && matches!(shape, Shape::Descriptor) => {
                    self.owned_param(s.ty)
                }
                (true, ..) => self.borrowed(shape, &Code::new()),
            };
            params.push(tokens::Param { name: s.ident(), ty });
        }
        params
    }

    /// Type of the parameter that is a caller's buffer.
    pub(super) fn buffer_type(&self, s: &Sibling<'_>, buffer: Buffer) -> Code {
        let element = self.buffer_element(s);
        match buffer {
            Buffer::Slice => quote!(&mut [#element]),
            Buffer::Vec => quote!(&mut Vec<#element>),
        }
    }

    /// Element type of a caller's buffer.
    pub(super) fn buffer_element(&self, s: &Sibling<'_>) -> Code {
        match self.shape(s.ty) {
            Shape::Array(array) => self.owned(&array.element),
            _ => quote!(u8),
        }
    }

    /// What siblings are worth in a reply: those that travel by `texts`, the others by argument.
    pub(super) fn reply_values(&self, op: &Op<'a>, texts: &[Option<Code>]) -> Vec<Option<Code>> {
        let mut values = self.values(&op.wire_list, texts);
        for (index, s) in op.wire_list.iter().enumerate() {
            if !s.is_out() {
                values[index] = None;
            }
        }
        for index in op.reply_siblings(self) {
            let arg = op.sibling_arg(index);
            values[index] = Some(quote!(#arg));
        }
        values
    }
}
