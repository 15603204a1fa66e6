//! Values that say nothing: what stands beside a status when a call fails.

use crate::ir::{Scalar, Ty, TypeKind};
use crate::layout;

use super::model::{Gen, Shape};

impl Gen<'_> {
    /// An owned parameter or result.
    pub(super) fn blank_param(&self, ty: &Ty) -> String {
        match self.shape(ty) {
            Shape::Descriptor => "None".to_owned(),
            shape => self.blank(shape, 0),
        }
    }

    fn blank(&self, shape: Shape<'_>, depth: u32) -> String {
        if depth > 32 {
            return "Default::default()".to_owned();
        }
        let below = |ty: &Ty| self.blank(self.shape(ty), depth + 1);
        match shape {
            Shape::Scalar(Scalar::Bool) => "false".to_owned(),
            Shape::Scalar(Scalar::F32 | Scalar::F64) => "0.0".to_owned(),
            Shape::Scalar(_) => "0".to_owned(),
            Shape::Enum(id) => match layout::kind(self.module, id) {
                Some(TypeKind::Enum(e)) => {
                    let first = self.variants(e).into_iter().next().unwrap_or_default();
                    format!("{}::{first}", self.type_name(id))
                }
                _ => "Default::default()".to_owned(),
            },
            Shape::Handle(id) => format!("{}::NULL", self.type_name(id)),
            Shape::Opaque(id, size) => format!("{}([0; {size}])", self.type_name(id)),
            Shape::Fixed(element, _) => format!("core::array::from_fn(|_| {})", below(element)),
            Shape::Struct(id) => match layout::kind(self.module, id) {
                Some(TypeKind::Struct(s)) => {
                    let fields: Vec<String> = super::siblings::fields(self, &s.fields)
                        .iter()
                        .filter(|f| f.folded.is_none())
                        .map(|f| format!("{}: {}", f.name, below(f.ty)))
                        .collect();
                    format!("{} {{ {} }}", self.type_name(id), fields.join(", "))
                }
                _ => "Default::default()".to_owned(),
            },
            Shape::Union(id, _) => self.blank_union(id, depth),
            Shape::Converted(_)
            | Shape::Array(_)
            | Shape::Str(_)
            | Shape::Unique(_)
            | Shape::Shared(_)
            | Shape::Descriptor
            | Shape::Interface(_) => "Default::default()".to_owned(),
        }
    }

    fn blank_union(&self, id: crate::ir::TypeId, depth: u32) -> String {
        let Some(TypeKind::Union(u)) = layout::kind(self.module, id) else {
            return "Default::default()".to_owned();
        };
        let variants = self.union_variants(u);
        let Some(v) = variants.iter().find(|v| !v.has_tag) else {
            return "Default::default()".to_owned();
        };
        let value = v.arm.field.as_ref().map(|f| self.blank(self.shape(&f.ty), depth + 1));
        let value = value.map(|v| format!("({v})")).unwrap_or_default();
        format!("{}::{}{value}", self.type_name(id), v.name)
    }
}
