//! The syntax tree: what a file says, word by word, before anything is looked up.
//!
//! Every part keeps its place for diagnostics. What it means is `sema`'s business.

use crate::ir::{BinaryOp, Doc, Scalar, UnaryOp};
use crate::source::Span;

/// A name where it stands.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Name {
    pub(crate) text: String,
    pub(crate) span: Span,
}

/// A string where it stands.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Text {
    pub(crate) text: String,
    pub(crate) span: Span,
}

/// One IDL file.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct File {
    pub(crate) items: Vec<Item>,
}

/// What stands at the top level, in a library or in an interface.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Item {
    Import(Vec<Text>),
    Library(Library),
    Interface(Interface),
    /// `interface IFoo;`
    Forward(Name),
    Typedef(Typedef),
    Const(Const),
    /// `struct s { ... };` without `typedef`.
    Declare(TypeSpec),
    CppQuote(Text),
    Operation(Operation),
    CoClass(CoClass),
    DispInterface(DispInterface),
    /// `namespace NAME { ... }`
    Namespace(Vec<Item>),
    /// The name of something that programs can refer to and no message can carry.
    Unsendable(Name, Unsendable),
    /// Accepted without effect: `importlib`, `module`.
    Ignored(Name),
}

/// What can be named in files of COM, but never sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unsendable {
    /// `runtimeclass NAME;`
    RuntimeClass,
    /// `delegate T NAME(...);`
    Delegate,
    /// `interface NAME<T>`
    Parameterised,
    /// `T NAME(...);` outside interfaces.
    Function,
}

/// `coclass NAME { [default] interface IFoo; }`
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CoClass {
    pub(crate) attrs: Vec<Attr>,
    pub(crate) name: Name,
    pub(crate) interfaces: Vec<ClassInterface>,
}

/// One line of a `coclass`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ClassInterface {
    pub(crate) attrs: Vec<Attr>,
    pub(crate) name: Name,
}

/// `dispinterface NAME { properties: ... methods: ... }`; `members` are their names,
/// absent in a mere announcement.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct DispInterface {
    pub(crate) attrs: Vec<Attr>,
    pub(crate) name: Name,
    pub(crate) members: Option<Vec<Name>>,
}

/// `library NAME { ... }`
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Library {
    pub(crate) doc: Doc,
    pub(crate) attrs: Vec<Attr>,
    pub(crate) name: Name,
    pub(crate) items: Vec<Item>,
}

/// `interface NAME : BASE { ... }`
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Interface {
    pub(crate) doc: Doc,
    pub(crate) attrs: Vec<Attr>,
    pub(crate) name: Name,
    pub(crate) base: Option<Name>,
    pub(crate) items: Vec<Item>,
}

/// `typedef [attrs] T a, *b;` or, with `opaque` among the attributes, `typedef [attrs] name;`
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Typedef {
    pub(crate) doc: Doc,
    pub(crate) attrs: Vec<Attr>,
    /// `None` for an opaque type.
    pub(crate) ty: Option<TypeSpec>,
    pub(crate) declarators: Vec<Declarator>,
}

/// `const T name = value;`
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Const {
    pub(crate) doc: Doc,
    pub(crate) ty: TypeSpec,
    pub(crate) declarator: Declarator,
    pub(crate) value: Expr,
}

/// `[attrs] T name(params);`
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Operation {
    pub(crate) doc: Doc,
    pub(crate) attrs: Vec<Attr>,
    pub(crate) ty: TypeSpec,
    /// Pointers of the result.
    pub(crate) declarator: Declarator,
    pub(crate) name: Name,
    pub(crate) params: Vec<Member>,
}

/// A parameter, a field, or the member of a union's arm.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Member {
    pub(crate) doc: Doc,
    pub(crate) attrs: Vec<Attr>,
    pub(crate) ty: TypeSpec,
    pub(crate) declarator: Declarator,
    /// `: 3` of a bit field.
    pub(crate) bits: Option<Span>,
    /// The attribute list, or the type if there is none.
    pub(crate) span: Span,
}

/// `[name(args)]`
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Attr {
    pub(crate) name: Name,
    pub(crate) args: Args,
    pub(crate) span: Span,
}

/// Arguments of an attribute.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Args {
    None,
    /// Expressions; a hole (`size_is(, n)`) is `None`.
    Exprs(Vec<Option<Expr>>),
    Uuid(Text),
    /// `major[.minor]` as written.
    Version(Text),
    Strings(Vec<Text>),
    Type(Box<TypeSpec>),
    /// A word: `pointer_default(unique)`, `iid_is(riid)`.
    Word(Name),
    /// Of an attribute nobody knows; skipped.
    Skipped,
}

/// A type as written before the declarator.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TypeSpec {
    pub(crate) kind: TypeKind,
    pub(crate) span: Span,
}

/// Kinds of types.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum TypeKind {
    Scalar(Scalar),
    Void,
    /// `handle_t`
    Handle,
    /// `descriptor`
    Descriptor,
    Named(Name),
    /// `NAME<T>`: of the Windows Runtime.
    Parameterised(Name),
    /// `SAFEARRAY(T)`
    SafeArray,
    /// `...` in place of a parameter.
    Variadic,
    /// `interface IFoo`
    Interface(Name),
    Struct(Struct),
    Enum(Enum),
    Union(Union),
}

/// `struct tag { fields }`; `fields` absent in a mere reference.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Struct {
    pub(crate) doc: Doc,
    pub(crate) tag: Option<Name>,
    pub(crate) fields: Option<Vec<Member>>,
}

/// `enum tag { members }`
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Enum {
    pub(crate) doc: Doc,
    pub(crate) tag: Option<Name>,
    pub(crate) members: Option<Vec<EnumMember>>,
}

/// `NAME = value`
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct EnumMember {
    pub(crate) doc: Doc,
    pub(crate) name: Name,
    pub(crate) value: Option<Expr>,
}

/// Both kinds of unions.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Union {
    pub(crate) doc: Doc,
    pub(crate) tag: Option<Name>,
    /// `switch (T name) member`: an encapsulated union.
    pub(crate) switch: Option<Switch>,
    pub(crate) arms: Option<Vec<Arm>>,
}

/// Head of an encapsulated union.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Switch {
    pub(crate) ty: Box<TypeSpec>,
    pub(crate) name: Name,
    pub(crate) member: Option<Name>,
}

/// An arm of a union.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Arm {
    pub(crate) span: Span,
    pub(crate) cases: Vec<Expr>,
    pub(crate) default: Option<Span>,
    /// `None` for an empty arm.
    pub(crate) member: Option<Member>,
}

/// A name with what makes it an array or a pointer.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Declarator {
    pub(crate) name: Name,
    /// From the name outwards: `*a[3]` is an array of pointers.
    pub(crate) levels: Vec<Level>,
}

/// One step of a declarator.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Level {
    pub(crate) kind: LevelKind,
    pub(crate) span: Span,
}

/// Kinds of steps.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum LevelKind {
    Pointer,
    /// `(parameters)` of a function that is pointed at.
    Function,
    /// `[]` or `[*]`
    Open,
    /// `[n]`
    Bound(Expr),
    /// `[low..high]`; `high` absent for `*`.
    Bounds(Expr, Option<Expr>),
}

/// An expression.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Expr {
    pub(crate) kind: ExprKind,
    pub(crate) span: Span,
}

/// Kinds of expressions.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ExprKind {
    Int(i128),
    Float(f64),
    Str(Vec<u8>),
    WideStr(String),
    Char(u32),
    Name(String),
    /// `*name`
    Deref(Name),
    /// `(T) value`
    Cast(Box<TypeSpec>, Box<Expr>),
    /// `sizeof(T)`
    SizeOf(Box<TypeSpec>),
    Unary(UnaryOp, Box<Expr>),
    Binary(BinaryOp, Box<Expr>, Box<Expr>),
    Cond(Box<Expr>, Box<Expr>, Box<Expr>),
}

/// The first attribute of this name.
pub(crate) fn find<'a>(attrs: &'a [Attr], name: &str) -> Option<&'a Attr> {
    attrs.iter().find(|a| a.name.text == name)
}
