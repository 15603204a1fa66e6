//! `SJ00`: files and tokens.

use super::explanation::{Explanation, Sample, idl};
use crate::diag::codes;

fn not_utf8() -> Vec<u8> {
    b"const long A = 1; // \xE9t\xE9\n".to_vec()
}

fn utf8() -> Vec<u8> {
    "const long A = 1; // été\n".as_bytes().to_vec()
}

fn too_large() -> Vec<u8> {
    vec![b'\n'; crate::source::FILE_SIZE_MAX + 1]
}

fn large() -> Vec<u8> {
    vec![b'\n'; 4096]
}

pub(super) const ENTRIES: &[Explanation] = &[
    Explanation {
        code: codes::FILE_NOT_READ,
        title: "a file cannot be read",
        text: "A file named on the command line, or by a build script, does not exist or may not be read. The message of the system follows. Relative paths count from the current folder.",
        bad: Sample::Missing,
        good: Sample::Idl("const long A = 1;"),
    },
    Explanation {
        code: codes::FILE_TOO_LARGE,
        title: "a file is too large",
        text: "Source files are at most 16 MiB long. Divide the file, and import the parts where they are needed; a file of that size has usually been named by mistake.",
        bad: Sample::Made(too_large, "more than 16 MiB"),
        good: Sample::Made(large, "less than 16 MiB"),
    },
    Explanation {
        code: codes::NOT_UTF8,
        title: "a file is not UTF-8",
        text: "Source files are UTF-8, with or without byte order mark. Outside comments and strings only ASCII occurs, so this is mostly a comment written with another encoding: save the file as UTF-8.",
        bad: Sample::Made(not_utf8, "a comment in ISO 8859-1"),
        good: Sample::Made(utf8, "the same in UTF-8"),
    },
    idl(
        codes::IMPORT_NOT_FOUND,
        "an imported file cannot be read",
        "Imported files are looked for beside the file that imports them, then in the folders given with -I, in order. COM's own files (unknwn.idl, oaidl.idl, objidl.idl, wtypes.idl, basetsd.idl) need not exist: what they declare is built in as far as it exists here.",
        "import \"nowhere.idl\";",
        "import \"unknwn.idl\";",
    ),
    idl(
        codes::IGNORED,
        "something is accepted without effect",
        "Attributes and statements that concern type libraries, Automation or DCE's binding are accepted, so that existing files compile, but mean nothing here. This is a note; nothing needs to be done. Taking them out makes the note go away.",
        "[hidden] interface i { void f([in] long a); }",
        "interface i { void f([in] long a); }",
    ),
    idl(
        codes::UNKNOWN_CHARACTER,
        "a character means nothing",
        "Outside comments and strings, IDL consists of ASCII letters, digits, underscores and the operators of C. Typographic quotation marks and non-breaking spaces that a word processor has put in are the usual cause.",
        "const long A = 1 §;",
        "const long A = 1;",
    ),
    idl(
        codes::UNTERMINATED_COMMENT,
        "a comment has no end",
        "A comment that begins with /* ends with the first */ after it, and the file ends before there is one. Comments do not nest.",
        "const long A = 1; /* the first",
        "const long A = 1; /* the first */",
    ),
    idl(
        codes::UNTERMINATED_STRING,
        "a string or character has no end",
        "Strings and character constants end on the line on which they begin. Long strings may be written as several strings, one after the other; they are joined.",
        "const char *A = \"one\n;",
        "const char *A = \"one\" \"two\";",
    ),
    idl(
        codes::BAD_CHARACTER,
        "not exactly one character between apostrophes",
        "A character constant holds one character. That of `char` is one byte, so letters outside ASCII need the wide form L'...', whose values have 16 bits. Texts are written with quotation marks.",
        "const char A = 'ab';",
        "const char A = 'a';",
    ),
    idl(
        codes::BAD_ESCAPE,
        "an unknown escape sequence",
        "Known are those of C: \\n \\t \\r \\a \\b \\f \\v \\\\ \\\" \\' \\? , octal ones of up to three digits, and \\x with up to four hexadecimal digits. The value must fit into the character: at most \\xff without L.",
        "const char *A = \"100\\%\";",
        "const char *A = \"100%\";",
    ),
    idl(
        codes::BAD_NUMBER,
        "not a number",
        "Numbers are decimal, hexadecimal with 0x, or octal with a leading 0 (so 08 is none), with u and l as suffixes. Integers have at most 64 bits.",
        "const long A = 08;",
        "const long A = 8;",
    ),
    idl(
        codes::PREPROCESSOR,
        "a line of the preprocessor cannot be followed",
        "IDL files have conditions (#if, #ifdef, #ifndef, #elif, #else, #endif), macros with and without parameters (#define, #undef), #include and #error; #pragma is ignored. Each imported file begins with no macros but __midl and __WIDL__. In ACFs, and in files that are to be formatted, there is no preprocessor.",
        "#ifdef SIZE\nconst long A = 1;",
        "#define SIZE 20\n#ifdef SIZE\nconst long A = SIZE;\n#endif",
    ),
];
