use super::{circles, imports, read_crate};
use std::path::Path;

/// Returns the circles of a crate with the files `files` (name and text; the first is the root),
/// each circle as the names of its files in order.
fn found(files: &[(&str, &str)]) -> Vec<Vec<String>> {
    let read = |path: &Path| {
        let text = files.iter().find(|(name, _)| Path::new(name) == path);
        text.map(|(_, text)| (*text).to_owned())
    };
    let tree = read_crate(Path::new(files[0].0), &read).unwrap();
    let edges = imports(&tree);
    let names = |circle: &super::circles::Circle| {
        let files = circle.files.iter().map(|file| tree.files[file.0].display().to_string());
        files.collect()
    };
    circles(&tree, &edges).iter().map(names).collect()
}

#[test]
fn two_modules_that_use_each_other_are_a_circle() {
    let a = ("a.rs", "use crate::b::B; pub struct A(B);");
    let by_use = ("b.rs", "use crate::a::A; pub struct B(Option<Box<A>>);");
    let by_path = ("b.rs", "pub struct B; fn f() { let _ = crate::a::A; }");
    let by_macro = ("b.rs", "pub struct B; fn f() { assert!(super::a::A == 1); }");
    let by_module = ("b.rs", "use super::a; pub struct B; fn f(_: a::A) {}");
    let lib = ("lib.rs", "mod a; mod b;");
    for b in [by_use, by_path, by_macro, by_module] {
        assert_eq!(found(&[lib, a, b]), [["a.rs", "b.rs"]], "{b:?}");
    }
    assert!(found(&[lib, a, ("b.rs", "pub struct B;")]).is_empty());
}

#[test]
fn a_parent_may_re_export_but_not_share_with_its_children() {
    let child = ("a/b.rs", "use super::Shared; pub struct B(Shared);");
    let shares = ("a.rs", "mod b; pub struct Shared; pub use b::B;");
    assert_eq!(found(&[("lib.rs", "mod a;"), shares, child]), [["a.rs", "a/b.rs"]]);
    let composes = ("a.rs", "mod b; mod shared; pub use b::B; pub use shared::Shared;");
    let shared = ("a/shared.rs", "pub struct Shared;");
    assert!(found(&[("lib.rs", "mod a;"), composes, child, shared]).is_empty());
    // A child that uses an item of its parent, without the parent using the child, is no circle.
    let gives = ("a.rs", "mod b; pub struct Shared;");
    assert!(found(&[("lib.rs", "mod a;"), gives, child]).is_empty());
}

#[test]
fn re_exports_and_globs_lead_to_the_definition() {
    let lib = ("lib.rs", "mod a; mod b; mod all; pub use a::A; pub use b::b;");
    let all = ("all.rs", "pub use crate::a::*;");
    let a = ("a.rs", "pub struct A; pub fn f() { crate::b() }");
    for b in ["use crate::A; pub fn b(_: A) {}", "use crate::all::*; pub fn b(_: A) {}"] {
        assert_eq!(found(&[lib, a, ("b.rs", b), all]), [["a.rs", "b.rs"]], "{b}");
    }
    assert!(found(&[lib, a, ("b.rs", "use other::A; pub fn b(_: A) {}"), all]).is_empty());
    // An item that a module re-exports from another crate is defined by no file of this crate.
    let lib = ("lib.rs", "mod a; mod b; pub use b::b;");
    let a = ("a.rs", "pub use other::A;");
    assert!(found(&[lib, a, ("b.rs", "use crate::a::A; pub fn b(_: A) {}")]).is_empty());
}

#[test]
fn a_module_file_stands_beside_its_folder() {
    for (name, is_right) in [("a.rs", true), ("a/mod.rs", false)] {
        let read = |path: &Path| match path.to_str() {
            Some("lib.rs") => Some("mod a;".to_owned()),
            found => (found == Some(name)).then(String::new),
        };
        assert_eq!(read_crate(Path::new("lib.rs"), &read).is_ok(), is_right, "{name}");
    }
}

#[test]
fn what_is_for_tests_is_left_out() {
    let lib = ("lib.rs", "mod a; mod b;");
    let b = ("b.rs", "use crate::a::A; pub struct B(A);");
    for a in [
        "pub struct A; #[cfg(test)] mod tests { use crate::b::B; }",
        "pub struct A; #[cfg(test)] use crate::b::B;",
        "pub struct A; #[cfg(all(test, unix))] fn f(_: crate::b::B) {}",
        "pub struct A; impl A { #[cfg(test)] fn f(_: crate::b::B) {} }",
        "pub struct A; #[cfg(test)] #[path = \"a_tests.rs\"] mod tests;",
    ] {
        assert!(found(&[lib, ("a.rs", a), b]).is_empty(), "{a}");
    }
    let also = ("a.rs", "pub struct A; #[cfg(any(test, fuzzing))] fn f(_: crate::b::B) {}");
    assert_eq!(found(&[lib, also, b]).len(), 1);
}

#[test]
fn the_shortest_way_around_is_shown_with_its_lines() {
    let files = [
        ("lib.rs", "mod a; mod b; mod c;"),
        ("a.rs", "\nuse crate::b::B;\npub struct A(B);"),
        ("b.rs", "pub struct B;\nuse crate::{a::A, c::C};"),
        ("c.rs", "pub struct C; use crate::a::A;"),
    ];
    let read = |path: &Path| {
        let text = files.iter().find(|(name, _)| Path::new(name) == path);
        text.map(|(_, text)| (*text).to_owned())
    };
    let tree = read_crate(Path::new("lib.rs"), &read).unwrap();
    let edges = imports(&tree);
    let circles = circles(&tree, &edges);
    assert_eq!(circles.len(), 1);
    assert_eq!(circles[0].files.len(), 3);
    let said = "  a.rs:2 names crate::b::B of b.rs\n  b.rs:2 names crate::a::A of a.rs";
    assert_eq!(circles[0].shortest(&tree, &edges), said);
    assert_eq!(circles[0].all(&tree, &edges).lines().count(), 4);
}
