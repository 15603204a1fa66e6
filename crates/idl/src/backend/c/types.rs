//! Constants and types of the header: definitions, guards against a second definition, layout
//! assertions.

use crate::ir::{
    Const, ConstType, ConstValue, Encapsulation, Enum, Field, Scalar, Struct, Ty, TypeDef, TypeId,
    TypeKind, Union,
};
use crate::layout;

use super::model::Model;
use super::record::int32;
use super::template::{Code, c};
use super::text::{doc, string_literal};

/// Every constant and type, imported ones included: each guarded, so that headers of several files
/// go together.
pub(super) fn types(model: Model<'_>) -> Code {
    let consts: Code = model.m.consts.iter().map(constant).collect();
    let names = model.m.types.iter().map(|def| {
        let keyword = match &def.kind {
            TypeKind::Union(u) if u.encapsulated.is_none() => "union",
            TypeKind::Struct(_) | TypeKind::Union(_) => "struct",
            _ => return Code::new(),
        };
        c!(
            "
            #ifndef SJ_TYPE_$name
            typedef $keyword $name $name;
            #endif
            ",
            name = def.name,
            keyword,
        )
    });
    let names: Code = names.collect();
    let all = (0_u32..).zip(&model.m.types);
    consts + &names + &all.map(|(i, def)| type_def(model, TypeId(i), def)).collect::<Code>()
}

fn constant(constant: &Const) -> Code {
    c!(
        "

        $doc
        #ifndef $name
        #define $name $value
        #endif
        ",
        doc = doc(constant.doc.as_deref()),
        name = constant.name,
        value = const_value(constant),
    )
}

fn const_value(c: &Const) -> String {
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

fn type_def(model: Model<'_>, id: TypeId, def: &TypeDef) -> Code {
    let name = &def.name;
    let definition = match &def.kind {
        TypeKind::Alias(ty) => c!("typedef $decl;", decl = model.decl(ty, name)),
        TypeKind::Enum(e) => enumeration(name, e),
        TypeKind::Struct(s) => structure(model, id, name, s),
        TypeKind::Union(u) => union(model, name, u),
        TypeKind::ContextHandle => c!("typedef void *$name;", name),
        TypeKind::Opaque { size, align } => c!(
            r#"SJ_STATIC_ASSERT(sizeof($name) == $size && SJ_ALIGNOF($name) == $align, "$name is not what the interface says");"#,
            name,
            size,
            align = (*align).max(1),
        ),
    };
    c!(
        "

        #ifndef SJ_TYPE_$name
        #define SJ_TYPE_$name 1
        $doc
        $definition
        #endif
        ",
        name,
        doc = doc(def.doc.as_deref()),
        definition,
    )
}

fn enumeration(name: &str, e: &Enum) -> Code {
    let mut members = Code::new();
    for member in &e.members {
        members += &doc(member.doc.as_deref());
        members += &c!("$name = $value,", name = member.name, value = int32(member.value));
    }
    c!(
        r#"
        typedef enum $name {
            $members
        } $name;
        SJ_STATIC_ASSERT(sizeof($name) == 4, "$name: enumerations have 32 bits");
        "#,
        name,
        members,
    )
}

/// Members of a structure or union; one that C wants where there are none.
fn members<'t>(model: Model<'_>, fields: impl Iterator<Item = &'t Field>, names: &[&str]) -> Code {
    let mut out = Code::new();
    for field in fields {
        out += &doc(field.doc.as_deref());
        out += &c!("$member;", member = member(model, &field.ty, &field.name, names));
    }
    if out.is_empty() { c!("char sj_empty; /* not transmitted */") } else { out }
}

fn structure(model: Model<'_>, id: TypeId, name: &str, s: &Struct) -> Code {
    let names: Vec<&str> = s.fields.iter().map(|f| f.name.as_str()).collect();
    c!(
        "
        struct $name {
            $members
        };
        $assertions
        ",
        name,
        members = members(model, s.fields.iter(), &names),
        assertions = match model.has_wire_layout(&Ty::Named(id)) {
            true => assertions(model, name, s),
            false => Code::new(),
        },
    )
}

/// The layout of a structure that is copied as it is.
fn assertions(model: Model<'_>, name: &str, s: &Struct) -> Code {
    let l = layout::struct_layout(model.m, s);
    let mut out = c!(
        r#"SJ_STATIC_ASSERT(sizeof($name) == $size && SJ_ALIGNOF($name) == $align, "layout of $name");"#,
        name,
        size = l.size,
        align = l.align,
    );
    for (field, slot) in s.fields.iter().zip(&l.fields) {
        let Some(slot) = slot else { continue };
        out += &c!(
            r#"SJ_STATIC_ASSERT(offsetof($name, $f) == $offset, "layout of $name.$f");"#,
            name,
            f = field.name,
            offset = slot.offset,
        );
    }
    out
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

fn union(model: Model<'_>, name: &str, u: &Union) -> Code {
    let arms = || u.arms.iter().filter_map(|a| a.field.as_ref());
    let mut names: Vec<&str> = arms().map(|f| f.name.as_str()).collect();
    let Some(Encapsulation { tag, member: inner }) = &u.encapsulated else {
        return c!(
            "
            union $name {
                $members
            };
            ",
            name,
            members = members(model, arms(), &names),
        );
    };
    names.extend([tag.as_str(), inner.as_str()]);
    c!(
        "
        struct $name {
            $tag;
            union {
                $members
            } $inner;
        };
        ",
        name,
        tag = member(model, &u.switch, tag, &names),
        members = members(model, arms(), &names),
        inner,
    )
}

/// Prototypes of conversions that the user writes.
pub(super) fn conversions(model: Model<'_>) -> Code {
    let all = (0_u32..).zip(&model.m.types).filter_map(|(i, _)| {
        let m = model.marshal(TypeId(i))?;
        Some(c!(
            "

            /* Yours: $local <-> $name. What the wire value points to must live in the arena or for
             * ever. */
            void $prefix_to_wire(const $local *local, $name *wire, sj_arena *arena);
            bool $prefix_from_wire(const $name *wire, $local *local, sj_arena *arena);
            void $prefix_free($local *local);
            ",
            local = m.local,
            name = model.type_name(TypeId(i)),
            prefix = m.prefix,
        ))
    });
    all.collect()
}
