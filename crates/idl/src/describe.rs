//! Types and expressions as text in the language's own words: for documentation and dumps.

use crate::ir::{
    Array, BinaryOp, Expr, Field, IntRange, InterfaceRef, Module, Operation, Param, PtrClass,
    Scalar, Ty, TypeKind, UnaryOp, Uuid,
};
use crate::layout;

/// How sibling number so-and-so is called.
pub(crate) type Names<'a> = &'a dyn Fn(u32) -> String;

/// A uuid as it is written.
pub(crate) fn uuid_text(uuid: &Uuid) -> String {
    let hex: String = uuid.iter().map(|b| format!("{b:02x}")).collect();
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

/// The words of a scalar type.
pub(crate) fn scalar_text(scalar: Scalar) -> &'static str {
    match scalar {
        Scalar::Bool => "boolean",
        Scalar::Char => "char",
        Scalar::WChar => "wchar_t",
        Scalar::Byte => "byte",
        Scalar::I8 => "small",
        Scalar::U8 => "unsigned small",
        Scalar::I16 => "short",
        Scalar::U16 => "unsigned short",
        Scalar::I32 => "long",
        Scalar::U32 => "unsigned long",
        Scalar::I64 => "hyper",
        Scalar::U64 => "unsigned hyper",
        Scalar::F32 => "float",
        Scalar::F64 => "double",
        Scalar::ErrorStatus => "error_status_t",
    }
}

/// An expression over siblings.
pub(crate) fn expr_text(expr: &Expr, names: Names<'_>) -> String {
    match expr {
        Expr::Const(n) => n.to_string(),
        Expr::Var { index, deref } => {
            format!("{}{}", if *deref { "*" } else { "" }, names(*index))
        }
        Expr::Unary(op, operand) => {
            let sign = match op {
                UnaryOp::Neg => "-",
                UnaryOp::Not => "~",
                UnaryOp::LogicalNot => "!",
            };
            format!("{sign}({})", expr_text(operand, names))
        }
        Expr::Binary(op, a, b) => {
            let (a, b) = (operand(a, names), operand(b, names));
            format!("{a} {} {b}", operator(*op))
        }
        Expr::Cond(c, a, b) => {
            let (c, a, b) = (operand(c, names), operand(a, names), operand(b, names));
            format!("{c} ? {a} : {b}")
        }
    }
}

fn operand(expr: &Expr, names: Names<'_>) -> String {
    let text = expr_text(expr, names);
    if matches!(expr, Expr::Binary(..) | Expr::Cond(..)) { format!("({text})") } else { text }
}

fn operator(op: BinaryOp) -> &'static str {
    match op {
        BinaryOp::Add => "+",
        BinaryOp::Sub => "-",
        BinaryOp::Mul => "*",
        BinaryOp::Div => "/",
        BinaryOp::Rem => "%",
        BinaryOp::Shl => "<<",
        BinaryOp::Shr => ">>",
        BinaryOp::And => "&",
        BinaryOp::Or => "|",
        BinaryOp::Xor => "^",
        BinaryOp::LogicalAnd => "&&",
        BinaryOp::LogicalOr => "||",
        BinaryOp::Eq => "==",
        BinaryOp::Ne => "!=",
        BinaryOp::Lt => "<",
        BinaryOp::Le => "<=",
        BinaryOp::Gt => ">",
        BinaryOp::Ge => ">=",
    }
}

/// A declaration taken apart: `[attributes] base declarator`.
struct Declared {
    attrs: Vec<String>,
    base: String,
    declarator: String,
}

/// How types are written.
#[derive(Clone, Copy)]
pub(crate) struct Writing<'a> {
    pub(crate) module: &'a Module,
    pub(crate) names: Names<'a>,
    /// Aliases are replaced by what they stand for.
    pub(crate) expand: bool,
}

impl Writing<'_> {
    /// `[attributes] type name` of something declared with type `ty`.
    pub(crate) fn declaration(self, ty: &Ty, name: &str, mut attrs: Vec<String>) -> String {
        let mut declared =
            Declared { attrs: Vec::new(), base: String::new(), declarator: name.to_owned() };
        declared.put(self.module, ty, self.names, self.expand, 0);
        attrs.append(&mut declared.attrs);
        let list =
            if attrs.is_empty() { String::new() } else { format!("[{}] ", attrs.join(", ")) };
        let space = if declared.declarator.is_empty() { "" } else { " " };
        format!("{list}{}{space}{}", declared.base, declared.declarator)
    }
}

impl Declared {
    fn put(&mut self, module: &Module, ty: &Ty, names: Names<'_>, expand: bool, depth: u32) {
        match ty {
            Ty::Scalar(scalar) => scalar_text(*scalar).clone_into(&mut self.base),
            Ty::Named(id) => self.named(module, id.0, names, expand, depth),
            Ty::Union(id, switch) => {
                self.attrs.push(format!("switch_is({})", expr_text(switch, names)));
                self.named(module, id.0, names, false, depth);
            }
            Ty::Fixed(element, n) => {
                self.dimension(&n.to_string());
                self.put(module, element, names, expand, depth);
            }
            Ty::Array(array) => {
                self.array(array, names);
                self.put(module, &array.element, names, expand, depth);
            }
            Ty::String(string) => {
                self.attrs.push("string".to_owned());
                let bound = string.bound.as_ref();
                self.attrs.extend(bound.map(|b| format!("size_is({})", expr_text(b, names))));
                self.pointer();
                (if string.wide { "wchar_t" } else { "char" }).clone_into(&mut self.base);
            }
            Ty::Pointer(class, target) => {
                self.attrs.push(class_text(*class).to_owned());
                if !layout::is_header(module, target) {
                    self.pointer();
                }
                self.put(module, target, names, expand, depth);
            }
            Ty::Descriptor => "descriptor".clone_into(&mut self.base),
            Ty::Interface(reference) => self.interface(module, reference, names),
        }
    }

    fn named(&mut self, module: &Module, id: u32, names: Names<'_>, expand: bool, depth: u32) {
        let Some(def) = module.types.get(id as usize) else { return };
        match &def.kind {
            TypeKind::Alias(target) if expand && depth < 64 => {
                self.put(module, target, names, expand, depth + 1);
            }
            TypeKind::ContextHandle if expand => "context_handle".clone_into(&mut self.base),
            TypeKind::Opaque { size, align } if expand => {
                self.base = format!("opaque({size}, {align})");
            }
            _ => self.base.clone_from(&def.name),
        }
    }

    fn array(&mut self, array: &Array, names: Names<'_>) {
        self.attrs.push(format!("size_is({})", expr_text(&array.size, names)));
        if array.first != Expr::Const(0) {
            self.attrs.push(format!("first_is({})", expr_text(&array.first, names)));
        }
        let length = array.length.as_ref();
        self.attrs.extend(length.map(|l| format!("length_is({})", expr_text(l, names))));
        self.pointer();
    }

    fn interface(&mut self, module: &Module, reference: &InterfaceRef, names: Names<'_>) {
        self.attrs.extend(reference.iid_is.map(|i| format!("iid_is({})", names(i))));
        let interface = reference.interface.and_then(|id| module.interfaces.get(id.0 as usize));
        self.base = interface.map_or("IUnknown".to_owned(), |i| i.name.clone());
        self.pointer();
    }

    fn pointer(&mut self) {
        self.declarator.insert(0, '*');
    }

    fn dimension(&mut self, n: &str) {
        if self.declarator.starts_with('*') {
            self.declarator = format!("({})", self.declarator);
        }
        self.declarator = format!("{}[{n}]", self.declarator);
    }
}

fn class_text(class: PtrClass) -> &'static str {
    match class {
        PtrClass::Ref => "ref",
        PtrClass::Unique => "unique",
        PtrClass::Ptr => "ptr",
    }
}

/// `range(low, high)`
pub(crate) fn range_text(range: IntRange) -> String {
    format!("range({}, {})", range.low, range.high)
}

/// A field as it would be declared.
pub(crate) fn field_text(module: &Module, field: &Field, names: Names<'_>, expand: bool) -> String {
    let mut attrs = Vec::new();
    attrs.extend(field.ignore.then(|| "ignore".to_owned()));
    attrs.extend(field.range.map(range_text));
    Writing { module, names, expand }.declaration(&field.ty, &field.name, attrs)
}

/// A parameter as it would be declared, under `name`.
pub(crate) fn param_text(
    module: &Module,
    param: &Param,
    name: &str,
    names: Names<'_>,
    expand: bool,
) -> String {
    let mut attrs = Vec::new();
    attrs.extend(param.is_in().then(|| "in".to_owned()));
    attrs.extend(param.is_out().then(|| "out".to_owned()));
    attrs.extend(param.range.map(range_text));
    attrs.extend(param.retval.then(|| "retval".to_owned()));
    let name = if param.by_pointer { format!("*{name}") } else { name.to_owned() };
    Writing { module, names, expand }.declaration(&param.ty, &name, attrs)
}

/// The result's type.
pub(crate) fn result_text(module: &Module, operation: &Operation, expand: bool) -> String {
    match &operation.result {
        None => "void".to_owned(),
        Some(ty) => {
            let names = &|i| format!("${i}");
            Writing { module, names, expand }.declaration(ty, "", Vec::new())
        }
    }
}
