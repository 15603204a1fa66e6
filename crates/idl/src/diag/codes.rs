//! Every code a diagnostic can have. A number is never given to something else.
//!
//! `SJ00` files and tokens, `SJ01` grammar, `SJ02` names and constants, `SJ03` types, `SJ04`
//! attributes, `SJ05` operations and interfaces, `SJ06` the ACF, `SJ07` compatibility.

use std::fmt;

/// The stable code of a diagnostic, shown as `SJ0103`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Code(pub u16);

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SJ{:04}", self.0)
    }
}

impl Code {
    /// The code that is written `text` (`SJ0103`, `sj103`, `103`), if there is such a one.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.trim_start_matches(['S', 's', 'J', 'j']);
        let code = Self(digits.parse().ok()?);
        ALL.contains(&code).then_some(code)
    }
}

macro_rules! codes {
    ($($name:ident = $number:literal;)*) => {
        $(
            #[allow(missing_docs, reason = "the catalogue explains each")]
            pub const $name: Code = Code($number);
        )*
        /// All codes in order of their numbers.
        pub const ALL: &[Code] = &[$($name),*];
    };
}

codes! {
    FILE_NOT_READ = 1;
    FILE_TOO_LARGE = 2;
    NOT_UTF8 = 3;
    IMPORT_NOT_FOUND = 4;
    IGNORED = 5;
    UNKNOWN_CHARACTER = 10;
    UNTERMINATED_COMMENT = 11;
    UNTERMINATED_STRING = 12;
    BAD_CHARACTER = 13;
    BAD_ESCAPE = 14;
    BAD_NUMBER = 15;
    PREPROCESSOR = 16;

    UNEXPECTED_TOKEN = 101;
    MISSING_PUNCTUATION = 102;
    RESERVED_NAME = 103;
    TOO_DEEP = 104;
    QUALIFIER = 105;
    FOREIGN_TYPE = 106;
    TYPE_WORDS = 107;
    FUNCTION_POINTER = 108;
    BIT_FIELD = 109;
    VARIADIC = 110;
    CASE_STYLE = 111;
    MANY_BASES = 112;
    AUTOMATION = 113;

    DUPLICATE_NAME = 201;
    DUPLICATE_MEMBER = 202;
    UNKNOWN_TYPE = 203;
    UNKNOWN_VALUE = 204;
    NOT_A_TYPE = 205;
    NOT_A_VALUE = 206;
    NOT_AN_INTEGER = 207;
    OVERFLOW = 208;
    DIVISION_BY_ZERO = 209;
    CONST_TYPE = 210;
    CONST_MISMATCH = 211;
    CONST_RANGE = 212;
    TAG_KIND = 213;
    ANONYMOUS_TYPE = 214;
    INCOMPLETE_TYPE = 215;

    RECURSIVE_TYPE = 301;
    EMPTY_ENUM = 302;
    ENUM_RANGE = 303;
    ARRAY_SIZE = 304;
    LOWER_BOUND = 305;
    UNSIZED_ARRAY = 306;
    STRING_ELEMENT = 307;
    VOID = 308;
    INTERFACE_BY_VALUE = 309;
    OPAQUE_SIZE = 310;
    DECLARATOR = 311;
    CONTEXT_FORM = 312;
    CONTEXT_PLACE = 313;
    NO_SWITCH_TYPE = 314;
    SWITCH_TYPE = 315;
    NO_SWITCH_IS = 316;
    SWITCH_IS_PLACE = 317;
    EMPTY_UNION = 318;
    ARM_WITHOUT_CASE = 319;
    DUPLICATE_CASE = 320;
    CASE_RANGE = 321;
    TOO_LARGE = 322;
    HANDLE_PLACE = 323;

    UNKNOWN_ATTRIBUTE = 401;
    ATTRIBUTE_ARGUMENTS = 402;
    ATTRIBUTE_PLACE = 403;
    ATTRIBUTE_CONFLICT = 404;
    DUPLICATE_ATTRIBUTE = 405;
    REFUSED_ATTRIBUTE = 406;
    POINTER_CLASS = 407;
    POINTER_CLASS_PLACE = 408;
    SIZE_SLOTS = 409;
    SIBLING_TYPE = 410;
    SIBLING_DIRECTION = 411;
    RANGE = 412;
    BAD_UUID = 413;
    DUPLICATE_UUID = 414;
    BAD_VERSION = 415;
    IGNORE_PLACE = 416;
    ONE_CHARACTER = 417;

    NO_DIRECTION = 501;
    OUT_POINTER = 502;
    OUT_NULLABLE = 503;
    OUT_STRING = 504;
    ONEWAY = 505;
    RETVAL = 506;
    RESULT_TYPE = 507;
    DUPLICATE_OPERATION = 508;
    TOO_MANY_OPERATIONS = 509;
    TOO_MANY_DESCRIPTORS = 510;
    UNKNOWN_BASE = 511;
    MANY_LIBRARIES = 512;
    DECLARED_ONLY = 513;

    ACF_KEY = 601;
    ACF_ARGUMENTS = 602;
    ACF_KEY_PLACE = 603;
    ACF_CONFLICT = 604;
    ACF_TWICE = 605;
    ACF_INTERFACE = 606;
    ACF_OPERATION = 607;
    ACF_PARAM = 608;
    ACF_TYPE = 609;
    ACF_MISUSE = 610;
    ACF_ALLOCATE = 611;
    ACF_ALLOCATE_RUST = 612;

    COMPAT_DUMP = 701;
    COMPAT_INTERFACE_REMOVED = 702;
    COMPAT_UUID = 703;
    COMPAT_MAJOR = 704;
    COMPAT_MINOR = 705;
    COMPAT_OPERATION_REMOVED = 706;
    COMPAT_OPERATION_MOVED = 707;
    COMPAT_OPERATION_CHANGED = 708;
    COMPAT_TYPE_CHANGED = 709;
    COMPAT_RENAMED = 710;
}
