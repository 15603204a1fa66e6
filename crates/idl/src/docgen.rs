//! Documentation from comments: Markdown, or one plain HTML page.
//!
//! Both come from the same list of blocks, so they say the same.

use std::fmt::Write as _;

use crate::describe::{Writing, field_text, param_text, result_text, scalar_text, uuid_text};
use crate::ir::{
    Const, ConstType, ConstValue, DeclaredOperation, Doc, Encapsulation, Interface, Module,
    Operation, TypeDef, TypeKind,
};

enum Block {
    Heading(u8, String),
    Text(String),
    Code(String),
    Rows(Vec<Row>),
}

/// A name with its explanation.
struct Row {
    name: String,
    text: String,
}

/// The documentation as Markdown.
#[must_use]
pub fn markdown(module: &Module) -> String {
    let mut out = String::new();
    for block in blocks(module) {
        // Writing to a string cannot fail.
        let _ = match block {
            Block::Heading(level, text) => {
                writeln!(out, "{} {text}\n", "#".repeat(usize::from(level)))
            }
            Block::Text(text) => writeln!(out, "{text}\n"),
            Block::Code(text) => writeln!(out, "```idl\n{text}\n```\n"),
            Block::Rows(rows) => rows.iter().try_for_each(|Row { name, text }| {
                let text = text.replace('\n', "\n  ");
                writeln!(out, "- `{name}`{}{text}", if text.is_empty() { "" } else { ": " })
            }),
        };
        if out.ends_with('\n') && !out.ends_with("\n\n") {
            out.push('\n');
        }
    }
    format!("{}\n", out.trim_end())
}

/// The documentation as a page of HTML without scripts or foreign parts.
#[must_use]
pub fn html(module: &Module) -> String {
    let mut body = String::new();
    for block in blocks(module) {
        let _ = match block {
            Block::Heading(n, text) => writeln!(body, "<h{n}>{}</h{n}>", escape(&text)),
            Block::Text(text) => writeln!(body, "{}", paragraphs(&text)),
            Block::Code(text) => writeln!(body, "<pre><code>{}</code></pre>", escape(&text)),
            Block::Rows(rows) => {
                let items = rows.iter().fold(String::new(), |mut items, Row { name, text }| {
                    let (name, text) = (escape(name), escape(text));
                    let _ = writeln!(items, "<dt><code>{name}</code></dt><dd>{text}</dd>");
                    items
                });
                writeln!(body, "<dl>\n{items}</dl>")
            }
        };
    }
    let title = escape(&title(module));
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>{title}</title>\n\
         <style>body{{max-width:50em;margin:2em auto;padding:0 1em;font-family:sans-serif;line-height:1.4}}\
         pre{{background:#f4f4f4;padding:.6em;overflow-x:auto}}dd{{margin-bottom:.4em}}</style>\n\
         </head>\n<body>\n{body}</body>\n</html>\n"
    )
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

fn paragraphs(text: &str) -> String {
    let parts: Vec<String> =
        text.split("\n\n").map(|p| format!("<p>{}</p>", escape(p.trim()))).collect();
    parts.join("\n")
}

fn title(module: &Module) -> String {
    module.library.as_ref().map_or_else(|| module.name.clone(), |l| l.name.clone())
}

fn blocks(module: &Module) -> Vec<Block> {
    let mut blocks = vec![Block::Heading(1, title(module))];
    blocks.extend(text(module.library.as_ref().map_or(&None, |l| &l.doc)));
    for interface in module.interfaces.iter().filter(|i| !i.imported) {
        interface_blocks(module, interface, &mut blocks);
    }
    let types: Vec<&TypeDef> = module.types.iter().filter(|t| !t.imported).collect();
    if !types.is_empty() {
        blocks.push(Block::Heading(2, "Types".to_owned()));
    }
    for def in types {
        type_blocks(module, def, &mut blocks);
    }
    let consts: Vec<&Const> = module.consts.iter().filter(|c| !c.imported).collect();
    if !consts.is_empty() {
        blocks.push(Block::Heading(2, "Constants".to_owned()));
        let rows = consts
            .iter()
            .map(|c| Row { name: const_text(c), text: c.doc.clone().unwrap_or_default() });
        blocks.push(Block::Rows(rows.collect()));
    }
    blocks
}

fn text(doc: &Doc) -> Option<Block> {
    doc.as_ref().filter(|d| !d.trim().is_empty()).map(|d| Block::Text(d.trim().to_owned()))
}

fn interface_blocks(module: &Module, interface: &Interface, blocks: &mut Vec<Block>) {
    blocks.push(Block::Heading(2, format!("Interface {}", interface.name)));
    blocks.extend(text(&interface.doc));
    let base = interface.base.and_then(|id| module.interfaces.get(id.0 as usize));
    let version = interface.version;
    let fact = |name: &str, text| Row { name: name.to_owned(), text };
    let mut facts = vec![
        fact("uuid", uuid_text(&interface.uuid)),
        fact("version", format!("{}.{}", version.major, version.minor)),
    ];
    facts.extend(base.map(|b| fact("extends", b.name.clone())));
    blocks.push(Block::Rows(facts));
    for operation in &interface.operations {
        operation_blocks(module, operation, blocks);
    }
    if !interface.declared.is_empty() {
        blocks.push(Block::Heading(3, "Declared only".to_owned()));
        let row =
            |op: &DeclaredOperation| Row { name: op.name.clone(), text: op.cause.message.clone() };
        blocks.push(Block::Rows(interface.declared.iter().map(row).collect()));
    }
}

fn operation_blocks(module: &Module, operation: &Operation, blocks: &mut Vec<Block>) {
    blocks.push(Block::Heading(3, operation.name.clone()));
    blocks.push(Block::Code(signature(module, operation)));
    blocks.extend(text(&operation.doc));
    let documented = operation
        .params
        .iter()
        .filter_map(|p| Some(Row { name: p.name.clone(), text: p.doc.clone()? }));
    let rows: Vec<Row> = documented.collect();
    if !rows.is_empty() {
        blocks.push(Block::Rows(rows));
    }
    let number = format!("Operation number {}.", operation.opnum);
    blocks.push(Block::Text(number));
}

fn signature(module: &Module, operation: &Operation) -> String {
    let names = |i: u32| operation.params.get(i as usize).map_or(String::new(), |p| p.name.clone());
    let mut attrs = Vec::new();
    attrs.extend(operation.oneway.then_some("oneway"));
    attrs.extend(operation.idempotent.then_some("idempotent"));
    attrs.extend(operation.is_local.then_some("local"));
    let attrs = if attrs.is_empty() { String::new() } else { format!("[{}] ", attrs.join(", ")) };
    let params: Vec<String> = operation
        .params
        .iter()
        .map(|p| format!("    {}", param_text(module, p, &p.name, &names, false)))
        .collect();
    let list =
        if params.is_empty() { "void".to_owned() } else { format!("\n{}", params.join(",\n")) };
    format!("{attrs}{} {}({list});", result_text(module, operation, false), operation.name)
}

fn type_blocks(module: &Module, def: &TypeDef, blocks: &mut Vec<Block>) {
    blocks.push(Block::Heading(3, def.name.clone()));
    blocks.push(Block::Code(type_text(module, def)));
    blocks.extend(text(&def.doc));
    let members: Vec<(&String, &Doc)> = match &def.kind {
        TypeKind::Enum(e) => e.members.iter().map(|m| (&m.name, &m.doc)).collect(),
        TypeKind::Struct(s) => s.fields.iter().map(|f| (&f.name, &f.doc)).collect(),
        TypeKind::Union(u) => {
            u.arms.iter().filter_map(|a| a.field.as_ref()).map(|f| (&f.name, &f.doc)).collect()
        }
        _ => Vec::new(),
    };
    let rows: Vec<Row> = members
        .into_iter()
        .filter_map(|(name, doc)| Some(Row { name: name.clone(), text: doc.clone()? }))
        .collect();
    if !rows.is_empty() {
        blocks.push(Block::Rows(rows));
    }
}

fn type_text(module: &Module, def: &TypeDef) -> String {
    let name = &def.name;
    match &def.kind {
        TypeKind::Alias(ty) => {
            let writing = Writing { module, names: &|_| String::new(), expand: false };
            format!("typedef {};", writing.declaration(ty, name, vec![]))
        }
        TypeKind::Enum(e) => {
            let members: Vec<String> =
                e.members.iter().map(|m| format!("    {} = {}", m.name, m.value)).collect();
            format!("typedef enum {{\n{}\n}} {name};", members.join(",\n"))
        }
        TypeKind::Struct(s) => {
            let names = |i: u32| s.fields.get(i as usize).map_or(String::new(), |f| f.name.clone());
            let fields: String = s
                .fields
                .iter()
                .map(|f| format!("    {};\n", field_text(module, f, &names, false)))
                .collect();
            format!("typedef struct {{\n{fields}}} {name};")
        }
        TypeKind::Union(u) => union_text(module, u, name),
        TypeKind::Opaque { size, align } => format!("typedef [opaque({size}, {align})] {name};"),
        TypeKind::ContextHandle => format!("typedef [context_handle] void *{name};"),
    }
}

fn union_text(module: &Module, u: &crate::ir::Union, name: &str) -> String {
    let none = |_: u32| String::new();
    let writing = Writing { module, names: &none, expand: false };
    let switch = |name: &str| writing.declaration(&u.switch, name, vec![]);
    let mut arms = String::new();
    for arm in &u.arms {
        let cases: Vec<String> = arm.cases.iter().map(ToString::to_string).collect();
        let member = arm.field.as_ref().map(|f| field_text(module, f, &none, false));
        let member = member.unwrap_or_default();
        let label = match (u.encapsulated.is_some(), cases.is_empty()) {
            (true, true) => "default: ".to_owned(),
            (true, false) => cases.iter().map(|c| format!("case {c}: ")).collect(),
            (false, true) => "[default] ".to_owned(),
            (false, false) => format!("[case({})] ", cases.join(", ")),
        };
        let _ = writeln!(arms, "    {label}{member};");
    }
    match &u.encapsulated {
        Some(Encapsulation { tag, member }) => {
            format!("typedef union switch ({}) {member} {{\n{arms}}} {name};", switch(tag))
        }
        None => format!("typedef [switch_type({})] union {{\n{arms}}} {name};", switch("")),
    }
}

fn const_text(constant: &Const) -> String {
    let ty = match constant.ty {
        ConstType::Scalar(scalar) => scalar_text(scalar),
        ConstType::String => "char *",
        ConstType::WideString => "wchar_t *",
    };
    let value = match &constant.value {
        ConstValue::Int(n) => n.to_string(),
        ConstValue::Float(f) => f.to_string(),
        ConstValue::String(text) => format!("\"{}\"", text.escape_ascii()),
    };
    format!("const {ty} {} = {value};", constant.name)
}

#[cfg(test)]
mod tests;
