//! Documentation of a small interface.

use crate::source::MemoryLoader;

const IDL: &str = r#"
/// Adds.
interface adder {
    /// The <sum> of both.
    [idempotent] long add([in] long a, [in, size_is(a)] short *b);
    typedef union switch (long kind) u { case 1: long x; default: ; } u_t;
};
/// How many.
const long LIMIT = 4;
"#;

fn module() -> crate::ir::Module {
    let loader = MemoryLoader::new().with("adder.idl", IDL);
    crate::compile("adder.idl", None, &loader, &crate::Options::default()).unwrap().module
}

#[test]
fn markdown_shows_signatures_and_comments() {
    let text = super::markdown(&module());
    for part in [
        "# adder\n",
        "## Interface adder\n\nAdds.\n",
        "[idempotent] long add(\n    [in] long a,\n    [in, size_is(a)] short *b);",
        "The <sum> of both.",
        "case 1: long x;\n    default: ;",
        "- `const long LIMIT = 4;`: How many.",
    ] {
        assert!(text.contains(part), "{part}\n---\n{text}");
    }
}

#[test]
fn html_is_escaped() {
    let text = super::html(&module());
    assert!(text.contains("The &lt;sum&gt; of both."), "{text}");
    assert!(text.ends_with("</html>\n"));
}
