//! The words of the language: reserved words, attributes and the form of their arguments.

/// What an attribute takes between parentheses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// Nothing.
    Flag,
    /// Expressions, holes allowed: `size_is(, n)`.
    Sizes,
    /// So many expressions.
    Exprs(usize),
    /// One or more expressions.
    Cases,
    /// `uuid(...)`
    Uuid,
    /// `version(1.0)`
    Version,
    /// A type: `switch_type(long)`.
    Type,
    /// One word.
    Word,
    /// Strings.
    Strings,
    /// Whatever there is, without effect.
    Anything,
}

/// What becomes of an attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It has a meaning at the places that are named with letters: `L`ibrary, `I`nterface,
    /// `T`ypedef, `O`peration, `P`arameter, `F`ield, `A`rm of a union, `E`num member.
    At(&'static str),
    /// Accepted without effect, for the reason given.
    Harmless(&'static str),
    /// Refused: another way out is given.
    Refused(&'static str),
}

/// An attribute of the language.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attribute {
    pub(crate) name: &'static str,
    pub(crate) form: Form,
    pub(crate) fate: Fate,
}

const fn at(name: &'static str, form: Form, places: &'static str) -> Attribute {
    Attribute { name, form, fate: Fate::At(places) }
}

const fn harmless(name: &'static str, why: &'static str) -> Attribute {
    Attribute { name, form: Form::Anything, fate: Fate::Harmless(why) }
}

const fn refused(name: &'static str, way_out: &'static str) -> Attribute {
    Attribute { name, form: Form::Anything, fate: Fate::Refused(way_out) }
}

const ONLY_AUTOMATION: &str = "it concerns type libraries only";
const ONLY_WINDOWS_RUNTIME: &str = "it concerns classes of the Windows Runtime only";
const ONLY_DCE_BINDING: &str = "an endpoint is chosen when client and server are started";
const ALWAYS_SO: &str = "it is always so here";

/// Every attribute that is known, in alphabetical order within its group.
pub(crate) const ATTRIBUTES: &[Attribute] = &[
    at("case", Form::Cases, "A"),
    at("context_handle", Form::Flag, "TPO"),
    at("default", Form::Flag, "A"),
    at("eventadd", Form::Flag, "O"),
    at("eventremove", Form::Flag, "O"),
    at("first_is", Form::Sizes, "PF"),
    at("helpstring", Form::Strings, "LITOPFAE"),
    at("idempotent", Form::Flag, "O"),
    at("ignore", Form::Flag, "F"),
    at("iid_is", Form::Word, "PF"),
    at("in", Form::Flag, "P"),
    at("last_is", Form::Sizes, "PF"),
    at("length_is", Form::Sizes, "PF"),
    at("local", Form::Flag, "IO"),
    at("max_is", Form::Sizes, "PF"),
    at("maybe", Form::Flag, "O"),
    at("min_is", Form::Sizes, "PF"),
    at("object", Form::Flag, "I"),
    at("oneway", Form::Flag, "O"),
    at("opaque", Form::Exprs(2), "T"),
    at("out", Form::Flag, "P"),
    at("pointer_default", Form::Word, "I"),
    at("propget", Form::Flag, "O"),
    at("propput", Form::Flag, "O"),
    at("propputref", Form::Flag, "O"),
    at("ptr", Form::Flag, "TPFO"),
    at("range", Form::Exprs(2), "PF"),
    at("ref", Form::Flag, "TPF"),
    at("retval", Form::Flag, "P"),
    at("size_is", Form::Sizes, "PF"),
    at("string", Form::Flag, "TPFO"),
    at("switch_is", Form::Exprs(1), "PF"),
    at("switch_type", Form::Type, "TF"),
    at("unique", Form::Flag, "TPFO"),
    at("user_marshal", Form::Type, "T"),
    at("uuid", Form::Uuid, "LIT"),
    at("v1_enum", Form::Flag, "T"),
    at("version", Form::Version, "LI"),
    at("wire_marshal", Form::Type, "T"),
    harmless("activatable", ONLY_WINDOWS_RUNTIME),
    harmless("aggregatable", ONLY_AUTOMATION),
    harmless("annotation", "it has no counterpart on the wire"),
    harmless("async_uuid", "every operation may be answered later: see `deferred` in the ACF"),
    harmless("bindable", ONLY_AUTOMATION),
    harmless("broadcast", "a connection has one server; it counts as idempotent"),
    harmless("call_as", "write the remote form only"),
    harmless("contract", ONLY_WINDOWS_RUNTIME),
    harmless("contractversion", ONLY_WINDOWS_RUNTIME),
    harmless("control", ONLY_AUTOMATION),
    harmless("custom", ONLY_AUTOMATION),
    harmless("defaultvalue", ONLY_AUTOMATION),
    harmless("defaultvtable", ONLY_AUTOMATION),
    harmless("displaybind", ONLY_AUTOMATION),
    harmless("dllname", ONLY_AUTOMATION),
    harmless("dual", ONLY_AUTOMATION),
    harmless("endpoint", ONLY_DCE_BINDING),
    harmless("entry", ONLY_AUTOMATION),
    harmless("exclusiveto", ONLY_WINDOWS_RUNTIME),
    harmless("flags", ONLY_WINDOWS_RUNTIME),
    harmless("helpcontext", ONLY_AUTOMATION),
    harmless("helpfile", ONLY_AUTOMATION),
    harmless("hidden", ONLY_AUTOMATION),
    harmless("id", ONLY_AUTOMATION),
    harmless("lcid", ONLY_AUTOMATION),
    harmless("licensed", ONLY_AUTOMATION),
    harmless("marshaling_behavior", ONLY_WINDOWS_RUNTIME),
    harmless("nonbrowsable", ONLY_AUTOMATION),
    harmless("noncreatable", ONLY_AUTOMATION),
    harmless("nonextensible", ONLY_AUTOMATION),
    harmless("odl", ONLY_AUTOMATION),
    harmless("oleautomation", ONLY_AUTOMATION),
    harmless("optional", ONLY_AUTOMATION),
    harmless("overload", ONLY_WINDOWS_RUNTIME),
    harmless("progid", ONLY_AUTOMATION),
    harmless("public", ONLY_AUTOMATION),
    harmless("readonly", ONLY_AUTOMATION),
    harmless("restricted", ONLY_AUTOMATION),
    harmless("source", ONLY_AUTOMATION),
    harmless("static", ONLY_WINDOWS_RUNTIME),
    harmless("strict_context_handle", ALWAYS_SO),
    harmless("threading", ONLY_AUTOMATION),
    harmless("type_strict_context_handle", ALWAYS_SO),
    harmless("unimplemented", "leave it out of the server"),
    harmless("vararg", ONLY_AUTOMATION),
    harmless("vi_progid", ONLY_AUTOMATION),
    refused("byte_count", "use size_is: sizes are counted in elements"),
    refused(
        "callback",
        "let the server hand out work in replies, or give the client an interface of its own and pass a reference to it",
    ),
    refused("cs_char", "convert in your code, or with represent_as in the ACF"),
    refused(
        "handle",
        "the binding is the client object itself: leave the handle out, or pass a `descriptor`",
    ),
    refused("partial_ignore", "send the pointer's target in a parameter of its own"),
    refused("pipe", "use an array with size_is, or pass one end of a pipe as `descriptor`"),
    refused("transmit_as", "use represent_as or user_marshal in the ACF"),
];

/// Words that begin or name built-in constructs; with those of C that no C compiler would take as
/// a name.
const KEYWORDS: &[&str] = &[
    "boolean",
    "byte",
    "char",
    "const",
    "double",
    "enum",
    "float",
    "handle_t",
    "hyper",
    "int",
    "interface",
    "long",
    "short",
    "signed",
    "small",
    "struct",
    "switch",
    "typedef",
    "union",
    "unsigned",
    "void",
    "wchar_t",
];

/// Words of C that are not IDL's.
const SOFT: &[&str] = &[
    "auto",
    "break",
    "case",
    "continue",
    "default",
    "do",
    "else",
    "extern",
    "for",
    "goto",
    "if",
    "inline",
    "register",
    "restrict",
    "return",
    "sizeof",
    "static",
    "volatile",
    "while",
    "_Bool",
    "_Alignas",
    "_Alignof",
    "_Atomic",
    "_Generic",
    "_Noreturn",
    "_Static_assert",
    "_Thread_local",
];

/// Returns true if `word` cannot be a name.
pub(crate) fn is_keyword(word: &str) -> bool {
    KEYWORDS.contains(&word) || is_soft(word)
}

/// Returns true if `word` is reserved for the sake of C output only, so that reading can go on.
pub(crate) fn is_soft(word: &str) -> bool {
    SOFT.contains(&word)
}
