//! Small parts of the C back end. Whole files are compiled and run by `tests/c_backend.rs`.

use crate::ir::{Array, Expr, IntRange, Module, PtrClass, Scalar, StringTy, Ty};

use super::emit::range_conditions;
use super::model::Model;
use super::text::{doc, int64, path, string_literal};

fn long() -> Ty {
    Ty::Scalar(Scalar::I32)
}

#[test]
fn literals_are_c() {
    assert_eq!(int64(-5), "INT64_C(-5)");
    assert_eq!(int64(i128::from(i64::MIN)), "INT64_MIN");
    assert_eq!(int64(i128::from(u64::MAX)), "(int64_t)UINT64_C(18446744073709551615)");
    assert_eq!(string_literal(b"a\"b\\\n\xe9?"), "\"a\\\"b\\\\\\n\\351\\?\"");
}

#[test]
fn paths_of_an_acf_are_prefixes() {
    assert_eq!(path("my::side"), "my_side");
}

#[test]
fn comments_cannot_end_themselves() {
    assert_eq!(doc(Some("a */ b\n/* c")), "/*\n * a * / b\n * / * c\n */\n");
}

#[test]
fn declarators_bind_as_c_does() {
    let module = Module::default();
    let model = Model { m: &module };
    let fixed = |t, n| Ty::Fixed(Box::new(t), n);
    let rows = fixed(fixed(long(), 3), 2);
    assert_eq!(model.decl(&rows, "m"), "int32_t m[2][3]");
    assert_eq!(model.decl(&rows, "*m"), "int32_t (*m)[2][3]");
    assert_eq!(model.pointer(&rows), "int32_t (*)[3]");
    let pointer = Ty::Pointer(PtrClass::Unique, Box::new(fixed(long(), 4)));
    assert_eq!(model.decl(&pointer, "p"), "int32_t *p");
    let names = Ty::Array(Box::new(Array {
        element: Ty::String(StringTy { wide: false, bound: None }),
        size: Expr::Const(2),
        first: Expr::Const(0),
        length: None,
    }));
    assert_eq!(model.decl(&names, "names"), "char **names");
}

#[test]
fn ranges_say_nothing_that_the_type_says_already() {
    let module = Module::default();
    let model = Model { m: &module };
    let byte = Ty::Scalar(Scalar::U8);
    assert!(range_conditions(model, &byte, "x", IntRange::new(-7, 300)).is_empty());
    assert_eq!(
        range_conditions(model, &byte, "x", IntRange::new(1, 300)),
        ["(int64_t)x >= INT64_C(1)"]
    );
    assert_eq!(range_conditions(model, &long(), "x", IntRange::new(-1, 9)).len(), 2);
}
