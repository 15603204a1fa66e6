//! The language reference shows IDL that compiles.

use sojourn_idl::source::MemoryLoader;
use sojourn_idl::{Options, compile};

/// What the fragments of the reference take for granted.
const COMMON: &str = "typedef struct { long x; long y; } point_t;";

#[test]
fn samples_of_the_reference_compile() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/idl-language.md");
    let text = std::fs::read_to_string(path).unwrap();
    let mut colors = "import \"common.idl\";".to_owned();
    let mut compiled = 0;
    for block in text.split("```idl\n").skip(1).filter_map(|b| b.split("```").next()) {
        if block.contains("...") {
            continue;
        }
        let wrapped = if block.contains("interface ") {
            block.to_owned()
        } else {
            format!("{colors}\ninterface sample {{ {block} }}")
        };
        let loader = MemoryLoader::new().with("common.idl", COMMON).with("sample.idl", &wrapped);
        if let Err(failure) = compile("sample.idl", None, &loader, &Options::default()) {
            panic!("{failure}");
        }
        if block.contains("} color_t;") {
            colors.push_str("typedef enum { RED, GREEN = 5, BLUE } color_t;");
        }
        compiled += 1;
    }
    assert!(compiled >= 5, "{compiled}");
}
