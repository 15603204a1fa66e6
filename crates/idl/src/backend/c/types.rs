//! Constants and types of the header: definitions, guards against a second definition, layout
//! assertions.

use crate::ir::{
    Const, ConstType, ConstValue, Enum, Scalar, Struct, Ty, TypeDef, TypeId, TypeKind, Union,
};
use crate::layout;

use super::model::Model;
use super::text::{Text, string_literal};

/// Every constant and type, imported ones included: each guarded, so that headers of several files
/// go together.
pub(super) fn types(model: Model<'_>, w: &mut Text) {
    for c in &model.m.consts {
        constant(model, c, w);
    }
    for (i, def) in model.m.types.iter().enumerate() {
        if matches!(def.kind, TypeKind::Struct(_) | TypeKind::Union(_)) {
            let keyword = match &def.kind {
                TypeKind::Union(u) if u.encapsulated.is_none() => "union",
                _ => "struct",
            };
            let name = &def.name;
            w.flush_left(format!("#ifndef SJ_TYPE_{name}"));
            w.line(format!("typedef {keyword} {name} {name};"));
            w.flush_left("#endif");
        }
        let _ = i;
    }
    for (i, def) in model.m.types.iter().enumerate() {
        let Ok(i) = u32::try_from(i) else { break };
        type_def(model, TypeId(i), def, w);
    }
}

fn constant(model: Model<'_>, c: &Const, w: &mut Text) {
    let name = &c.name;
    w.blank();
    w.doc(c.doc.as_deref());
    w.flush_left(format!("#ifndef {name}"));
    w.flush_left(format!("#define {name} {}", const_value(model, c)));
    w.flush_left("#endif");
}

fn const_value(_model: Model<'_>, c: &Const) -> String {
    match (&c.value, c.ty) {
        (ConstValue::Int(n), ConstType::Scalar(s)) => int_constant(*n, s),
        (ConstValue::Int(n), _) => n.to_string(),
        (ConstValue::Float(x), ConstType::Scalar(Scalar::F32)) => format!("{}f", float_text(*x)),
        (ConstValue::Float(x), _) => float_text(*x),
        (ConstValue::String(bytes), ConstType::WideString) => {
            format!("u{}", string_literal(bytes))
        }
        (ConstValue::String(bytes), _) => string_literal(bytes),
    }
}

fn float_text(x: f64) -> String {
    let text = format!("{x:?}");
    if x < 0.0 { format!("({text})") } else { text }
}

fn int_constant(n: i128, s: Scalar) -> String {
    let text = match s {
        Scalar::Bool => return if n == 0 { "false" } else { "true" }.to_owned(),
        Scalar::U64 => format!("UINT64_C({n})"),
        Scalar::I64 if n == i128::from(i64::MIN) => return "INT64_MIN".to_owned(),
        Scalar::I64 => format!("INT64_C({n})"),
        Scalar::U32 | Scalar::ErrorStatus => format!("{n}u"),
        Scalar::I32 if n == i128::from(i32::MIN) => return "INT32_MIN".to_owned(),
        _ => n.to_string(),
    };
    if n < 0 { format!("({text})") } else { text }
}

fn type_def(model: Model<'_>, id: TypeId, def: &TypeDef, w: &mut Text) {
    let name = &def.name;
    w.blank();
    w.flush_left(format!("#ifndef SJ_TYPE_{name}"));
    w.flush_left(format!("#define SJ_TYPE_{name} 1"));
    w.doc(def.doc.as_deref());
    match &def.kind {
        TypeKind::Alias(ty) => w.line(format!("typedef {};", model.decl(ty, name))),
        TypeKind::Enum(e) => enumeration(name, e, w),
        TypeKind::Struct(s) => structure(model, id, name, s, w),
        TypeKind::Union(u) => union(model, name, u, w),
        TypeKind::ContextHandle => w.line(format!("typedef void *{name};")),
        TypeKind::Opaque { size, align } => {
            let align = (*align).max(1);
            w.line(format!(
                "SJ_STATIC_ASSERT(sizeof({name}) == {size} && SJ_ALIGNOF({name}) == {align}, \"{name} is not what the interface says\");"
            ));
        }
    }
    w.flush_left("#endif");
}

fn enumeration(name: &str, e: &Enum, w: &mut Text) {
    w.open(format!("typedef enum {name}"));
    for member in &e.members {
        w.doc(member.doc.as_deref());
        let value = if member.value == i32::MIN {
            "INT32_MIN".to_owned()
        } else {
            member.value.to_string()
        };
        w.line(format!("{} = {value},", member.name));
    }
    w.close_with(&format!(" {name};"));
    w.line(format!(
        "SJ_STATIC_ASSERT(sizeof({name}) == 4, \"{name}: enumerations have 32 bits\");"
    ));
}

fn structure(model: Model<'_>, id: TypeId, name: &str, s: &Struct, w: &mut Text) {
    w.open(format!("struct {name}"));
    let names: Vec<&str> = s.fields.iter().map(|f| f.name.as_str()).collect();
    for field in &s.fields {
        w.doc(field.doc.as_deref());
        w.line(format!("{};", member(model, &field.ty, &field.name, &names)));
    }
    if s.fields.is_empty() {
        w.line("char sj_empty; /* not transmitted */");
    }
    w.close_with(";");
    if !model.is_plain(&Ty::Named(id)) {
        return;
    }
    let l = layout::struct_layout(model.m, s);
    w.line(format!(
        "SJ_STATIC_ASSERT(sizeof({name}) == {} && SJ_ALIGNOF({name}) == {}, \"layout of {name}\");",
        l.size, l.align
    ));
    for (field, slot) in s.fields.iter().zip(&l.fields) {
        let Some(slot) = slot else { continue };
        let f = &field.name;
        w.line(format!(
            "SJ_STATIC_ASSERT(offsetof({name}, {f}) == {}, \"layout of {name}.{f}\");",
            slot.offset
        ));
    }
}

/// A member among others called `names`. A type that is called as one of them is hidden by it in
/// C++, and in C too from there on, unless it is spoken of as what it is.
fn member(model: Model<'_>, ty: &Ty, name: &str, names: &[&str]) -> String {
    let text = model.decl(ty, name);
    let keyword = super::names::named(ty)
        .filter(|id| names.contains(&model.type_name(*id).as_str()))
        .and_then(|id| model.keyword(id));
    keyword.map_or_else(|| text.clone(), |keyword| format!("{keyword} {text}"))
}

fn union(model: Model<'_>, name: &str, u: &Union, w: &mut Text) {
    let arms_of = u.arms.iter().filter_map(|a| a.field.as_ref());
    let mut names: Vec<&str> = arms_of.map(|f| f.name.as_str()).collect();
    let Some((tag, inner)) = &u.encapsulated else {
        w.open(format!("union {name}"));
        arms(model, u, &names, w);
        w.close_with(";");
        return;
    };
    names.extend([tag.as_str(), inner.as_str()]);
    w.open(format!("struct {name}"));
    w.line(format!("{};", member(model, &u.switch, tag, &names)));
    w.open("union");
    arms(model, u, &names, w);
    w.close_with(&format!(" {inner};"));
    w.close_with(";");
}

fn arms(model: Model<'_>, u: &Union, names: &[&str], w: &mut Text) {
    let mut any = false;
    for field in u.arms.iter().filter_map(|a| a.field.as_ref()) {
        w.doc(field.doc.as_deref());
        w.line(format!("{};", member(model, &field.ty, &field.name, names)));
        any = true;
    }
    if !any {
        w.line("char sj_empty; /* not transmitted */");
    }
}

/// Prototypes of conversions that the user writes.
pub(super) fn conversions(model: Model<'_>, w: &mut Text) {
    for i in 0..model.m.types.len() {
        let Ok(i) = u32::try_from(i) else { break };
        let Some(m) = model.marshal(TypeId(i)) else { continue };
        let (name, local, prefix) = (model.type_name(TypeId(i)), m.local, m.prefix);
        w.blank();
        w.line(format!(
            "/* Yours: {local} <-> {name}. What the wire value points to must live in the arena or for ever. */"
        ));
        w.line(format!(
            "void {prefix}_to_wire(const {local} *local, {name} *wire, sj_arena *arena);"
        ));
        w.line(format!(
            "bool {prefix}_from_wire(const {name} *wire, {local} *local, sj_arena *arena);"
        ));
        w.line(format!("void {prefix}_free({local} *local);"));
    }
}
