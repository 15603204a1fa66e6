//! Attributes and declarator to type: arrays, strings, pointers, references.
//!
//! # Theory of operation
//! A declarator is a list of derivations from the name outwards-in: `*a[3]` is `[3]`, then pointer.
//! The k-th slot of `size_is` and its kin belongs to the k-th derivation; a pointer with a size is
//! an array. `string` belongs to the innermost derivation. The type is built from the innermost
//! derivation outwards.

mod references;

use super::analyzer::Analyzer;
use super::scope::{Base, Derivation, DerivationKind, Meaning, Shape, Siblings};
use super::sizes::{Extent, Sizes};
use crate::ast::{Attr, Name, find};
use crate::diag::{Diagnostic, codes};
use crate::ir::{Array, Expr, PtrClass, Scalar, StringTy, Ty, TypeId};
use crate::source::Span;

/// Where something is declared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Position {
    Param,
    Result,
    Field,
    Arm,
    Typedef,
}

/// What is declared.
pub(super) struct Subject<'a> {
    pub(super) attrs: &'a [Attr],
    pub(super) name: &'a Name,
    /// The type as written.
    pub(super) span: Span,
    pub(super) base: Base,
    pub(super) levels: Vec<Derivation>,
}

/// A declared type.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Built {
    pub(super) ty: Ty,
    /// One outermost reference pointer of a parameter has been taken off.
    pub(super) by_pointer: bool,
}

/// A pointer class that an attribute gives.
#[derive(Clone, Copy)]
struct GivenClass {
    class: PtrClass,
    /// The attribute.
    span: Span,
}

/// What [`Analyzer::declare`] hands from step to step.
struct Build<'a> {
    attrs: &'a [Attr],
    name: &'a Name,
    span: Span,
    position: Position,
    /// Class of the outermost pointer, if given.
    class: Option<GivenClass>,
    /// The pointer that `class` speaks of.
    first_pointer: Option<usize>,
    levels: Vec<Derivation>,
    sizes: Sizes,
}

impl Analyzer<'_> {
    /// The type of a parameter, field, arm, result or typedef. `None`: reported.
    pub(super) fn declare(
        &mut self,
        subject: Subject<'_>,
        position: Position,
        siblings: &mut Siblings,
    ) -> Option<Built> {
        let Subject { attrs, name, span, base, levels } = subject;
        let class = self.pointer_class(attrs);
        let Shape { base, levels } = self.reshape(Shape { base, levels }, attrs, position);
        let sizes = self.sizes(attrs, &levels, siblings)?;
        let first_pointer = levels.iter().position(|l| l.kind == DerivationKind::Pointer);
        let takes_class =
            first_pointer.is_some() || position == Position::Param && !levels.is_empty();
        let mut build = Build { attrs, name, span, position, class, first_pointer, levels, sizes };
        let inner = self.innermost(&base, &mut build, siblings)?;
        if let Some(given) = class.filter(|_| !takes_class) {
            self.error(
                codes::POINTER_CLASS_PLACE,
                given.span,
                "there is no pointer here that this could say something about".to_owned(),
                "ref, unique and ptr belong to declarations with `*`",
            );
        }
        let ty = self.wrap(inner, &build)?;
        Some(build.top(ty))
    }

    /// Uses of typedefs that attributes may still shape are taken apart.
    fn reshape(&self, shape: Shape, attrs: &[Attr], position: Position) -> Shape {
        let Shape { mut base, mut levels } = shape;
        for _ in 0..64 {
            let shape = match &base {
                Base::Shaped(shape) => Some((**shape).clone()),
                Base::Ty(Ty::Named(id)) if levels.is_empty() => {
                    self.shape_of(*id).filter(|s| Self::wants_shape(s, attrs, position))
                }
                _ => None,
            };
            let Some(shape) = shape else { break };
            levels.extend(shape.levels);
            base = shape.base;
        }
        Shape { base, levels }
    }

    fn shape_of(&self, id: TypeId) -> Option<Shape> {
        let name = &self.types.get(id.0 as usize)?.def.name;
        match &self.scope.symbols.get(name)?.meaning {
            Meaning::Type { base: Base::Ty(Ty::Named(this)), shape } if *this == id => {
                shape.clone()
            }
            _ => None,
        }
    }

    /// A pointer typedef without class is a reference as a parameter, as a written `*` would be.
    fn wants_shape(shape: &Shape, attrs: &[Attr], position: Position) -> bool {
        const RESHAPE: &[&str] = &[
            "ref",
            "unique",
            "ptr",
            "string",
            "size_is",
            "max_is",
            "min_is",
            "length_is",
            "first_is",
            "last_is",
            "iid_is",
        ];
        let pointer = shape.levels.first().is_some_and(|l| l.kind == DerivationKind::Pointer);
        attrs.iter().any(|a| RESHAPE.contains(&a.name.text.as_str()))
            || pointer && matches!(position, Position::Param)
    }

    fn pointer_class(&mut self, attrs: &[Attr]) -> Option<GivenClass> {
        let mut found: Option<GivenClass> = None;
        for attr in attrs {
            let class = match attr.name.text.as_str() {
                "ref" => PtrClass::Ref,
                "unique" => PtrClass::Unique,
                "ptr" => PtrClass::Ptr,
                _ => continue,
            };
            match found {
                Some(other) if other.class != class => self.sink.push(
                    Diagnostic::error(
                        codes::ATTRIBUTE_CONFLICT,
                        attr.span,
                        "a pointer has one class",
                    )
                    .label(other.span, "the other one")
                    .help("ref: never null; unique: may be null; ptr: may be null and shared"),
                ),
                _ => found = Some(GivenClass { class, span: attr.span }),
            }
        }
        found
    }

    /// The type that the pointers and dimensions are put around, with the derivations it takes up.
    fn innermost(
        &mut self,
        base: &Base,
        build: &mut Build<'_>,
        siblings: &mut Siblings,
    ) -> Option<Ty> {
        let switch = find(build.attrs, "switch_is");
        if let (Some(attr), false) = (switch, matches!(base, Base::Union(_))) {
            self.error(
                codes::SWITCH_IS_PLACE,
                attr.span,
                "`switch_is` belongs to a union whose discriminant is outside it".to_owned(),
                "take it out, or declare the union with switch_type and without `switch (...)`",
            );
        }
        match base {
            Base::Ty(ty) => self.string_or(ty.clone(), build),
            Base::Union(id) => self.union_use(*id, switch, build, siblings),
            Base::Interface(id) => self.interface_use(*id, build, siblings),
            Base::Void => self.void_use(build, siblings),
            Base::Handle => {
                self.error(
                    codes::HANDLE_PLACE,
                    build.span,
                    "`handle_t` is possible as a parameter only".to_owned(),
                    "take it out, or use `descriptor` for an open file",
                );
                None
            }
            Base::Shaped(_) => None,
        }
    }

    /// `string` takes up the innermost derivation.
    fn string_or(&mut self, ty: Ty, build: &mut Build<'_>) -> Option<Ty> {
        let Some(attr) = find(build.attrs, "string") else { return Some(ty) };
        if self.is_com && self.is_string(&ty) {
            // `[string] LPOLESTR` says twice what it is.
            return Some(ty);
        }
        let wide = match self.scalar_of(&ty) {
            Some(Scalar::Char) => false,
            Some(Scalar::WChar) => true,
            _ => {
                self.error(
                    codes::STRING_ELEMENT,
                    attr.span,
                    "strings consist of char or wchar_t".to_owned(),
                    "take `string` out and give the number of elements with size_is",
                );
                return None;
            }
        };
        let Some(step) = build.levels.last().copied() else {
            self.error(
                codes::STRING_ELEMENT,
                attr.span,
                "one character is no string".to_owned(),
                "write `[string] char *s` or `[string] char s[32]`",
            );
            return None;
        };
        let level = build.levels.len() - 1;
        let extent = build.sizes.take(level);
        if extent.is_varying() {
            self.error(
                codes::ATTRIBUTE_CONFLICT,
                attr.span,
                "a string's length is where its terminator is".to_owned(),
                "take length_is, first_is and last_is out",
            );
        }
        build.levels.pop();
        let bound = match step.kind {
            DerivationKind::Fixed(n) => Some(Expr::Const(i128::from(n))),
            _ => extent.size,
        };
        let string = Ty::String(StringTy { wide, bound });
        let class = self.class_at(level, step.kind, build);
        Some(pointer_unless_ref(class, string))
    }

    fn is_string(&self, ty: &Ty) -> bool {
        match self.strip(ty) {
            Ty::String(_) => true,
            Ty::Pointer(_, target) => matches!(self.strip(target), Ty::String(_)),
            _ => false,
        }
    }

    /// Class of the pointer at a derivation; of arrays that are no pointers `Ref`.
    fn class_at(&self, level: usize, kind: DerivationKind, build: &Build<'_>) -> PtrClass {
        let given = build.class.map(|given| given.class);
        if kind != DerivationKind::Pointer {
            let as_pointer = level == 0 && build.position == Position::Param;
            return given
                .filter(|_| as_pointer && build.first_pointer.is_none())
                .unwrap_or(PtrClass::Ref);
        }
        if build.first_pointer == Some(level) && given.is_some() {
            return given.unwrap_or(PtrClass::Ref);
        }
        match (build.position, level) {
            (Position::Param, 0) => PtrClass::Ref,
            (Position::Result, 0) if self.pointer_default == PtrClass::Ref => PtrClass::Unique,
            _ => self.pointer_default,
        }
    }

    /// Puts the remaining derivations around `inner`.
    fn wrap(&mut self, inner: Ty, build: &Build<'_>) -> Option<Ty> {
        let mut ty = inner;
        for (level, step) in build.levels.iter().enumerate().rev() {
            let extent = build.sizes.at(level);
            let class = self.class_at(level, step.kind, build);
            ty = match step.kind {
                DerivationKind::Pointer if !extent.is_given() => Ty::Pointer(class, Box::new(ty)),
                DerivationKind::Fixed(n) => {
                    let size = Expr::Const(i128::from(n));
                    self.same_size(&extent, n);
                    pointer_unless_ref(class, self.array(ty, size, extent, step.span)?)
                }
                DerivationKind::Pointer | DerivationKind::Open => {
                    let Some(size) = extent.size.clone() else {
                        return self.unsized_array(step.span, build);
                    };
                    pointer_unless_ref(class, self.array(ty, size, extent, step.span)?)
                }
            };
        }
        Some(ty)
    }

    fn unsized_array(&mut self, span: Span, build: &Build<'_>) -> Option<Ty> {
        self.error(
            codes::UNSIZED_ARRAY,
            span,
            format!("nothing says how many elements `{}` has", build.name.text),
            "add `size_is(n)` with a parameter or field n, or give a fixed size",
        );
        None
    }

    fn same_size(&mut self, extent: &Extent, declared: u32) {
        let Some(span) = extent.size_span else { return };
        if extent.size == Some(Expr::Const(i128::from(declared))) {
            return;
        }
        self.error(
            codes::ATTRIBUTE_CONFLICT,
            span,
            format!("the declared size is {declared} elements already"),
            "take the size out of the brackets (`[]`), or take size_is out; for a part use length_is",
        );
    }

    /// An array; of a constant size and wholly transmitted it is a fixed one.
    fn array(&mut self, element: Ty, size: Expr, extent: Extent, span: Span) -> Option<Ty> {
        if let (Expr::Const(n), false) = (&size, extent.is_varying()) {
            return match self.dimension(*n, extent.size_span.unwrap_or(span))? {
                DerivationKind::Fixed(n) => Some(Ty::Fixed(Box::new(element), n)),
                DerivationKind::Pointer | DerivationKind::Open => None,
            };
        }
        let first = extent.first.clone().unwrap_or(Expr::Const(0));
        let length = extent.length(&size);
        Some(Ty::Array(Box::new(Array { element, size, first, length })))
    }
}

impl Build<'_> {
    fn pop_pointer(&mut self) -> Option<Derivation> {
        let is_pointer = self.levels.last().is_some_and(|l| l.kind == DerivationKind::Pointer);
        if is_pointer { self.levels.pop() } else { None }
    }

    /// Takes the reference pointer off a parameter.
    fn top(&self, ty: Ty) -> Built {
        let plain_pointer = self.levels.first().is_some_and(|l| l.kind == DerivationKind::Pointer)
            && !self.sizes.at(0).is_given();
        match ty {
            Ty::Pointer(PtrClass::Ref, target)
                if self.position == Position::Param && plain_pointer =>
            {
                Built { ty: *target, by_pointer: true }
            }
            ty => Built { ty, by_pointer: false },
        }
    }
}

fn pointer_unless_ref(class: PtrClass, ty: Ty) -> Ty {
    if class == PtrClass::Ref { ty } else { Ty::Pointer(class, Box::new(ty)) }
}
