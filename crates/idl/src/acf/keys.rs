//! The table of keys.

/// Places: `I`nterface, `O`peration, `T`ype, `P`arameter.
#[derive(Clone, Copy, Debug)]
pub(super) struct KeyInfo {
    pub(super) name: &'static str,
    pub(super) places: &'static str,
    /// How it is written.
    pub(super) form: &'static str,
}

const fn key(name: &'static str, places: &'static str, form: &'static str) -> KeyInfo {
    KeyInfo { name, places, form }
}

/// Every key.
pub(super) const KEYS: &[KeyInfo] = &[
    key(
        "allocate",
        "IOTP",
        "allocate(arena), allocate(pool(NAME)), allocate(caller) or allocate(fn(NAME))",
    ),
    key("code", "IO", "code"),
    key("comm_status", "OP", "comm_status"),
    key("copy_below", "IOTP", "copy_below(BYTES) or copy_below(auto)"),
    key("deferred", "O", "deferred"),
    key("fault_status", "OP", "fault_status"),
    key("impl", "O", "impl(PATH), impl(client, PATH) or impl(server, PATH)"),
    key("in_line", "IO", "in_line"),
    key("inproc", "IO", "inproc(by_ref) or inproc(copy)"),
    key("max_inflight", "I", "max_inflight(COUNT)"),
    key("max_message", "IO", "max_message(BYTES)"),
    key("nocode", "IO", "nocode"),
    key("on_violation", "IO", "on_violation(disconnect) or on_violation(fault)"),
    key("out_of_line", "IO", "out_of_line"),
    key("reference_above", "IOTP", "reference_above(BYTES) or reference_above(auto)"),
    key("represent_as", "T", "represent_as(TYPE)"),
    key("sync", "IO", "sync(spin), sync(spin(MICROSECONDS)), sync(park) or sync(adaptive)"),
    key("timeout", "IO", "timeout(MILLISECONDS)"),
    key("user_marshal", "T", "user_marshal(TYPE, FUNCTIONS)"),
];

/// Keys of DCE's ACF that have no counterpart, with the reason.
pub(super) const FOREIGN: &[(&str, &str)] = &[
    ("auto_handle", "the client object is the binding: connect it where you like"),
    ("binding_callout", "the client object is the binding: connect it where you like"),
    ("cs_tag_rtn", "convert texts with represent_as"),
    ("decode", "every stub decodes; take it out"),
    ("enable_allocate", "memory is always managed; see `allocate`"),
    ("encode", "every stub encodes; take it out"),
    ("explicit_handle", "the client object is the binding: there is one in every call"),
    ("extern_exceptions", "errors are values: see `comm_status` and `fault_status`"),
    ("heap", "use `allocate` to say where memory comes from"),
    ("implicit_handle", "the client object is the binding: keep it where you like"),
    ("notify", "the loop of the server tells when a call begins and ends"),
];

/// Returns true if `word` is a key of the ACF.
pub(crate) fn is_key(word: &str) -> bool {
    KEYS.iter().any(|k| k.name == word)
}
