//! Interfaces in which everything is called like something else: every word below in every position
//! of the language. Shared by the tests of both back ends; reads and writes no files.

use std::collections::HashSet;

use sojourn_idl::source::MemoryLoader;
use sojourn_idl::{Compilation, Options, compile};

/// Keywords of both languages and of C++, what compilers define, names of the preludes.
const WORDS: &str = "
    abstract as async await become box break const continue crate do dyn else enum extern false final
    fn for gen if impl in let loop macro match mod move mut override priv pub ref return self Self static
    struct super trait true try type typeof union unsafe unsized use virtual where while yield raw safe
    macro_rules auto default dyn_ r#type
    bool char str i8 i16 i32 i64 i128 isize u8 u16 u32 u64 u128 usize f16 f32 f64 core std alloc rt
    sojourn_ipc generated test tests
    result Result option Option vec Vec Box string String some Some none None ok Ok err Err clone Clone
    copy Copy debug Debug default Default drop Drop eq Eq ord Ord partial_eq PartialEq hash Hash
    into Into from From try_into try_from TryFrom as_ref as_mut AsRef into_iter IntoIterator iterator
    Iterator extend Extend fn_once FnOnce fn_mut send Send sync Sync sized Sized unpin Unpin to_owned
    ToOwned to_string ToString future Future into_future size_of align_of drop_ borrow type_id fmt error
    Error s S t T u U e E a A v x arc Arc cow Cow caller reply ret tag value null
    alignas alignof and and_eq asm atomic bitand bitor case catch class compl concept consteval
    constexpr constinit const_cast co_await co_return co_yield decltype delete double dynamic_cast
    explicit export float friend goto inline int long mutable namespace new noexcept not not_eq nullptr
    operator or or_eq private protected public register reinterpret_cast requires restrict short signed
    sizeof static_assert static_cast switch template this thread_local throw typedef typeid typename
    unsigned using void volatile wchar_t char8_t char16_t char32_t xor xor_eq typeof_unqual
    _Bool _Atomic _Complex _Generic _Noreturn _Static_assert _Thread_local _Alignas _BitInt __inline
    __attribute__ __typeof__ __func__ __asm__ __restrict __thread __int128 __extension__
    unix linux i386 __unix__ __linux__ __GNUC__ __x86_64__ _LP64 __cplusplus __STDC__ __FILE__ __LINE__
    NULL EOF errno stdin stdout stderr assert INT_MAX INT_MIN SIZE_MAX CHAR_BIT PATH_MAX BUFSIZ EINVAL
    ENOENT signal major minor makedev environ offsetof sigmask st_mtime sa_handler si_pid h_addr
    int8_t int32_t uint32_t size_t ssize_t off_t pid_t time_t FILE uintptr_t intptr_t ptrdiff_t
    memcpy memset strlen strcmp malloc free abort exit printf read write open close pipe link access
    index random time clock select div div_t abs main pause sleep kill remove rename
    bind bind_by unbind serve server client dispatch handle interface options id HASH service local
    connection transport deadline with_deadline into_inner operations connected notified gone base
    client_connected client_gone client_notified run_down later call object context rundown stub status
    sj_c sj_v sj_e sj_status sj_stub sj_server sj_put_fd SJ_OK sj_connect zero fd ptr elements array
    string interface_ref body limit arena in out op size threshold number kind scratch pos
    request args reply_ put get place measure follow slots forms random_in drive oracle
    x_ x__ _x __ _ a1 a_1 a__1 B2B b2b
    f F foo_bar fooBar FooBar FOO_BAR foo_Bar foobar Foobar get_a put_a ab a_b AB
    min max null_ IDL_HASH k_id K_ID slots_a connect_options k_client kClient k_server k_bind
    k_f_out KFOut k_options k_f k_f_reply k_f_stub k_HASH k_wire
";

/// Words that [`few`] leaves in.
const ALWAYS: &str = "self Self call later caller reply ret result option vec box clone into sized t i32 \
    bind serve server client dispatch f F foo_bar fooBar linux unix try_into value yield type class \
    errno NULL EOF INT_MAX assert signal major sj_c sj_e sj memcpy int32_t size_t handle run_down \
    connect_options";

/// One file: its interfaces are compiled for every target.
pub(crate) struct Sample {
    /// Of the file, without an ending.
    pub(crate) name: String,
    pub(crate) idl: String,
    pub(crate) acf: String,
}

impl Sample {
    /// The resolved model. The samples hold nothing that is refused.
    pub(crate) fn compile(&self) -> Result<Compilation, String> {
        let (idl, acf) = (format!("{}.idl", self.name), format!("{}.acf", self.name));
        let loader = MemoryLoader::new().with(&idl, &self.idl).with(&acf, &self.acf);
        let acf = (!self.acf.is_empty()).then_some(acf.as_str());
        compile(&idl, acf, &loader, &Options::default()).map_err(|failure| failure.to_string())
    }
}

/// The words that `make` makes a file of which the compiler accepts. Others have their diagnostic.
fn accepted(make: &dyn Fn(&str) -> String) -> Vec<&'static str> {
    let mut seen = HashSet::new();
    WORDS
        .split_whitespace()
        .filter(|word| seen.insert(*word))
        .filter(|word| {
            let idl = make(word);
            Sample { name: "one".to_owned(), idl, acf: String::new() }.compile().is_ok()
        })
        .collect()
}

/// A file with `head`, what `item` makes of each word and its number, and `tail`.
fn all(name: &str, head: &str, item: &dyn Fn(usize, &str) -> String, tail: &str) -> Sample {
    let words = accepted(&|word| format!("{head}{}{tail}", item(0, word)));
    let items: String = words.iter().enumerate().map(|(i, word)| item(i, word)).collect();
    Sample { name: name.to_owned(), idl: format!("{head}{items}{tail}"), acf: String::new() }
}

/// As [`all`], with a part of the words: for positions that cost much text each.
fn few(name: &str, head: &str, item: &dyn Fn(usize, &str) -> String, tail: &str) -> Sample {
    let words = part(&accepted(&|word| format!("{head}{}{tail}", item(0, word))));
    let items: String = words.iter().enumerate().map(|(i, word)| item(i, word)).collect();
    Sample { name: name.to_owned(), idl: format!("{head}{items}{tail}"), acf: String::new() }
}

fn part(words: &[&'static str]) -> Vec<&'static str> {
    let always: HashSet<&str> = ALWAYS.split_whitespace().collect();
    let kept = words.iter().enumerate().filter(|(i, w)| i % 11 == 0 || always.contains(*w));
    kept.map(|(_, word)| *word).collect()
}

/// Types of one kind, and an interface whose operations take and give all of them.
fn types(name: &str, define: &dyn Fn(&str) -> String) -> Sample {
    let words =
        accepted(&|word| format!("{} interface k {{ void f([in] {word} *a); }}", define(word)));
    let words = if name == "name_structs" { words } else { part(&words) };
    let mut idl: String = words.iter().map(|word| define(word)).collect();
    idl.push_str("interface k {\n");
    for (i, few) in words.chunks(8).enumerate() {
        let params: Vec<String> =
            few.iter().enumerate().map(|(j, word)| format!("[in, out] {word} *p{j}")).collect();
        idl.push_str(&format!("void f{i}({});\n", params.join(", ")));
    }
    idl.push_str("}\n");
    Sample { name: name.to_owned(), idl, acf: String::new() }
}

/// Types as they lie in memory, with others behind pointers, by alias, without a shape of their
/// own.
fn type_samples() -> Vec<Sample> {
    let mut samples = vec![
        types("name_structs", &|w| format!("typedef struct {{ long n; hyper h; }} {w};\n")),
        // Tags are types of that name.
        types("name_tags", &|w| format!("struct {w} {{ long n; }}; typedef struct {w} {w};\n")),
        types("name_deep_structs", &|w| {
            format!(
                "typedef struct {{ [unique] long *p; long n; [size_is(n)] short *a; [string] char *s; }} {w};\n"
            )
        }),
        types("name_aliases", &|w| format!("typedef hyper {w};\n")),
        types("name_switched", &|w| {
            format!(
                "typedef union switch (long which) u {{ case 1: long n; case 2: hyper h; default: ; }} {w};\n"
            )
        }),
    ];
    samples.push(few(
        "name_enums",
        "",
        &|i, w| format!("typedef enum {{ FIRST_OF_{i}, OTHER_OF_{i} = 7 }} {w};\n"),
        "interface k { void f([in] long a); }\n",
    ));
    samples.push(few(
        "name_handles",
        "",
        &|i, w| {
            format!(
                "typedef [context_handle] void *{w};\n\
                 interface k{i} {{ {w} make([in] long a); void swap([in, out] {w} *h); void use([in] {w} h); }}\n"
            )
        },
        "",
    ));
    samples
}

/// Every sample.
pub(crate) fn samples() -> Vec<Sample> {
    let mut samples = type_samples();
    samples.extend(interface_samples());
    samples.extend(sibling_samples());
    samples.extend(constant_samples());
    samples.push(itself());
    samples.push(meetings());
    samples
}

/// Operations and interfaces.
fn interface_samples() -> Vec<Sample> {
    let mut deferred = few(
        "name_deferred",
        "interface k {\n",
        &|_, w| format!("long {w}([in] long a, [in, out] hyper *b);\n"),
        "}\n",
    );
    deferred.acf = deferred_acf(&deferred.idl);
    vec![
        few(
            "name_operations",
            "interface k {\n",
            &|_, w| format!("long {w}([in] long a);\n"),
            "}\n",
        ),
        deferred,
        few(
            "name_interfaces",
            "",
            &|_, w| format!("interface {w} {{ void f([in] long a); }}\n"),
            "",
        ),
        few(
            "name_heirs",
            "interface base_of_all { void f([in] long a); void g([in] long a); }\n",
            &|_, w| format!("interface {w} : base_of_all {{ void h([in] long a); }}\n"),
            "",
        ),
    ]
}

/// Parameters, fields and arms.
fn sibling_samples() -> Vec<Sample> {
    vec![
        few(
            "name_parameters",
            "interface k {\n",
            &|i, w| {
                format!(
                    "long a{i}([in] long {w}, [in] long second, [in, size_is({w})] short *third);\n"
                )
            },
            "}\n",
        ),
        few(
            "name_values",
            "typedef struct { [unique] long *p; } s_t; typedef [context_handle] void *h_t;\ninterface k {\n",
            &|i, w| {
                format!(
                    "h_t b{i}([out] long *{w}, [in, out] s_t *second);\n\
                 long d{i}([in] long n, [in, size_is(n + 1)] short *{w}, [in, out, string] char second[9]);\n\
                 long e{i}([in, string] char *{w}, [in] h_t second, [in, out] h_t *third);\n"
                )
            },
            "}\n",
        ),
        few(
            "name_fields",
            "",
            &|i, w| {
                format!(
                    "typedef struct {{ long {w}; hyper second; }} plain{i};\n\
                 typedef struct {{ long {w}; [size_is({w})] short *second; }} sized{i};\n"
                )
            },
            "interface k { void f([in] plain0 *a, [in, out] sized0 *b); }\n",
        ),
        few(
            "name_arms",
            "",
            &|i, w| {
                format!(
                    "typedef union switch (long {w}) other {{ case 1: long n; }} tagged{i};\n\
                 typedef union switch (long other) {w} {{ case 1: long n; case 2: ; }} held{i};\n\
                 typedef union switch (long a) b {{ case 1: long {w}; case 2: case 3: hyper h; }} armed{i};\n\
                 typedef [switch_type(long)] union {{ [case(1)] long {w}; [case(2)] hyper h; }} bare{i};\n"
                )
            },
            "interface k { void f([in] tagged0 *a, [in, out] held0 *b, [in] long n, [in, switch_is(n)] bare0 *c); }\n",
        ),
    ]
}

/// Constants and members of enumerations.
fn constant_samples() -> Vec<Sample> {
    vec![
        all(
            "name_constants",
            "",
            &|i, w| format!("const long {w} = {i};\n"),
            "interface k { void f([in] long a, [in, size_is(a)] short *b, [out, string] char **c); }\n",
        ),
        all(
            "name_members",
            "typedef enum { FIRST_OF_ALL = -1,\n",
            &|i, w| format!("{w} = {i},\n"),
            "LAST_OF_ALL = 5000 } e_t;\ninterface k { void f([in] e_t a); }\n",
        ),
        few(
            "name_second_members",
            "typedef enum { FIRST_OF_ALL = 1,\n",
            &|_, w| format!("{w} = 1,\n"),
            "LAST_OF_ALL = 5000 } e_t;\ninterface k { void f([in] e_t a); }\n",
        ),
    ]
}

/// Every operation, whose declaration begins a line, put off.
fn deferred_acf(idl: &str) -> String {
    let names = idl.lines().filter_map(|l| l.strip_prefix("long ")?.split_once('('));
    let items: String = names.map(|(name, _)| format!("[deferred] {name}();\n")).collect();
    format!("[inproc(by_ref)] interface k {{\n{items}}}\n")
}

/// Members and parameters called as their types.
fn itself() -> Sample {
    let idl = "typedef struct { long x; } point; typedef enum { RED } color; typedef hyper number;\n\
        typedef [switch_type(color)] union { [case(RED)] long n; } paint;\n\
        typedef struct { point point; [unique] point *more; } line;\n\
        typedef struct { color color; number number; number second; point p; color c; } dot;\n\
        typedef struct { color color; [switch_is(color)] paint paint; color other; } wall;\n\
        typedef union switch (color color) paint_ { case RED: point point; default: dot color_; } pick;\n\
        interface k {\n\
        void a([in] point point, [in] color color, [in] number number, [out] point *other, [out] number *n);\n\
        void b([in, out] line *line, [in] pick *pick, [in, out] wall *wall, [in] line *last);\n\
        void point_([in] point p); void color([in] color c); point number([in] number n);\n}\n";
    Sample { name: "name_itself".to_owned(), idl: idl.to_owned(), acf: String::new() }
}

/// Names that are put together meet names that are given.
fn meetings() -> Sample {
    let idl = "typedef struct { long x; } a_client; typedef struct { long x; } a_b_out; typedef long a_local;\n\
        typedef struct { long x; } a_b_request; typedef struct { long x; } a_b_reply;\n\
        typedef struct { long x; } AClient; typedef enum { a_bind, a_b_c, a_b_d_reply } a_service;\n\
        typedef struct { long x; } fd; typedef struct { [unique] long *p; } interface_; typedef enum { z } zero;\n\
        typedef struct { [unique] fd *p; } more_fd; typedef struct { [string] char *s; } arm_fd;\n\
        typedef struct { long x; } BDeferredReply; typedef struct { long x; } AServer;\n\
        const long a_ID = 1; const long A_ID = 2; const long idl_hash = 3; const long a_HASH = 4;\n\
        const long a_id = 5; const long ab_room = 6; const long stub = 7; const long self = 8;\n\
        interface a { long b([in] a_client *x, [out] a_b_out *y, [out] AClient *z);\n\
            long b_c([in] long x, [out] long *y); void b_d([in] fd *x, [in, out] more_fd *y, [in, out] arm_fd *w);\n\
            void rundown([in] long x); void put([in] zero x, [in] a_b_request *y, [in] a_b_reply *z); }\n\
        interface a_b { long c([in] long x, [out] long *y); long d([in] long x, [out] long *y); }\n\
        interface A_B { long c([in] long x, [out] long *y); void d([in] AServer *x); }\n\
        interface service { void handle([in] long x); void outcome([in] long x); void init([in] long x); }\n\
        interface check { void a_run([in] long x); void a([in] long x); }\n\
        interface sj { void connect([in] long x); void stub([in] long x); }\n\
        interface sj_x { void add([in] long x); }\n\
        interface pthread { void create([in] long x); void join([in] long x); }\n\
        interface heir : a_b { void fooBar([in] long x); void more([in] long x); void C([in] long x); }\n\
        interface heir2 : heir { void foo_bar([in] long x); }\n";
    Sample { name: "name_meetings".to_owned(), idl: idl.to_owned(), acf: String::new() }
}
