//! Values that say nothing: what stands beside a status when a call fails.
//!
//! Structures and unions have a function each, so that one that holds two of another is no longer
//! than one that holds two numbers.

use proc_macro2::Ident;
use std::collections::BTreeSet;

use crate::ir::{Operation, Scalar, Struct, Ty, TypeId, TypeKind, Union};
use crate::layout;

use super::model::{Gen, Shape};
use super::tokens::{Code, ident, num};
use quote::{format_ident, quote};

impl<'a> Gen<'a> {
    /// An owned parameter or result.
    pub(super) fn blank_param(&self, ty: &Ty) -> Code {
        match self.shape(ty) {
            Shape::Descriptor => quote!(None),
            shape => self.blank(shape),
        }
    }

    /// The functions of every structure and union that may stand beside a status.
    pub(super) fn blanks(&self) -> Code {
        let mut needed = BTreeSet::new();
        let operations = self.module.interfaces.iter().flat_map(|i| &i.operations);
        for op in operations.filter(|op| has_status(op)) {
            let out = op.params.iter().filter(|p| p.is_out()).map(|p| &p.ty);
            out.chain(&op.result).for_each(|ty| self.blanks_in(ty, &mut needed));
        }
        let function = |id: &TypeId| {
            let value = match layout::kind(self.module, *id) {
                Some(TypeKind::Struct(s)) => self.blank_struct(*id, s),
                Some(TypeKind::Union(u)) => self.blank_union(*id, u),
                _ => return Code::new(),
            };
            let (function, name) = (self.blank_name(*id), self.type_code(*id));
            quote!(fn #function() -> #name { #value })
        };
        needed.iter().map(function).collect()
    }

    fn blank_name(&self, id: TypeId) -> Ident {
        format_ident!("blank_{}", self.type_snake(id))
    }

    /// Structures and unions whose functions a value of `ty` needs.
    fn blanks_in(&self, ty: &Ty, needed: &mut BTreeSet<TypeId>) {
        match self.shape(ty) {
            Shape::Fixed(element, _) => self.blanks_in(element, needed),
            Shape::Struct(id) | Shape::Union(id, _) if needed.insert(id) => {
                match layout::kind(self.module, id) {
                    Some(TypeKind::Struct(s)) => {
                        s.fields.iter().for_each(|f| self.blanks_in(&f.ty, needed));
                    }
                    Some(TypeKind::Union(u)) => {
                        let fields = u.arms.iter().filter_map(|a| a.field.as_ref());
                        fields.for_each(|f| self.blanks_in(&f.ty, needed));
                    }
                    _ => {}
                }
            }
            _ => {}
        }
    }

    fn blank(&self, shape: Shape<'_>) -> Code {
        match shape {
            Shape::Scalar(Scalar::Bool) => quote!(false),
            Shape::Scalar(Scalar::F32 | Scalar::F64) => quote!(0.0),
            Shape::Scalar(_) => quote!(0),
            Shape::Enum(id) => match layout::kind(self.module, id) {
                Some(TypeKind::Enum(e)) => {
                    let first = self.variants(e).into_iter().next().unwrap_or_default();
                    let (name, first) = (self.type_code(id), ident(&first));
                    quote!(#name::#first)
                }
                _ => quote!(Default::default()),
            },
            Shape::Handle(id) => {
                let name = self.type_code(id);
                quote!(#name::NULL)
            }
            Shape::Opaque(id, size) => {
                let (name, size) = (self.type_code(id), num(size));
                quote!(#name([0; #size]))
            }
            Shape::Fixed(element, _) => {
                let one = self.blank(self.shape(element));
                quote!(core::array::from_fn(|_| #one))
            }
            Shape::Struct(id) | Shape::Union(id, _) => {
                let function = self.blank_name(id);
                quote!(#function())
            }
            Shape::Converted(_)
            | Shape::Array(_)
            | Shape::Str(_)
            | Shape::Unique(_)
            | Shape::Shared(_)
            | Shape::Descriptor
            | Shape::Interface(_) => quote!(Default::default()),
        }
    }

    fn blank_struct(&self, id: TypeId, s: &'a Struct) -> Code {
        let list = super::siblings::fields(self, &s.fields);
        let fields = list.iter().filter(|f| f.folded.is_none()).map(|f| {
            let (name, value) = (f.ident(), self.blank(self.shape(f.ty)));
            quote!(#name: #value)
        });
        let name = self.type_code(id);
        quote!(#name { #(#fields),* })
    }

    fn blank_union(&self, id: TypeId, u: &'a Union) -> Code {
        let variants = self.union_variants(u);
        let Some(v) = variants.iter().find(|v| !v.has_tag) else {
            return quote!(Default::default());
        };
        let value = v.arm.field.as_ref().map(|f| self.blank(self.shape(&f.ty)));
        let value = value.map(|value| quote!((#value)));
        let (name, variant) = (self.type_code(id), &v.name);
        quote!(#name::#variant #value)
    }
}

/// Returns true if failures of the operation become values.
fn has_status(op: &Operation) -> bool {
    let of_params = op.params.iter().any(|p| p.acf.comm_status || p.acf.fault_status);
    op.acf.comm_status || op.acf.fault_status || of_params
}
