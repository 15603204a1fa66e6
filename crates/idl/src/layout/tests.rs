//! Layouts against hand-computed numbers.

use super::*;
use crate::ir::*;

fn field(name: &str, ty: Ty) -> Field {
    Field { name: name.into(), doc: None, ty, range: None, ignore: false }
}

fn module(kinds: Vec<TypeKind>) -> Module {
    let types = kinds
        .into_iter()
        .enumerate()
        .map(|(i, kind)| TypeDef {
            name: format!("t{i}"),
            doc: None,
            kind,
            imported: false,
            local: LocalAttrs::default(),
        })
        .collect();
    Module { types, ..Module::default() }
}

fn scalar(s: Scalar) -> Ty {
    Ty::Scalar(s)
}

#[test]
fn structure_is_laid_out_as_in_c() {
    let s = Struct {
        fields: vec![
            field("a", scalar(Scalar::U8)),
            field("b", scalar(Scalar::U32)),
            field("c", Ty::Fixed(Box::new(scalar(Scalar::I16)), 3)),
        ],
    };
    let m = module(vec![]);
    let l = struct_layout(&m, &s);
    assert_eq!((l.size, l.align), (16, 4));
    let offsets: Vec<u64> = l.fields.iter().map(|f| f.unwrap().offset).collect();
    assert_eq!(offsets, [0, 4, 8]);
    assert_eq!(l.padding, [Padding { offset: 1, len: 3 }, Padding { offset: 14, len: 2 }]);
}

#[test]
fn padding_booleans_and_ranges_are_not_flat() {
    let flat = Struct { fields: vec![field("a", scalar(Scalar::U32))] };
    let padded =
        Struct { fields: vec![field("a", scalar(Scalar::U8)), field("b", scalar(Scalar::U32))] };
    let mut ranged = flat.clone();
    ranged.fields[0].range = Some(IntRange::new(0, 9));
    let m =
        module(vec![TypeKind::Struct(flat), TypeKind::Struct(padded), TypeKind::Struct(ranged)]);
    assert!(is_flat(&m, &Ty::Named(TypeId(0))));
    assert!(!is_flat(&m, &Ty::Named(TypeId(1))));
    assert!(!is_flat(&m, &Ty::Named(TypeId(2))));
    assert!(!is_flat(&m, &scalar(Scalar::Bool)));
    assert!(is_fixed(&m, &Ty::Named(TypeId(1))));
}

#[test]
fn the_pointer_to_an_array_is_its_header() {
    let m = module(vec![]);
    let array = |length| {
        Ty::Array(Box::new(Array {
            element: scalar(Scalar::U8),
            size: Expr::Var { index: 0, deref: false },
            first: Expr::Const(0),
            length,
        }))
    };
    let unique = |t| Ty::Pointer(PtrClass::Unique, Box::new(t));
    assert_eq!(in_place(&m, &array(None)), InPlace::new(8, 8));
    assert_eq!(in_place(&m, &unique(array(Some(Expr::Const(1))))), InPlace::new(16, 8));
    assert_eq!(in_place(&m, &unique(scalar(Scalar::U8))), InPlace::new(8, 8));
    let by_ref = Ty::Pointer(PtrClass::Ref, Box::new(scalar(Scalar::U8)));
    assert_eq!(in_place(&m, &by_ref), InPlace::new(1, 1));
}

fn param(name: &str, dir: Dir, ty: Ty) -> Param {
    Param {
        name: name.into(),
        doc: None,
        dir,
        ty,
        by_pointer: false,
        range: None,
        retval: false,
        acf: LocalAttrs::default(),
    }
}

#[test]
fn the_papers_function_takes_32_bytes() {
    let m = module(vec![]);
    let mut op = Operation {
        name: "func".into(),
        doc: None,
        opnum: 0,
        result: Some(scalar(Scalar::I32)),
        params: vec![
            param("a", Dir::In, scalar(Scalar::I32)),
            param("b", Dir::In, scalar(Scalar::I32)),
            param("c", Dir::In, Ty::Fixed(Box::new(scalar(Scalar::Char)), 20)),
        ],
        oneway: false,
        idempotent: false,
        is_local: false,
        acf: LocalAttrs::default(),
    };
    let l = request_layout(&m, &op);
    assert_eq!(l.size, 32);
    assert_eq!(l.padding, [Padding { offset: 28, len: 4 }]);
    assert_eq!(l.params[2].unwrap().offset, 8);
    assert_eq!(request_size_max(&m, &op), Some(32));
    assert_eq!(reply_layout(&m, &op).size, 8);
    op.params.push(param(
        "d",
        Dir::In,
        Ty::Array(Box::new(Array {
            element: scalar(Scalar::I32),
            size: Expr::Var { index: 0, deref: false },
            first: Expr::Const(0),
            length: None,
        })),
    ));
    assert_eq!(request_size_max(&m, &op), None);
    op.params[0].range = Some(IntRange::new(0, 10));
    assert_eq!(request_size_max(&m, &op), Some(40 + 40));
}

#[test]
fn a_recursive_type_has_no_bound_and_ends() {
    let node = Struct {
        fields: vec![field("next", Ty::Pointer(PtrClass::Unique, Box::new(Ty::Named(TypeId(0)))))],
    };
    let m = module(vec![TypeKind::Struct(node)]);
    assert_eq!(in_place(&m, &Ty::Named(TypeId(0))).size, 8);
    assert_eq!(
        bound::out_of_line_max(&m, &Ty::Named(TypeId(0)), &|_| None, 0, &mut Known::default()),
        None
    );
    assert!(!is_fixed(&m, &Ty::Named(TypeId(0))));
}
