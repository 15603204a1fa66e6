//! IDL of COM: what each construct becomes, what is declared only and why, what is refused.
#![allow(clippy::unwrap_used, reason = "a failed helper fails its test")]

use sojourn_idl::diag::Severity;
use sojourn_idl::ir::*;
use sojourn_idl::source::MemoryLoader;
use sojourn_idl::{Compilation, Options, compile, stubs};

fn compiled_with(files: &[(&str, &str)]) -> Result<Compilation, String> {
    let loader = files.iter().fold(MemoryLoader::new(), |l, (name, text)| l.with(name, text));
    compile("main.idl", None, &loader, &Options::default()).map_err(|failure| failure.to_string())
}

fn compiled(text: &str) -> Compilation {
    compiled_with(&[("main.idl", text)]).unwrap_or_else(|failure| panic!("{failure}"))
}

fn module(text: &str) -> Module {
    compiled(text).module
}

/// The first line of what is said about a file that is refused.
fn refused(text: &str) -> String {
    let failure = compiled_with(&[("main.idl", text)]).map(|_| ()).unwrap_err();
    failure.lines().next().unwrap_or("").to_owned()
}

/// The construct and the sentence that keep the only operation, with these parameters, from
/// having stubs; with declarations before the interface.
fn cause(before: &str, params: &str) -> (&'static str, String) {
    let module = module(&format!("{before} [object] interface i {{ HRESULT f({params}); }}"));
    let interface = module.interfaces.iter().find(|i| i.name == "i").unwrap();
    assert!(interface.operations.is_empty(), "{:?}", interface.operations);
    let cause = interface.declared[0].cause.clone();
    (cause.construct, cause.message)
}

fn constants(module: &Module) -> Vec<(&str, &ConstValue)> {
    module.consts.iter().map(|c| (c.name.as_str(), &c.value)).collect()
}

#[test]
fn conditions_choose_what_is_read() {
    let m = module(
        "#define ONE 1\n#if ONE + 1 == 2 && !defined(TWO)\nconst long A = ONE;\n#elif 1\n§ 'not read\n#else\n#error no\n#endif\n\
         #ifndef ONE\nconst long B = 1;\n#elif defined ONE\nconst long C = 3;\n#endif\n#if 0\n# if 1\n#else\n# endif\n#error no\n#endif\n\
         #undef ONE\n#ifdef ONE\nconst long D = 4;\n#endif\n#ifdef __midl\nconst long E = 5;\n#endif",
    );
    let found = constants(&m);
    assert_eq!(
        found,
        [("A", &ConstValue::Int(1)), ("C", &ConstValue::Int(3)), ("E", &ConstValue::Int(5))]
    );
}

#[test]
fn macros_are_replaced() {
    let m = module(
        "#define EMPTY\n#define TWICE(x) ((x) + \\\n (x))\n#define MAKE(name, value) const long name##_T EMPTY = value;\n\
         #define SELF SELF_\n#define SELF_ 7\nMAKE(A, TWICE(3)) MAKE(B, SELF)",
    );
    assert_eq!(constants(&m), [("A_T", &ConstValue::Int(6)), ("B_T", &ConstValue::Int(7))]);
}

#[test]
fn included_files_share_macros_and_imported_ones_do_not() {
    let main = "#define HERE 1\n#include \"a.idl\"\nimport \"b.idl\";\nconst long OF_A = THERE;";
    let a = "#ifdef HERE\n#define THERE 5\n#endif\n[version(1.10)] interface a { void f(void); }";
    let b = "#ifdef HERE\n#error leaked\n#endif\nconst long OF_B = 2;";
    let c = compiled_with(&[("main.idl", main), ("a.idl", a), ("b.idl", b)]).unwrap();
    let found = constants(&c.module);
    assert_eq!(found, [("OF_B", &ConstValue::Int(2)), ("OF_A", &ConstValue::Int(5))]);
    assert_eq!(c.module.interfaces[0].version, Version { major: 1, minor: 10 });
    assert!(!c.module.interfaces[0].imported, "what is included is part of the file");
}

#[test]
fn wrong_lines_of_the_preprocessor_are_told() {
    for (text, message) in [
        ("#if 1\n", "this condition has no `#endif`"),
        ("#endif\n", "`#endif` without `#if`"),
        ("#else\n", "`#else` without `#if`"),
        ("#if 1\n#else\n#else\n#endif", "`#else` behind `#else`"),
        ("#if 1 / 0\n#endif", "this condition has no value"),
        ("#error not for you\n", "the file says: not for you"),
        ("#define\n", "`#define` needs a name"),
        ("#define F(1) x\n", "the parameters of `F` are names between commas"),
        ("#define F(a) a\nconst long A = F(1, 2);", "`F` takes 1 arguments, not 2"),
        ("#include x\n", "`#include` needs a file"),
        ("#frobnicate\n", "this line says nothing that is known here"),
        (
            "#define A B B B B\n#define B C C C C C C C C\n#define C D D D D D D D D\n#define D E E E E E E E E\n\
             #define E F F F F F F F F\n#define F G G G G G G G G\n#define G H H H H H H H H\n#define H 1 1 1 1 1 1 1 1\nconst long X = A;",
            "the macros of this file come to more than four million words",
        ),
    ] {
        let first = refused(text);
        assert_eq!(first, format!("error[SJ0016]: {message}"), "{text}");
    }
    let missing = refused("#include \"none.h\"\n");
    assert_eq!(missing, "error[SJ0004]: cannot read `none.h`: no such file");
    let circle = compiled_with(&[("main.idl", "#include \"main.idl\"\n")]).map(|_| ()).unwrap_err();
    assert!(circle.contains("files inside files, more than 64 deep"), "{circle}");
}

/// What stands before the interface, the parameters, the construct to blame, the sentence.
const CAUSES: &[(&str, &str, &str, &str)] = &[
    ("", "[in] void *p", "pointer to void", "`void` says nothing about what travels"),
    ("typedef void *HX;", "[in] HX p", "pointer to void", "`void` says nothing about what travels"),
    ("", "[in] long (*g)(int)", "function pointer", "functions do not travel"),
    (
        "",
        "[in] long a, ...",
        "variable parameters",
        "an operation has a fixed number of parameters",
    ),
    ("", "long a", "parameter without direction", "which way does `a` travel?"),
    ("", "[in] long a[]", "array without a size", "nothing says how many elements `a` has"),
    ("", "[in] SAFEARRAY(long) a", "foreign type", "`SAFEARRAY` does not exist here"),
    (
        "typedef struct { long a : 3; } s;",
        "[in] s *p",
        "bit field",
        "`s` cannot travel: bit fields do not travel: their layout is each compiler's own",
    ),
    (
        "typedef struct { union { long a; }; } s; typedef s t; typedef struct { t *p; } u;",
        "[in] u *p",
        "field without a name",
        "`s` cannot travel: this field has no name",
    ),
    (
        "typedef union { long a; float b; } s; typedef struct { s u; } t;",
        "[in] t *p",
        "union without discriminant",
        "`t` cannot travel: nothing says which arm of `u` is meant",
    ),
    (
        "struct s;",
        "[in] struct s *p",
        "type without definition",
        "`s` is announced, but never defined",
    ),
    (
        "interface j;",
        "[in] j *p",
        "interface without definition",
        "`j` is announced, but never defined",
    ),
    (
        "[local, object] interface j { void g(); }",
        "[in] j *p",
        "reference to a local interface",
        "`j` is `local`: it has no endpoint",
    ),
    (
        "namespace A.B { runtimeclass C { } }",
        "[in] A.B.C *p",
        "runtime class",
        "`C` is a class of the Windows Runtime",
    ),
    (
        "namespace A { interface V<T> { } }",
        "[in] A.V<long *> *p",
        "foreign type",
        "`V` does not exist here",
    ),
];

#[test]
fn what_cannot_travel_has_a_cause_that_names_the_construct() {
    for (before, params, construct, message) in CAUSES {
        assert_eq!(cause(before, params), (*construct, (*message).to_owned()), "{before} {params}");
    }
}

#[test]
fn an_arm_that_cannot_travel_leaves_the_others() {
    let c = compiled(
        "[local, object] interface j { } typedef union u switch (long k) v { case 1: long a; case 2: j *b; } u;
         [object] interface i { void f([in] u *p); }",
    );
    let union = c.module.types.iter().find(|t| t.name == "u").unwrap();
    let TypeKind::Union(kind) = &union.kind else { panic!("{union:?}") };
    assert_eq!(kind.arms.len(), 1);
    let lines: Vec<String> = stubs::listing(&c).iter().map(stubs::StubEntry::to_text).collect();
    assert_eq!(
        lines,
        [
            "operation i.f (number 0): stubs",
            "arm u.b: declared only, reference to a local interface: `j` is `local`: it has no endpoint",
        ]
    );
}

#[test]
fn a_field_selects_the_arm_with_its_own_type() {
    let m = module(
        "[object] interface i { void f([in] struct s { short k; [switch_is(k)] union { [case(1)] long a; } u; } *p); }",
    );
    let switch = m.types.iter().find_map(|t| match &t.kind {
        TypeKind::Union(union) => Some(union.switch.clone()),
        _ => None,
    });
    assert_eq!(switch, Some(Ty::Scalar(Scalar::I16)));
}

#[test]
fn operations_keep_their_numbers() {
    let m = module(
        "[object] interface a { void f([in] long x); void g([in] void *p); void h([in] long x); }
         [object] interface b : a { void k([in] long x); }",
    );
    let numbers = |i: &Interface| -> Vec<u16> { i.operations.iter().map(|o| o.opnum).collect() };
    assert_eq!(numbers(&m.interfaces[0]), [0, 2]);
    assert_eq!(m.interfaces[0].declared[0].opnum, 1);
    assert_eq!(numbers(&m.interfaces[1]), [3]);
}

#[test]
fn mistakes_in_files_of_com_stay_mistakes() {
    for (text, message) in [
        (
            "import \"oaidl.idl\"; interface i { void f([in] lnog a); }",
            "error[SJ0203]: there is no type `lnog`",
        ),
        (
            "import \"oaidl.idl\"; interface i : j { }",
            "error[SJ0511]: there is no interface `j` that could be extended here",
        ),
        (
            "[objct] interface i { } coclass c { interface i; }",
            "error[SJ0401]: there is no attribute `objct`",
        ),
        (
            "coclass c { int i; }",
            "error[SJ0101]: expected `interface NAME;` or `dispinterface NAME;`, found `int`",
        ),
        (
            "interface i { void f([in] void *p); }",
            "error[SJ0308]: `void` says nothing about what travels",
        ),
    ] {
        assert_eq!(refused(text), message, "{text}");
    }
}

#[test]
fn who_expects_stubs_is_warned_and_who_says_local_is_not() {
    let warned =
        compiled("[object] interface i { void f([in] void *p); [local] void g([in] void *p); }");
    let shown = warned.rendered();
    assert!(
        shown.starts_with("warning[SJ0513]: `i.f` is declared only (pointer to void): "),
        "{shown}"
    );
    assert_eq!(warned.diagnostics.len(), 1, "{shown}");
    let dispatch =
        compiled("dispinterface d { properties: [id(1)] long a; methods: [id(2)] void f(); }");
    assert!(dispatch.rendered().starts_with("warning[SJ0113]: "), "{}", dispatch.rendered());
    assert_eq!(dispatch.module.dispatches[0].members, ["a", "f"]);
}

#[test]
fn classes_and_libraries_are_in_the_model() {
    let m = module(
        "[uuid(00000000-0000-0000-0000-000000000001)] library L { importlib(\"x.tlb\");
         [object] interface i { void f([in] long a); }
         [uuid(00000000-0000-0000-0000-000000000002)] coclass C { [default] interface i; [source] dispinterface d; } }",
    );
    let class = &m.classes[0];
    assert_eq!((class.name.as_str(), class.uuid.unwrap()[15]), ("C", 2));
    let of = |i: &ClassInterface| (i.name.clone(), i.is_default, i.is_source);
    let found: Vec<_> = class.interfaces.iter().map(of).collect();
    assert_eq!(found, [("i".to_owned(), true, false), ("d".to_owned(), false, true)]);
    assert_eq!(m.library.unwrap().name, "L");
    assert_eq!(m.interfaces[0].operations.len(), 1);
}

#[test]
fn wire_marshal_and_the_built_in_types_are_what_travels() {
    let m = module(
        "import \"oaidl.idl\"; typedef [wire_marshal(long)] void *HX;
         [object] interface i { HRESULT f([in] HX h, [in] BSTR s, [in] VARIANT v, [in] IDispatch *d); }",
    );
    let i = m.interfaces.iter().find(|i| i.name == "i").unwrap();
    let kinds: Vec<&TypeKind> = i.operations[0]
        .params
        .iter()
        .filter_map(|p| match &p.ty {
            Ty::Named(id) => Some(&m.types[id.0 as usize].kind),
            _ => None,
        })
        .collect();
    assert!(matches!(kinds[0], TypeKind::Alias(Ty::Scalar(Scalar::I32))), "{kinds:?}");
    assert!(matches!(kinds[1], TypeKind::Alias(Ty::Pointer(PtrClass::Unique, _))), "{kinds:?}");
    assert!(matches!(kinds[2], TypeKind::Union(_)), "{kinds:?}");
    assert!(matches!(i.operations[0].params[3].ty, Ty::Interface(_)));
    assert_eq!(m.sources, ["main.idl"], "what is built in is no file");
}

#[test]
fn the_listing_says_what_has_stubs() {
    let c = compiled(
        "[object] interface i { void f([in] long a); void g([in] void *p); [local] void h(); }",
    );
    let lines: Vec<String> = stubs::listing(&c).iter().map(stubs::StubEntry::to_text).collect();
    assert_eq!(
        lines,
        [
            "operation i.f (number 0): stubs",
            "operation i.g (number 1): declared only, pointer to void: `void` says nothing about what travels",
            "operation i.h (number 2): declared only, local: it is `local`: it runs in the process of its caller",
        ]
    );
    let json: serde_json::Value = serde_json::from_str(&stubs::listing(&c)[1].to_json()).unwrap();
    assert_eq!(json["construct"], "pointer to void");
    assert_eq!((json["place"]["line"].as_u64(), json["stubs"].as_bool()), (Some(1), Some(false)));
}

#[test]
fn the_file_of_the_round_trips_is_as_it_says() {
    let text = include_str!("c/com.idl");
    let c = compiled(text);
    assert!(c.diagnostics.iter().all(|d| d.severity == Severity::Note), "{}", c.rendered());
    let without: Vec<String> = stubs::listing(&c)
        .iter()
        .filter(|entry| !entry.stubs)
        .map(|entry| format!("{}: {}", entry.name, entry.construct.unwrap_or("")))
        .collect();
    assert_eq!(
        without,
        [
            "IShape.Paint: local",
            "IDrawing.Watch: local",
            "ISurface.Lock: local",
            "ISurface.Unlock: local",
            "SINK: function pointer",
        ]
    );
}
