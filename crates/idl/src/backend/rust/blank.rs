//! Values that say nothing: what stands beside a status when a call fails.
//!
//! Structures and unions have a function each, so that one that holds two of another is no longer
//! than one that holds two numbers.

use std::collections::BTreeSet;

use crate::ir::{Operation, Scalar, Struct, Ty, TypeId, TypeKind, Union};
use crate::layout;

use super::model::{Gen, Shape};

/// Where nothing has to be said.
const DEFAULT: &str = "Default::default()";

impl<'a> Gen<'a> {
    /// An owned parameter or result.
    pub(super) fn blank_param(&self, ty: &Ty) -> String {
        match self.shape(ty) {
            Shape::Descriptor => "None".to_owned(),
            shape => self.blank(shape),
        }
    }

    /// The functions of every structure and union that may stand beside a status.
    pub(super) fn blanks(&self) -> String {
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
                _ => return String::new(),
            };
            let (snake, name) = (self.type_snake(*id), self.type_name(*id));
            format!("fn blank_{snake}() -> {name} {{ {value} }}\n")
        };
        needed.iter().map(function).collect()
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

    fn blank(&self, shape: Shape<'_>) -> String {
        match shape {
            Shape::Scalar(Scalar::Bool) => "false".to_owned(),
            Shape::Scalar(Scalar::F32 | Scalar::F64) => "0.0".to_owned(),
            Shape::Scalar(_) => "0".to_owned(),
            Shape::Enum(id) => match layout::kind(self.module, id) {
                Some(TypeKind::Enum(e)) => {
                    let first = self.variants(e).into_iter().next().unwrap_or_default();
                    format!("{}::{first}", self.type_name(id))
                }
                _ => DEFAULT.to_owned(),
            },
            Shape::Handle(id) => format!("{}::NULL", self.type_name(id)),
            Shape::Opaque(id, size) => format!("{}([0; {size}])", self.type_name(id)),
            Shape::Fixed(element, _) => {
                format!("core::array::from_fn(|_| {})", self.blank(self.shape(element)))
            }
            Shape::Struct(id) | Shape::Union(id, _) => format!("blank_{}()", self.type_snake(id)),
            Shape::Converted(_)
            | Shape::Array(_)
            | Shape::Str(_)
            | Shape::Unique(_)
            | Shape::Shared(_)
            | Shape::Descriptor
            | Shape::Interface(_) => DEFAULT.to_owned(),
        }
    }

    fn blank_struct(&self, id: TypeId, s: &'a Struct) -> String {
        let fields: Vec<String> = super::siblings::fields(self, &s.fields)
            .iter()
            .filter(|f| f.folded.is_none())
            .map(|f| format!("{}: {}", f.name, self.blank(self.shape(f.ty))))
            .collect();
        format!("{} {{ {} }}", self.type_name(id), fields.join(", "))
    }

    fn blank_union(&self, id: TypeId, u: &'a Union) -> String {
        let variants = self.union_variants(u);
        let Some(v) = variants.iter().find(|v| !v.has_tag) else { return DEFAULT.to_owned() };
        let value = v.arm.field.as_ref().map(|f| self.blank(self.shape(&f.ty)));
        let value = value.map(|v| format!("({v})")).unwrap_or_default();
        format!("{}::{}{value}", self.type_name(id), v.name)
    }
}

/// Whether failures of the operation become values.
fn has_status(op: &Operation) -> bool {
    let of_params = op.params.iter().any(|p| p.acf.comm_status || p.acf.fault_status);
    op.acf.comm_status || op.acf.fault_status || of_params
}
