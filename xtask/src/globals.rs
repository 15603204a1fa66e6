//! The check that the protocol library reaches for the library of its process, which is global,
//! only where it is called with nothing in hand (CONTRIBUTING.md). Everywhere else the library is
//! passed on, as a parameter or within a value.
//!
//! Not here: code for tests, and other crates, whose calls into the library begin with the global.

use crate::layers::{packages, roots_of};
use crate::modules::{is_for_tests, read_crate};
use anyhow::{Context, Result, bail};
use proc_macro2::{TokenStream, TokenTree};
use std::collections::BTreeSet;
use std::path::Path;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

/// The package, and the folder of its sources.
const PACKAGE: &str = "sojourn-library";
const FOLDER: &str = "crates/library/src";

/// The function that returns the global, which is also the name of its module, and the static.
const FUNCTION: &str = "library";
const STATIC: &str = "LIBRARY";

/// Where the global may be used: file, function, reason. Outside a function, the export.
const PLACES: [(&str, &str, &str); 6] = [
    ("lib.rs", "", "the calls of other crates come with nothing in hand"),
    ("process/library.rs", "library", "it is the way to the global"),
    ("process/library.rs", "forget_own", "a descriptor that is dropped knows its number alone"),
    ("control/threads.rs", "start_protocol_thread", "a thread outlives what its starter borrowed"),
    ("remote/net.rs", "wake_threads", "a callback without arguments"),
    ("remote/protocol_server.rs", "end_thread", "a callback without arguments"),
];

/// A use of the global.
#[derive(Debug, PartialEq, Eq)]
struct Use {
    line: usize,
    /// The innermost function; empty outside of functions.
    function: String,
    /// An import, which says nothing of the functions that use it.
    is_import: bool,
}

/// Fails with the uses of the global at other places, and with the places that have none.
pub(crate) fn check() -> Result<()> {
    let packages = packages()?;
    let package = packages.iter().find(|package| package["name"].as_str() == Some(PACKAGE));
    let read = |path: &Path| std::fs::read_to_string(path).ok();
    let mut files = BTreeSet::new();
    for root in roots_of(package.context(PACKAGE)?)? {
        files.extend(read_crate(&root, &read)?.files);
    }
    let (mut wrong, mut used) = (Vec::new(), BTreeSet::new());
    for file in &files {
        let text = read(file).with_context(|| file.display().to_string())?;
        let whole = file.display().to_string();
        let name = whole.split_once(FOLDER).map_or(&*whole, |(_, name)| name.trim_matches('/'));
        for one in uses(&text).with_context(|| whole.clone())? {
            let place = place_of(name, &one);
            if place.is_none() {
                wrong.push(format!("{FOLDER}/{name}:{}: {}", one.line, one.function));
            }
            used.extend(place.filter(|_| !one.is_import));
        }
    }
    // The export is an import.
    let is_left = |place: &usize| !PLACES[*place].1.is_empty() && !used.contains(place);
    let left = (0..PLACES.len()).filter(is_left);
    wrong.extend(left.map(|place| format!("{}: listed, and not used", PLACES[place].1)));
    if !wrong.is_empty() {
        bail!(
            "the library of the process is global, and is passed on as `&Library` or in an \
             `OwnSession` where a call has it; only these places reach for it (see \
             xtask/src/globals.rs): {}\n{}",
            PLACES.map(|(file, function, _)| format!("{file} {function}")).join(", "),
            wrong.join("\n")
        );
    }
    Ok(())
}

/// Returns the index of the place at which a file uses the global, if it may. A file with a place
/// may import the global.
fn place_of(file: &str, one: &Use) -> Option<usize> {
    PLACES.iter().position(|(known, function, _)| {
        *known == file && (one.is_import || *function == one.function)
    })
}

/// Returns the uses of the global in one file's text, without those in tests.
fn uses(text: &str) -> Result<Vec<Use>> {
    let mut finder = Finder::default();
    finder.visit_file(&syn::parse_file(text)?);
    Ok(finder.found)
}

/// Visitor of a file's functions and imports.
#[derive(Default)]
struct Finder {
    found: Vec<Use>,
    functions: Vec<String>,
}

impl Finder {
    fn add(&mut self, line: usize, is_import: bool) {
        let function = self.functions.last().cloned().unwrap_or_default();
        self.found.push(Use { line, function, is_import });
    }

    fn within(&mut self, signature: &syn::Signature, block: &syn::Block) {
        self.functions.push(signature.ident.to_string());
        visit::visit_block(self, block);
        self.functions.pop();
    }

    /// Looks for calls among the arguments of a macro, which are no syntax tree.
    fn tokens(&mut self, tokens: TokenStream) {
        let mut is_named = false;
        for token in tokens {
            match token {
                TokenTree::Group(group) if is_named && group.stream().is_empty() => {
                    self.add(group.span().start().line, false);
                }
                TokenTree::Group(group) => self.tokens(group.stream()),
                TokenTree::Ident(name) => {
                    is_named = name == FUNCTION;
                    continue;
                }
                _ => {}
            }
            is_named = false;
        }
    }
}

impl<'ast> Visit<'ast> for Finder {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !is_for_tests(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        if !is_for_tests(&item.attrs) {
            self.within(&item.sig, &item.block);
        }
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        if !is_for_tests(&item.attrs) {
            visit::visit_item_impl(self, item);
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        if !is_for_tests(&item.attrs) {
            self.within(&item.sig, &item.block);
        }
    }

    fn visit_use_name(&mut self, name: &'ast syn::UseName) {
        if name.ident == FUNCTION {
            self.add(name.span().start().line, true);
        }
    }

    fn visit_use_rename(&mut self, name: &'ast syn::UseRename) {
        if name.ident == FUNCTION {
            self.add(name.span().start().line, true);
        }
    }

    fn visit_use_path(&mut self, path: &'ast syn::UsePath) {
        // All names of the module, the function's among them.
        if path.ident == FUNCTION && matches!(*path.tree, syn::UseTree::Glob(_)) {
            self.add(path.span().start().line, true);
        }
        visit::visit_use_path(self, path);
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        if !is_for_tests(&item.attrs) {
            visit::visit_item_use(self, item);
        }
    }

    fn visit_expr_call(&mut self, call: &'ast syn::ExprCall) {
        if call.args.is_empty()
            && let syn::Expr::Path(path) = &*call.func
            && path.path.segments.last().is_some_and(|last| last.ident == FUNCTION)
        {
            self.add(call.span().start().line, false);
        }
        visit::visit_expr_call(self, call);
    }

    fn visit_expr_path(&mut self, path: &'ast syn::ExprPath) {
        if path.path.segments.last().is_some_and(|last| last.ident == STATIC) {
            self.add(path.span().start().line, false);
        }
        visit::visit_expr_path(self, path);
    }

    fn visit_macro(&mut self, one: &'ast syn::Macro) {
        self.tokens(one.tokens.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the functions of the uses that are no imports.
    fn functions(text: &str) -> Vec<String> {
        let all = uses(text).unwrap();
        all.into_iter().filter(|one| !one.is_import).map(|one| one.function).collect()
    }

    #[test]
    fn calls_are_found_with_their_functions_however_they_name_the_global() {
        let text = "
            fn one() { let engine = library().engine(); }
            impl A { fn two(&self) { self.each(|| crate::process::library::library().push(job)) } }
            fn three() { debug_assert!(is_so(library().away())) }
            fn four() -> &'static Library { &LIBRARY }
            fn five(library: &Library) { library.push(self.library(), library) }
            fn six() { fn seven() { library() } }
        ";
        assert_eq!(functions(text), ["one", "two", "three", "four", "seven"]);
    }

    #[test]
    fn what_only_tests_use_is_passed_over() {
        let text = "
            #[cfg(test)] mod tests { use crate::process::library::library; fn one() { library() } }
            #[cfg(test)] use crate::process::library::library;
            #[test] fn two() { library() }
            impl A { #[cfg(test)] fn three() { library() } }
        ";
        assert_eq!(uses(text).unwrap(), []);
    }

    #[test]
    fn imports_are_found_under_any_name() {
        for text in [
            "use crate::process::library::{Library, library};",
            "use crate::process::library::library as of_process;",
            "use crate::process::library::*;",
            "use crate::library;",
        ] {
            let found = uses(text).unwrap();
            assert!(matches!(found[..], [Use { line: 1, is_import: true, .. }]), "{text}");
        }
        assert_eq!(uses("use crate::process::library::{Library, OwnSession};").unwrap(), []);
    }

    #[test]
    fn a_place_is_a_function_of_a_file() {
        let at = |function: &str, is_import| Use { line: 1, function: function.into(), is_import };
        assert!(place_of("remote/net.rs", &at("wake_threads", false)).is_some());
        assert!(place_of("remote/net.rs", &at("", true)).is_some());
        assert!(place_of("remote/net.rs", &at("with_pump", false)).is_none());
        assert!(place_of("io/send.rs", &at("wake_threads", false)).is_none());
        assert!(place_of("io/send.rs", &at("", true)).is_none());
    }
}
