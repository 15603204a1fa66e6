//! Types, constants and expressions. Not here: interfaces and operations; see `operations`.

/// Index into [`super::Module::types`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TypeId(pub u32);

/// Index into [`super::Module::interfaces`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct InterfaceId(pub u32);

/// Documentation comment, without its comment marks, one line a line.
pub type Doc = Option<String>;

/// The sixteen bytes of a uuid in the order in which they are written.
pub type Uuid = [u8; 16];

/// `version(major.minor)`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Version {
    /// Incompatible changes.
    pub major: u16,
    /// Compatible additions.
    pub minor: u16,
}

/// A constant with its folded value.
#[derive(Clone, Debug, PartialEq)]
pub struct Const {
    /// Its name.
    pub name: String,
    /// Its documentation.
    pub doc: Doc,
    /// Declared type.
    pub ty: ConstType,
    /// Folded value.
    pub value: ConstValue,
    /// Declared in an imported file.
    pub imported: bool,
}

/// What types a constant may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConstType {
    /// Integer, boolean, char or wchar_t.
    Scalar(Scalar),
    /// `char *`.
    String,
    /// `wchar_t *`.
    WideString,
}

/// A folded constant.
#[derive(Clone, Debug, PartialEq)]
pub enum ConstValue {
    /// Integers, booleans (0, 1), characters.
    Int(i128),
    /// Floating point.
    Float(f64),
    /// Bytes of a string without terminator; those of a wide one are UTF-8 of its text.
    String(Vec<u8>),
}

/// What a named type is.
#[derive(Clone, Debug, PartialEq)]
pub enum TypeKind {
    /// `typedef T name;`
    Alias(Ty),
    /// `enum`.
    Enum(Enum),
    /// `struct`.
    Struct(Struct),
    /// `union`, encapsulated or not.
    Union(Union),
    /// Foreign type of which only size and alignment (bytes) are known: copied as bytes.
    Opaque {
        /// Bytes.
        size: u32,
        /// Bytes, a power of two, at most 8.
        align: u32,
    },
    /// `typedef [context_handle] void *name;`
    ContextHandle,
}

/// Integers, characters and floating point.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scalar {
    /// `boolean`: one byte, 0 or 1.
    Bool,
    /// `char`: one unsigned byte.
    Char,
    /// `wchar_t`: 16 bits.
    WChar,
    /// `byte`: one byte never converted.
    Byte,
    /// `small`.
    I8,
    /// `unsigned small`.
    U8,
    /// `short`.
    I16,
    /// `unsigned short`.
    U16,
    /// `long`, `int`.
    I32,
    /// `unsigned long`.
    U32,
    /// `hyper`.
    I64,
    /// `unsigned hyper`.
    U64,
    /// `float`.
    F32,
    /// `double`.
    F64,
    /// `error_status_t`: 32 bits unsigned.
    ErrorStatus,
}

/// An enumeration; 32 bits on the wire.
#[derive(Clone, Debug, PartialEq)]
pub struct Enum {
    /// Members with their values; values may repeat.
    pub members: Vec<EnumMember>,
}

/// A member of an enumeration.
#[derive(Clone, Debug, PartialEq)]
pub struct EnumMember {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: i32,
    /// Its documentation.
    pub doc: Doc,
}

/// Integers from `low` to `high`, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IntRange {
    /// The least.
    pub low: i128,
    /// The greatest.
    pub high: i128,
}

impl IntRange {
    /// The range from `low` to `high`.
    #[must_use]
    pub const fn new(low: i128, high: i128) -> Self {
        Self { low, high }
    }

    /// Returns true if `n` lies within.
    #[must_use]
    pub fn contains(self, n: i128) -> bool {
        (self.low..=self.high).contains(&n)
    }
}

/// A structure.
#[derive(Clone, Debug, PartialEq)]
pub struct Struct {
    /// Fields in order.
    pub fields: Vec<Field>,
}

/// A field of a structure or an arm of a union.
#[derive(Clone, Debug, PartialEq)]
pub struct Field {
    /// Its name.
    pub name: String,
    /// Its documentation.
    pub doc: Doc,
    /// Its type; [`Expr::Var`] in it counts the fields of the same structure.
    pub ty: Ty,
    /// `range(low, high)`, inclusive.
    pub range: Option<IntRange>,
    /// `ignore`: a pointer that is not transmitted.
    pub ignore: bool,
}

/// A union. Encapsulated ones (`union U switch (long kind) u`) carry their own discriminant as a
/// named member; of the others the discriminant is a sibling field or parameter ([`Ty::Union`]).
#[derive(Clone, Debug, PartialEq)]
pub struct Union {
    /// Type of the discriminant: an integer, boolean, char or enumeration.
    pub switch: Ty,
    /// `None` unless the union is encapsulated.
    pub encapsulated: Option<Encapsulation>,
    /// Arms in order.
    pub arms: Vec<Arm>,
}

/// The names of the members that an encapsulated union consists of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Encapsulation {
    /// The discriminant's.
    pub tag: String,
    /// The union's.
    pub member: String,
}

/// An arm of a union.
#[derive(Clone, Debug, PartialEq)]
pub struct Arm {
    /// Case values; empty for `default`.
    pub cases: Vec<i128>,
    /// The member; `None` for an empty arm (`case 3: ;`).
    pub field: Option<Field>,
}

/// Pointer classes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PtrClass {
    /// Never null, never aliased: travels as its target, in place.
    Ref,
    /// May be null.
    Unique,
    /// May be null, may alias another `ptr` of the same message.
    Ptr,
}

/// A use of a type.
#[derive(Clone, Debug, PartialEq)]
pub enum Ty {
    /// Integers, characters, floating point.
    Scalar(Scalar),
    /// A named type other than a non-encapsulated union.
    Named(TypeId),
    /// A non-encapsulated union with what selects its arm.
    Union(TypeId, Expr),
    /// Fixed array; several dimensions nest.
    Fixed(Box<Ty>, u32),
    /// Conformant and varying arrays, always through their header. A conformant array whose size
    /// folds to a constant and that is not varying becomes [`Ty::Fixed`] (under a pointer if the
    /// pointer may be null).
    Array(Box<Array>),
    /// `[string] char *`, `[string] wchar_t *`, `[string] char name[N]`.
    String(StringTy),
    /// Pointer to one object. To an array or a string: only with a class other than `Ref`.
    Pointer(PtrClass, Box<Ty>),
    /// `handle_t`-like descriptor type `descriptor`: an open file description.
    Descriptor,
    /// Reference to an interface: `[iid_is(riid)] IUnknown *p` or `IName *p`.
    Interface(InterfaceRef),
}

/// A conformant or varying array.
#[derive(Clone, Debug, PartialEq)]
pub struct Array {
    /// Element type.
    pub element: Ty,
    /// Number of elements of the whole array (`size_is`, `max_is + 1`, or the declared bound).
    pub size: Expr,
    /// First transmitted element; `Const(0)` if not given.
    pub first: Expr,
    /// Number of transmitted elements; `None`: all (not varying).
    pub length: Option<Expr>,
}

/// A terminated string.
#[derive(Clone, Debug, PartialEq)]
pub struct StringTy {
    /// 16-bit characters.
    pub wide: bool,
    /// Capacity in characters with the terminator, where declared (`char s[32]`, `size_is(n)`).
    pub bound: Option<Expr>,
}

/// A reference to an interface.
#[derive(Clone, Debug, PartialEq)]
pub struct InterfaceRef {
    /// Declared interface; `None` for `IUnknown *` or `void *` with `iid_is`.
    pub interface: Option<InterfaceId>,
    /// Index of the parameter that holds the uuid wanted (`iid_is`).
    pub iid_is: Option<u32>,
}

/// An expression over siblings: parameters of the operation or fields of the structure.
#[derive(Clone, Debug, PartialEq)]
pub enum Expr {
    /// Folded.
    Const(i128),
    /// Value of sibling `index`.
    Var {
        /// Index of parameter or field.
        index: u32,
        /// Through the reference pointer that the sibling's `ty` is (fields only: of parameters
        /// the outermost reference pointer is removed, and `size_is(*n)` is their value).
        deref: bool,
    },
    /// Unary `-`, `~`, `!`.
    Unary(UnaryOp, Box<Expr>),
    /// Binary operators of C.
    Binary(BinaryOp, Box<Expr>, Box<Expr>),
    /// `a ? b : c`.
    Cond(Box<Expr>, Box<Expr>, Box<Expr>),
}

/// Unary operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnaryOp {
    /// `-`
    Neg,
    /// `~`
    Not,
    /// `!`
    LogicalNot,
}

/// Binary operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are the operators")]
pub enum BinaryOp {
    Add,
    Sub,
    Mul,
    Div,
    Rem,
    Shl,
    Shr,
    And,
    Or,
    Xor,
    LogicalAnd,
    LogicalOr,
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
}

impl BinaryOp {
    /// What it makes of two integers; `None`: nothing (division by zero, a shift too far).
    pub(crate) fn of(self, a: i128, b: i128) -> Option<i128> {
        let shift = || u32::try_from(b).ok().filter(|b| *b < 64);
        let flag = |truth: bool| Some(i128::from(truth));
        match self {
            Self::Add => a.checked_add(b),
            Self::Sub => a.checked_sub(b),
            Self::Mul => a.checked_mul(b),
            Self::Div => a.checked_div(b),
            Self::Rem => a.checked_rem(b),
            Self::Shl => shift().and_then(|s| a.checked_mul(1_i128 << s)),
            Self::Shr => shift().map(|s| a >> s),
            Self::And => Some(a & b),
            Self::Or => Some(a | b),
            Self::Xor => Some(a ^ b),
            Self::LogicalAnd => flag(a != 0 && b != 0),
            Self::LogicalOr => flag(a != 0 || b != 0),
            Self::Eq => flag(a == b),
            Self::Ne => flag(a != b),
            Self::Lt => flag(a < b),
            Self::Le => flag(a <= b),
            Self::Gt => flag(a > b),
            Self::Ge => flag(a >= b),
        }
    }
}
