//! The check that a signature says what each of its values is (CONTRIBUTING.md): no type of a
//! parameter, a result or a field is a tuple, no function has more than five parameters, and no
//! field that holds a name (`pid`, `cookie`, `next_grant`) is a bare integer.
//!
//! A slot or an index of a table that its owner alone uses is a place, not a name.
//!
//! Left out: code that only tests have, the methods of a trait's implementation (the trait gives
//! their signatures) and functions for C; and from the count of parameters functions with a
//! reason for more (`clippy::too_many_arguments`). Names within formats stay integers: in structs
//! whose memory C or the kernel shares (`repr(C)`) and in those that are only read or written
//! (serde's, clap's). Not here: the bodies of functions, where a tuple may be the best word for two
//! values.

use crate::layers::{packages, roots_of};
use crate::modules::{is_for_tests, read_crate};
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;
use syn::Attribute;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

/// Largest number of parameters beside the receiver.
const PARAMETERS: usize = 5;

/// Words that name one thing among others of its kind; a field is a name by its last word.
const NAMES: [&str; 10] =
    ["badge", "cookie", "gid", "grant", "id", "pid", "seq", "sequence", "token", "uid"];

/// Packages that measure and test: they hand the system's integers back to the system.
const MEASURING: [&str; 3] = ["sojourn-bench", "sojourn-lab", "sojourn-system"];

/// The types that do not say of what they are a name; a list of `u8` is text.
const INTEGERS: [&str; 13] = [
    "u16", "u32", "u64", "u128", "usize", "i8", "i16", "i32", "i64", "isize", "c_int", "pid_t",
    "uid_t",
];

/// The derived traits of structs that are formats.
const FORMATS: [&str; 5] = ["Serialize", "Deserialize", "Args", "Parser", "Subcommand"];

/// Fails with the signatures that have a tuple or too many parameters.
pub(crate) fn check() -> Result<()> {
    let mut found = Vec::new();
    for package in &packages()? {
        found.extend(faults_of(package)?);
    }
    if !found.is_empty() {
        bail!("signatures that do not say what their values are:\n{}", found.join("\n"));
    }
    Ok(())
}

/// Describes the faults of a package's libraries and programs, each with its place.
fn faults_of(package: &Value) -> Result<Vec<String>> {
    let read = |path: &Path| std::fs::read_to_string(path).ok();
    let mut files = BTreeSet::new();
    for root in roots_of(package)? {
        files.extend(read_crate(&root, &read)?.files);
    }
    let mut found = Vec::new();
    let is_measuring = package["name"].as_str().is_some_and(|name| MEASURING.contains(&name));
    for file in files {
        let name = file.display();
        let text = read(&file).with_context(|| name.to_string())?;
        let faults = faults(&text, !is_measuring).with_context(|| name.to_string())?;
        found.extend(faults.into_iter().map(|fault| format!("{name}:{fault}")));
    }
    Ok(found)
}

/// Describes the faults of one file's text, each with its line; those of names only if asked for.
fn faults(text: &str, has_names: bool) -> Result<Vec<String>> {
    let mut finder = Finder { found: Vec::new(), has_names };
    finder.visit_file(&syn::parse_file(text)?);
    Ok(finder.found)
}

/// Visitor of a file's signatures and fields.
struct Finder {
    found: Vec<String>,
    has_names: bool,
}

impl Finder {
    fn signature(&mut self, signature: &syn::Signature, attributes: &[Attribute]) {
        let name = &signature.ident;
        let is_excused = attributes.iter().any(|attribute| {
            let list = attribute.meta.require_list();
            list.is_ok_and(|list| list.tokens.to_string().contains("too_many_arguments"))
        });
        let inputs = signature.inputs.iter().filter(|one| matches!(one, syn::FnArg::Typed(_)));
        let count = inputs.count();
        if count > PARAMETERS && signature.abi.is_none() && !is_excused {
            let line = name.span().start().line;
            self.found.push(format!("{line}: `{name}` has {count} parameters"));
        }
        let mut tuples = Tuples::default();
        tuples.visit_signature(signature);
        self.report(&tuples, name);
    }

    /// Reports the fields that are names and bare integers.
    fn names(&mut self, fields: &syn::Fields, attributes: &[Attribute]) {
        if !self.has_names || is_format(attributes) {
            return;
        }
        for field in fields {
            let Some(name) = &field.ident else { continue };
            let text = name.to_string();
            let word = text.rsplit('_').next().unwrap_or_default();
            // A plain integer in the plural is a count.
            let one = word.strip_suffix('s').filter(|_| !is_plain(&field.ty)).unwrap_or(word);
            if NAMES.contains(&one) && is_integer(&field.ty) {
                let line = name.span().start().line;
                self.found.push(format!("{line}: `{name}` is a name and a bare integer"));
            }
        }
    }

    fn report(&mut self, tuples: &Tuples, name: &syn::Ident) {
        let lines = tuples.lines.iter();
        self.found.extend(lines.map(|line| format!("{line}: `{name}` has a tuple")));
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
            self.signature(&item.sig, &item.attrs);
            visit::visit_block(self, &item.block);
        }
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        if is_for_tests(&item.attrs) {
            return;
        }
        for function in &item.items {
            let syn::ImplItem::Fn(function) = function else { continue };
            if !is_for_tests(&function.attrs) {
                if item.trait_.is_none() {
                    self.signature(&function.sig, &function.attrs);
                }
                visit::visit_block(self, &function.block);
            }
        }
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if !is_for_tests(&item.attrs) {
            self.signature(&item.sig, &item.attrs);
        }
    }

    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        if !is_for_tests(&item.attrs) {
            let mut tuples = Tuples::default();
            tuples.visit_fields(&item.fields);
            self.report(&tuples, &item.ident);
            self.names(&item.fields, &item.attrs);
        }
    }

    fn visit_item_enum(&mut self, item: &'ast syn::ItemEnum) {
        if !is_for_tests(&item.attrs) {
            let mut tuples = Tuples::default();
            item.variants.iter().for_each(|variant| tuples.visit_fields(&variant.fields));
            self.report(&tuples, &item.ident);
            item.variants.iter().for_each(|variant| self.names(&variant.fields, &item.attrs));
        }
    }

    fn visit_item_type(&mut self, item: &'ast syn::ItemType) {
        if !is_for_tests(&item.attrs) {
            let mut tuples = Tuples::default();
            tuples.visit_type(&item.ty);
            self.report(&tuples, &item.ident);
        }
    }
}

/// Returns true for a struct or enum that has the form of something outside the program.
fn is_format(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let Ok(list) = attribute.meta.require_list() else { return false };
        let tokens = list.tokens.to_string();
        let mut words = tokens.split(|c: char| !c.is_alphanumeric() && c != '_');
        list.path.is_ident("repr") && words.clone().any(|word| word == "C")
            || list.path.is_ident("derive") && words.any(|word| FORMATS.contains(&word))
    })
}

/// Returns true for a type without elements.
fn is_plain(of: &syn::Type) -> bool {
    let syn::Type::Path(path) = of else { return false };
    path.path.segments.last().is_some_and(|last| last.arguments.is_empty())
}

/// Returns true for an integer, and for an option, a list or a reference of integers.
fn is_integer(of: &syn::Type) -> bool {
    match of {
        syn::Type::Array(array) => is_integer(&array.elem),
        syn::Type::Slice(slice) => is_integer(&slice.elem),
        syn::Type::Reference(reference) => is_integer(&reference.elem),
        syn::Type::Path(path) => path.path.segments.last().is_some_and(|last| {
            let syn::PathArguments::AngleBracketed(arguments) = &last.arguments else {
                return INTEGERS.iter().any(|one| last.ident == one);
            };
            arguments
                .args
                .iter()
                .any(|one| matches!(one, syn::GenericArgument::Type(of) if is_integer(of)))
        }),
        _ => false,
    }
}

/// Visitor that collects the lines of the tuples within a type.
#[derive(Default)]
struct Tuples {
    lines: Vec<usize>,
}

impl<'ast> Visit<'ast> for Tuples {
    fn visit_type_tuple(&mut self, tuple: &'ast syn::TypeTuple) {
        if !tuple.elems.is_empty() {
            self.lines.push(tuple.span().start().line);
        }
        visit::visit_type_tuple(self, tuple);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tuples_in_signatures_and_fields_are_found_with_their_lines() {
        let text = "
            fn one(pair: (u8, u8)) {}
            fn two() -> Option<(u8, u8)> { fn inner() -> (u8, u8) { (1, 2) } None }
            struct Three { all: Vec<(u8, u8)>, none: () }
            enum Four { A(u8, u8), B((u8, u8)) }
            type Five<'a> = &'a [(u8, u8)];
            impl Three { fn six(&self, of: impl Fn((u8, u8)) -> u8) {} }
            trait Seven { fn seven() -> (u8, u8); }
        ";
        let lines: Vec<usize> = faults(text, true)
            .unwrap()
            .iter()
            .map(|fault| fault.split_once(':').unwrap().0.parse().unwrap())
            .collect();
        assert_eq!(lines, [2, 3, 3, 4, 5, 6, 7, 8]);
    }

    #[test]
    fn what_a_trait_or_only_a_test_needs_is_passed_over() {
        let text = "
            impl Iterator for A { type Item = (u8, u8); fn next(&mut self) -> Option<(u8, u8)> {} }
            #[cfg(test)] mod tests { fn one() -> (u8, u8) {} }
            #[test] fn two() -> (u8, u8) {}
            fn three(of: impl Fn(u8, u8)) { let (a, b): (u8, u8) = (1, 2); }
            fn four() {}
        ";
        assert_eq!(faults(text, true).unwrap(), Vec::<String>::new());
    }

    #[test]
    fn fields_that_are_names_and_bare_integers_are_found() {
        let text = "
            struct One { pid: u32, peer_id: Option<usize>, grants: Vec<u32>, cookie: [u64; 2] }
            enum Two { A { uid: libc::uid_t } }
            struct Three { pid: Pid, grants: u32, ids_len: usize, id: Vec<u8>, idle: u64, token: Token }
            #[repr(C)] struct Four { pid: i32 }
            #[derive(Debug, serde::Serialize)] struct Five { pid: u32 }
            #[cfg(test)] struct Six { pid: u32 }
        ";
        let found = faults(text, true).unwrap();
        let names: Vec<&str> = found.iter().filter_map(|fault| fault.split('`').nth(1)).collect();
        assert_eq!(names, ["pid", "peer_id", "grants", "cookie", "uid"]);
    }

    #[test]
    fn more_than_five_parameters_are_found_except_in_functions_for_c() {
        let text = "
            fn five(a: u8, b: u8, c: u8, d: u8, e: u8) {}
            impl A { fn method(&self, a: u8, b: u8, c: u8, d: u8, e: u8) {} }
            fn six(a: u8, b: u8, c: u8, d: u8, e: u8, f: u8) {}
            extern \"C\" fn for_c(a: u8, b: u8, c: u8, d: u8, e: u8, f: u8) {}
            #[allow(clippy::too_many_arguments, reason = \"\")]
            fn excused(a: u8, b: u8, c: u8, d: u8, e: u8, f: u8) {}
        ";
        assert_eq!(faults(text, true).unwrap(), ["4: `six` has 6 parameters"]);
    }
}
