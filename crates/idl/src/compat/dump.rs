//! The promise of an interface as values: types with aliases replaced, siblings by number.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::describe::{Writing, expr_text, field_text, range_text, scalar_text, uuid_text};
use crate::ir::{Dir, IntRange, Interface, Module, Operation, Ty, TypeId, TypeKind};

/// Number of the dump's format.
pub(super) const FORMAT: u32 = 1;

#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(super) struct Dump {
    pub(super) format: u32,
    pub(super) interfaces: Vec<DumpInterface>,
    pub(super) types: Vec<DumpType>,
}

#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(super) struct DumpInterface {
    pub(super) name: String,
    pub(super) uuid: String,
    pub(super) major: u16,
    pub(super) minor: u16,
    /// Those of its bases included.
    pub(super) operations: Vec<DumpOperation>,
}

#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(super) struct DumpOperation {
    pub(super) number: u16,
    pub(super) name: String,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) oneway: bool,
    pub(super) result: String,
    pub(super) params: Vec<DumpParam>,
}

#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(super) struct DumpParam {
    pub(super) name: String,
    pub(super) direction: String,
    #[serde(rename = "type")]
    pub(super) ty: String,
}

#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(super) struct DumpType {
    pub(super) name: String,
    pub(super) kind: String,
    pub(super) members: Vec<DumpMember>,
}

#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(super) struct DumpMember {
    pub(super) name: String,
    #[serde(rename = "type")]
    pub(super) ty: String,
}

/// What `module` promises.
pub(super) fn of(module: &Module) -> Dump {
    let own = module.interfaces.iter().filter(|i| !i.imported && !i.is_local);
    let interfaces: Vec<DumpInterface> = own.clone().map(|i| interface(module, i)).collect();
    let mut needed = BTreeSet::new();
    for op in own.flat_map(|i| table(module, i)) {
        for ty in op.result.iter().chain(op.params.iter().map(|p| &p.ty)) {
            reach(module, ty, &mut needed);
        }
    }
    let types = needed.into_iter().filter_map(|id| named(module, id)).collect();
    Dump { format: FORMAT, interfaces, types }
}

/// Operations of an interface, those of its bases first.
fn table<'a>(module: &'a Module, interface: &'a Interface) -> Vec<&'a Operation> {
    let mut chain = vec![interface];
    while let Some(base) = chain.last().and_then(|i| i.base) {
        match module.interfaces.get(base.0 as usize) {
            Some(next) if chain.len() <= module.interfaces.len() => chain.push(next),
            _ => break,
        }
    }
    let all = chain.into_iter().rev().flat_map(|i| &i.operations);
    all.filter(|op| !op.is_local).collect()
}

fn interface(module: &Module, i: &Interface) -> DumpInterface {
    DumpInterface {
        name: i.name.clone(),
        uuid: uuid_text(&i.uuid),
        major: i.version.major,
        minor: i.version.minor,
        operations: table(module, i).into_iter().map(|op| operation(module, op)).collect(),
    }
}

fn operation(module: &Module, op: &Operation) -> DumpOperation {
    DumpOperation {
        number: op.opnum,
        name: op.name.clone(),
        oneway: op.oneway,
        result: op.result.as_ref().map_or("void".to_owned(), |ty| text(module, ty, None)),
        params: op
            .params
            .iter()
            .map(|p| DumpParam {
                name: p.name.clone(),
                direction: match p.dir {
                    Dir::In => "in",
                    Dir::Out => "out",
                    Dir::InOut => "in, out",
                }
                .to_owned(),
                ty: text(module, &p.ty, p.range),
            })
            .collect(),
    }
}

/// A type with aliases replaced and siblings by number: what it says is what travels.
fn text(module: &Module, ty: &Ty, range: Option<IntRange>) -> String {
    let attrs = range.map(range_text).into_iter().collect();
    let writing = Writing { module, names: &|i| format!("${i}"), expand: true };
    writing.declaration(ty, "", attrs)
}

fn reach(module: &Module, ty: &Ty, found: &mut BTreeSet<u32>) {
    let mut queue = vec![ty];
    while let Some(ty) = queue.pop() {
        match ty {
            Ty::Fixed(inner, _) | Ty::Pointer(_, inner) => queue.push(inner),
            Ty::Array(array) => queue.push(&array.element),
            Ty::Named(id) | Ty::Union(id, _) if found.insert(id.0) => {
                match crate::layout::kind(module, *id) {
                    Some(TypeKind::Alias(target)) => queue.push(target),
                    Some(TypeKind::Struct(s)) => queue.extend(s.fields.iter().map(|f| &f.ty)),
                    Some(TypeKind::Union(u)) => {
                        queue.push(&u.switch);
                        let fields = u.arms.iter().filter_map(|a| a.field.as_ref());
                        queue.extend(fields.map(|f| &f.ty));
                    }
                    _ => {}
                }
            }
            _ => {}
        }
    }
}

/// A type under its name; `None` for those that `text` spells out.
fn named(module: &Module, id: u32) -> Option<DumpType> {
    let def = module.types.get(id as usize)?;
    let number = |i: u32| format!("${i}");
    let member = |name: &str, ty: String| DumpMember { name: name.to_owned(), ty };
    let (kind, members) = match crate::layout::kind(module, TypeId(id))? {
        TypeKind::Enum(e) => {
            let members = e.members.iter().map(|m| member(&m.name, m.value.to_string()));
            ("enum".to_owned(), members.collect())
        }
        TypeKind::Struct(s) => {
            let members = s.fields.iter().map(|f| {
                let bare = crate::ir::Field { name: String::new(), ..f.clone() };
                member(&f.name, field_text(module, &bare, &number, true))
            });
            ("struct".to_owned(), members.collect())
        }
        TypeKind::Union(u) => {
            let switch = match crate::layout::strip(module, &u.switch) {
                Ty::Scalar(scalar) => scalar_text(*scalar).to_owned(),
                ty => text(module, ty, None),
            };
            let members = u.arms.iter().map(|arm| {
                let cases: Vec<String> = arm
                    .cases
                    .iter()
                    .map(|c| expr_text(&crate::ir::Expr::Const(*c), &number))
                    .collect();
                let cases = if cases.is_empty() { "default".to_owned() } else { cases.join(", ") };
                let ty = arm.field.as_ref().map_or(String::new(), |f| text(module, &f.ty, f.range));
                member(&cases, ty)
            });
            (format!("union switch ({switch})"), members.collect())
        }
        TypeKind::Alias(_) | TypeKind::Opaque { .. } | TypeKind::ContextHandle => return None,
    };
    Some(DumpType { name: def.name.clone(), kind, members })
}
