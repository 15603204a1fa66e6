//! Whether `allocate` asks for something that stubs can do: a key without effect would be a promise
//! not kept.

use super::tree::{Interface as Tree, Item, Key, Keyed};
use crate::ast::Name;
use crate::diag::{Diagnostic, Sink, codes};
use crate::ir::{Module, Scalar, Ty};
use crate::layout;

/// Where a key stands.
enum Target<'a> {
    /// With an interface or an operation: for all that fits.
    Many,
    /// With a type or a parameter of it.
    One(&'a Name, Ty),
}

/// Looks at every `allocate` of an interface.
pub(super) fn check(tree: &Tree, module: &Module, for_rust: bool, sink: &mut Sink) {
    let interface = module.interfaces.iter().find(|i| i.name == tree.name.text);
    let Some(interface) = interface else { return };
    check_allocate(&tree.keys, &Target::Many, module, for_rust, sink);
    for item in &tree.items {
        match item {
            Item::Typedef(keys, names) => {
                for name in names {
                    let Some(at) = module.types.iter().position(|t| t.name == name.text) else {
                        continue;
                    };
                    let Ok(id) = u32::try_from(at) else { continue };
                    let ty = Ty::Named(crate::ir::TypeId(id));
                    check_allocate(keys, &Target::One(name, ty), module, for_rust, sink);
                }
            }
            Item::Operation(Keyed { keys, name }, params) => {
                check_allocate(keys, &Target::Many, module, for_rust, sink);
                let operation = interface.operations.iter().find(|o| o.name == name.text);
                for Keyed { keys, name } in params {
                    let param =
                        operation.and_then(|o| o.params.iter().find(|p| p.name == name.text));
                    if let Some(param) = param {
                        let place = Target::One(name, param.ty.clone());
                        check_allocate(keys, &place, module, for_rust, sink);
                    }
                }
            }
        }
    }
}

fn check_allocate(
    keys: &[Key],
    place: &Target<'_>,
    module: &Module,
    for_rust: bool,
    sink: &mut Sink,
) {
    let Some(key) = keys.iter().find(|key| key.name.text == "allocate") else { return };
    let Some(argument) = key.args.first() else { return };
    if let Target::One(name, ty) = place
        && !super::settings::is_arena(argument)
        && layout::is_fixed(module, ty)
        && !has_pointer(module, ty)
    {
        let message = format!("nothing of `{}` is allocated: it is stored in place", name.text);
        let found = Diagnostic::error(codes::ACF_ALLOCATE, key.span, message);
        sink.push(found.help("take `allocate` out, or say it of a string, an array or a pointer"));
        return;
    }
    let fits_rust = match place {
        Target::Many => false,
        Target::One(_, ty) => is_number_array(module, ty),
    };
    if for_rust && super::settings::is_provider(argument) && !fits_rust {
        let message = match place {
            Target::Many => "Rust stubs take memory for single parameters only".to_owned(),
            Target::One(name, _) => {
                format!("Rust stubs take no memory for `{}`: it is no array of numbers", name.text)
            }
        };
        let found = Diagnostic::error(codes::ACF_ALLOCATE_RUST, key.span, message);
        sink.push(
            found.help("say it of a parameter that is an array of numbers, or generate C alone"),
        );
    }
}

/// A reference pointer to something fixed is memory too.
fn has_pointer(module: &Module, ty: &Ty) -> bool {
    matches!(layout::strip(module, ty), Ty::Pointer(..))
}

/// What Rust stubs read as a vector of numbers (`Model::provider` of that back end).
fn is_number_array(module: &Module, ty: &Ty) -> bool {
    match layout::strip(module, ty) {
        Ty::Array(array) => match layout::strip(module, &array.element) {
            Ty::Scalar(scalar) => *scalar != Scalar::Bool,
            _ => false,
        },
        Ty::Pointer(_, target) => is_number_array(module, target),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use crate::compile::{Options, compile};
    use crate::source::MemoryLoader;

    const IDL: &str = "interface i { typedef struct { long x; } p_t; typedef [string] char *s_t;\
        void f([out] p_t *p, [in, string] char *s, [in] long n, [in, size_is(n)] p_t *a, [in, size_is(n)] long *v); }";

    /// What is said of `acf`: codes.
    fn codes(acf: &str, for_rust: bool) -> Vec<String> {
        let loader = MemoryLoader::new().with("m.idl", IDL).with("m.acf", acf);
        let options = Options { for_rust, ..Options::default() };
        match compile("m.idl", Some("m.acf"), &loader, &options) {
            Ok(_) => Vec::new(),
            Err(failure) => failure.diagnostics.iter().map(|d| d.code.to_string()).collect(),
        }
    }

    #[test]
    fn what_is_stored_in_place_needs_no_memory() {
        for key in ["pool(m)", "fn(m)", "caller"] {
            for of in ["n", "p"] {
                let acf = format!("interface i {{ f([allocate({key})] {of}); }}");
                assert_eq!(codes(&acf, false), ["SJ0611"], "{acf}");
            }
            let acf = format!("interface i {{ typedef [allocate({key})] p_t; }}");
            assert_eq!(codes(&acf, false), ["SJ0611"], "{acf}");
        }
        assert!(codes("interface i { f([allocate(arena)] n); }", true).is_empty());
    }

    #[test]
    fn rust_takes_arrays_of_numbers_from_elsewhere_and_c_everything() {
        for (acf, rust) in [
            ("interface i { f([allocate(pool(m))] v); }", true),
            ("interface i { f([allocate(fn(m))] v); }", true),
            ("interface i { f([allocate(pool(m))] a); }", false),
            ("interface i { f([allocate(fn(m))] s); }", false),
            ("interface i { typedef [allocate(pool(m))] s_t; }", false),
            ("interface i { [allocate(pool(m))] f(); }", false),
            ("[allocate(fn(m))] interface i { }", false),
            ("[allocate(caller)] interface i { }", true),
        ] {
            assert!(codes(acf, false).is_empty(), "{acf}");
            let expected: &[&str] = if rust { &[] } else { &["SJ0612"] };
            assert_eq!(codes(acf, true), expected, "{acf}");
        }
    }
}
