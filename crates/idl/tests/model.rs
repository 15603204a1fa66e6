//! What constructs of the language mean: from text to the resolved model.
#![allow(clippy::unwrap_used, reason = "a failed helper fails its test")]

use sojourn_idl::ir::*;
use sojourn_idl::source::MemoryLoader;
use sojourn_idl::{Options, compile};

fn module_with(files: &[(&str, &str)], acf: Option<&str>, options: &Options) -> Module {
    let mut loader = MemoryLoader::new();
    for (name, text) in files {
        loader = loader.with(name, text);
    }
    if let Some(acf) = acf {
        loader = loader.with("main.acf", acf);
    }
    match compile("main.idl", acf.map(|_| "main.acf"), &loader, options) {
        Ok(compilation) => compilation.module,
        Err(failure) => panic!("{failure}"),
    }
}

fn module(text: &str) -> Module {
    module_with(&[("main.idl", text)], None, &Options::default())
}

/// Parameters of the only operation of an interface with these contents.
fn params(text: &str) -> Vec<Param> {
    let module = module(&format!("interface i {{ {text} }}"));
    module.interfaces[0].operations[0].params.clone()
}

fn var(index: u32) -> Expr {
    Expr::Var { index, deref: false }
}

fn long() -> Ty {
    Ty::Scalar(Scalar::I32)
}

fn unique(ty: Ty) -> Ty {
    Ty::Pointer(PtrClass::Unique, Box::new(ty))
}

fn array(element: Ty, size: Expr, first: Expr, length: Option<Expr>) -> Ty {
    Ty::Array(Box::new(Array { element, size, first, length }))
}

fn string(bound: Option<Expr>) -> Ty {
    Ty::String(StringTy { wide: false, bound })
}

#[test]
fn a_constant_size_makes_a_fixed_array() {
    let p = params(
        "const long N = 4; void f([in, size_is(N * 5)] char *a, [in, unique, max_is(2)] long *b, [in, size_is(3)] long c[]);",
    );
    assert_eq!(p[0].ty, Ty::Fixed(Box::new(Ty::Scalar(Scalar::Char)), 20));
    assert_eq!(p[1].ty, unique(Ty::Fixed(Box::new(long()), 3)));
    assert_eq!(p[2].ty, Ty::Fixed(Box::new(long()), 3));
    assert!(p.iter().all(|p| !p.by_pointer));
}

#[test]
fn max_is_is_the_last_index_or_dices_count() {
    let text =
        "interface i { void f([in] long n, [in, max_is(n)] long *a, [in, max_is(7)] char *b); }";
    let dce = module(text);
    let plus_one = Expr::Binary(BinaryOp::Add, Box::new(var(0)), Box::new(Expr::Const(1)));
    let op = &dce.interfaces[0].operations[0];
    assert_eq!(op.params[1].ty, array(long(), plus_one, Expr::Const(0), None));
    assert_eq!(op.params[2].ty, Ty::Fixed(Box::new(Ty::Scalar(Scalar::Char)), 8));
    let dice = module_with(
        &[("main.idl", text)],
        None,
        &Options { max_is_count: true, ..Options::default() },
    );
    let op = &dice.interfaces[0].operations[0];
    assert_eq!(op.params[1].ty, array(long(), var(0), Expr::Const(0), None));
    assert_eq!(op.params[2].ty, Ty::Fixed(Box::new(Ty::Scalar(Scalar::Char)), 7));
}

#[test]
fn parts_of_arrays() {
    let p = params(
        "void f([in] long a, [in] long b, [in, length_is(b)] long v[9], [in, first_is(a)] long w[9], [in, first_is(1), last_is(4)] long x[9]);",
    );
    assert_eq!(p[2].ty, array(long(), Expr::Const(9), Expr::Const(0), Some(var(1))));
    let rest = Expr::Binary(BinaryOp::Sub, Box::new(Expr::Const(9)), Box::new(var(0)));
    assert_eq!(p[3].ty, array(long(), Expr::Const(9), var(0), Some(rest)));
    let four =
        Some(Expr::Binary(BinaryOp::Add, Box::new(Expr::Const(3)), Box::new(Expr::Const(1))));
    let is_four = |ty: &Ty| match ty {
        Ty::Array(a) => a.length == four || a.length == Some(Expr::Const(4)),
        _ => false,
    };
    assert!(is_four(&p[4].ty), "{:?}", p[4].ty);
}

#[test]
fn slots_belong_to_dimensions_from_the_name_outwards() {
    let p = params(
        "void f([in] long n, [in] long m, [out] long *k, [in, size_is(n, m)] long **a, [out, size_is(, *k)] long **b, [in, size_is(n)] long c[][3]);",
    );
    let inner = unique(array(long(), var(1), Expr::Const(0), None));
    assert_eq!(p[3].ty, array(inner, var(0), Expr::Const(0), None));
    assert!(p[4].by_pointer);
    assert_eq!(p[4].ty, unique(array(long(), var(2), Expr::Const(0), None)));
    assert_eq!(p[5].ty, array(Ty::Fixed(Box::new(long()), 3), var(0), Expr::Const(0), None));
}

#[test]
fn pointer_classes_and_their_defaults() {
    let p = params("void f([in] long *a, [in, unique] long *b, [in] long **c, [out] long **d);");
    assert_eq!((p[0].by_pointer, &p[0].ty), (true, &long()));
    assert_eq!((p[1].by_pointer, &p[1].ty), (false, &unique(long())));
    assert_eq!((p[2].by_pointer, &p[2].ty), (true, &unique(long())));
    assert_eq!((p[3].by_pointer, &p[3].ty), (true, &unique(long())));
    let m = module("[pointer_default(ptr)] interface i { void f([in] long **a); long *g(void); }");
    let full = Ty::Pointer(PtrClass::Ptr, Box::new(long()));
    assert_eq!(m.interfaces[0].operations[0].params[0].ty, full);
    assert_eq!(m.interfaces[0].operations[1].result, Some(full));
}

#[test]
fn a_pointer_typedef_takes_its_class_where_it_is_used() {
    let p = params(
        "typedef long *p_t; typedef [unique] long *u_t; void f([in] p_t a, [in, unique] p_t b, [in] u_t c, [in] long n, [in, size_is(n)] p_t d, [out] p_t e);",
    );
    assert_eq!((p[0].by_pointer, &p[0].ty), (true, &long()));
    assert_eq!((p[1].by_pointer, &p[1].ty), (false, &unique(long())));
    assert!(matches!(p[2].ty, Ty::Named(_)) && !p[2].by_pointer);
    assert_eq!(p[4].ty, array(long(), var(3), Expr::Const(0), None));
    assert_eq!((p[5].by_pointer, &p[5].ty), (true, &long()));
}

#[test]
fn strings() {
    let p = params(
        "void f([in] long n, [in, string] char *a, [in, string] char b[8], [out, string, size_is(n)] char *c, [out, string] char **d, [in, string] char *e[2], [in, string, ptr] wchar_t *g);",
    );
    assert_eq!(p[1].ty, string(None));
    assert_eq!(p[2].ty, string(Some(Expr::Const(8))));
    assert_eq!((p[3].by_pointer, &p[3].ty), (false, &string(Some(var(0)))));
    assert_eq!((p[4].by_pointer, &p[4].ty), (true, &unique(string(None))));
    assert_eq!(p[5].ty, Ty::Fixed(Box::new(unique(string(None))), 2));
    let wide = Ty::String(StringTy { wide: true, bound: None });
    assert_eq!(p[6].ty, Ty::Pointer(PtrClass::Ptr, Box::new(wide)));
}

#[test]
fn references_to_interfaces() {
    let p = params(
        "void f([in] i *a, [out] i **b, [in] IUnknown *c, [in] REFIID d, [out, iid_is(d)] void **e);",
    );
    let reference = |interface, iid_is| Ty::Interface(InterfaceRef { interface, iid_is });
    assert_eq!(p[0].ty, reference(Some(InterfaceId(0)), None));
    assert_eq!((p[1].by_pointer, &p[1].ty), (true, &reference(Some(InterfaceId(0)), None)));
    assert_eq!(p[2].ty, reference(None, None));
    assert!(p[3].by_pointer);
    assert_eq!((p[4].by_pointer, &p[4].ty), (true, &reference(None, Some(3))));
}

#[test]
fn types_come_after_what_they_contain() {
    let m = module(
        "typedef struct a a_t; typedef struct a *a_p; struct b { a_p x; struct c *later; }; struct a { struct b inner; a_t *self; }; struct c { struct a all; };",
    );
    let names: Vec<&str> = m.types.iter().map(|t| t.name.as_str()).collect();
    let place = |name| names.iter().position(|n| *n == name).unwrap();
    assert!(place("b") < place("a_t") && place("a_t") < place("c"), "{names:?}");
    assert!(place("a_p") < place("b"), "{names:?}");
}

#[test]
fn a_reference_to_itself_is_a_type_that_contains_itself() {
    let loader = MemoryLoader::new()
        .with("main.idl", "typedef struct s { long v; [ref] struct s *next; } s_t;");
    let failure = compile("main.idl", None, &loader, &Options::default()).unwrap_err();
    assert_eq!(failure.diagnostics[0].code, sojourn_idl::diag::codes::RECURSIVE_TYPE);
}

#[test]
fn imports_are_read_once_and_may_be_circular() {
    let m = module_with(
        &[
            ("main.idl", "import \"a.idl\", \"b.idl\"; interface m : i { void g([in] t_t x); }"),
            ("a.idl", "import \"b.idl\"; typedef long t_t; interface i { void f(void); }"),
            ("b.idl", "import \"a.idl\", \"main.idl\"; const long C = 1;"),
        ],
        None,
        &Options::default(),
    );
    assert_eq!(m.sources, ["main.idl", "a.idl", "b.idl"]);
    assert_eq!(m.consts.len(), 1);
    let shown: Vec<_> = m.interfaces.iter().map(|i| (i.name.as_str(), i.imported)).collect();
    assert_eq!(shown, [("i", true), ("m", false)]);
    assert_eq!(m.interfaces[1].operations[0].opnum, 1);
}

#[test]
fn identity_is_derived_from_name_and_major_version() {
    let uuid = |text: &str| module(text).interfaces[0].uuid;
    let first = uuid("[version(1.0)] interface i { void f(void); }");
    assert_eq!(first, uuid("[version(1.9)] interface i { void f(void); void g(void); }"));
    assert_ne!(first, uuid("[version(2.0)] interface i { void f(void); }"));
    assert_ne!(first, uuid("[version(1.0)] interface j { void f(void); }"));
    assert_eq!((first[6] >> 4, first[8] >> 6), (5, 2));
}

#[test]
fn the_hash_is_that_of_the_texts() {
    let hash = |idl: &str, acf| module_with(&[("main.idl", idl)], acf, &Options::default()).hash;
    let idl = "interface i { void f(void); }";
    let plain = hash(idl, None);
    assert_eq!(plain.len(), 64);
    assert_eq!(plain, hash(idl, None));
    assert_ne!(plain, hash("interface i { void g(void); }", None));
    assert_ne!(plain, hash(idl, Some("[timeout(1)] interface i { }")));
}

#[test]
fn settings_of_the_acf_go_from_the_outside_in() {
    let m = module_with(
        &[(
            "main.idl",
            "interface i { typedef [opaque(8, 8)] t_t; void f([in] long n, [in, size_is(n)] long *a, [in] t_t t); void g(void); }",
        )],
        Some(
            "include \"own.h\"; [timeout(9), sync(spin(3)), reference_above(auto)] interface i { typedef [user_marshal(\"struct own\", own)] t_t; [timeout(1), impl(server, own::f)] f([copy_below(64)] a); [sync(park)] g(); }",
        ),
        &Options::default(),
    );
    assert_eq!(m.includes, ["own.h"]);
    let i = &m.interfaces[0];
    let (f, g) = (&i.operations[0], &i.operations[1]);
    assert_eq!((f.acf.timeout_ms, g.acf.timeout_ms, i.acf.timeout_ms), (Some(1), Some(9), Some(9)));
    // The connection waits so already; only what an operation says itself is set for its calls.
    assert_eq!((i.acf.sync, f.acf.sync), (Some(Sync::Spin(Some(3))), None));
    assert_eq!(g.acf.sync, Some(Sync::Park));
    assert_eq!(f.acf.impl_server.as_deref(), Some("own::f"));
    assert_eq!(g.acf.impl_server, None);
    assert_eq!(f.params[1].acf.reference_above, Some(Threshold::Bytes(64)));
    let marshal = f.params[2].acf.user_marshal.as_ref().unwrap();
    assert_eq!((marshal.local_type.as_str(), marshal.functions.as_str()), ("struct own", "own"));
    let plain =
        module_with(&[("main.idl", "interface i { void f(void); }")], None, &Options::default());
    assert_eq!(plain.interfaces[0].acf, LocalAttrs::default());
}

#[test]
fn documentation_is_carried() {
    let m = module(
        "/// The interface.\ninterface i {\n/** Does.\n * More. */\nvoid f(\n  [in] long a, ///< behind\n  /// before\n  [in] long b);\ntypedef enum { A, ///< first\n B ///< second\n} e_t;\n[helpstring(\"helps\")] void g(void); }",
    );
    let i = &m.interfaces[0];
    assert_eq!(i.doc.as_deref(), Some("The interface."));
    assert_eq!(i.operations[0].doc.as_deref(), Some("Does.\nMore."));
    let docs: Vec<_> = i.operations[0].params.iter().map(|p| p.doc.as_deref()).collect();
    assert_eq!(docs, [Some("behind"), Some("before")]);
    assert_eq!(i.operations[1].doc.as_deref(), Some("helps"));
    let TypeKind::Enum(e) = &m.types[0].kind else { panic!("an enumeration") };
    assert_eq!(e.members[0].doc.as_deref(), Some("first"));
    assert_eq!(e.members[1].doc.as_deref(), Some("second"));
}

#[test]
fn handles_are_left_out_and_siblings_still_found() {
    let p = params("void f([in] handle_t h, [in] long n, [in, size_is(n)] long *a);");
    assert_eq!(p.len(), 2);
    assert_eq!(p[1].ty, array(long(), var(0), Expr::Const(0), None));
}

#[test]
fn fields_name_reference_pointers_with_a_star() {
    let m = module("typedef struct { [ref] long *n; [size_is(*n)] long *a; } s_t;");
    let TypeKind::Struct(s) = &m.types[0].kind else { panic!("a structure") };
    let size = Expr::Var { index: 0, deref: true };
    assert_eq!(s.fields[1].ty, unique(array(long(), size, Expr::Const(0), None)));
}
