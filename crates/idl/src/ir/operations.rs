//! Interfaces, their operations and parameters, and what the configuration file says of them. Not
//! here: types and constants (`types`).

use super::declared::DeclaredOperation;
use super::types::{Doc, IntRange, InterfaceId, Ty, Uuid, Version};

/// An interface.
#[derive(Clone, Debug, PartialEq)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Its documentation.
    pub doc: Doc,
    /// Its uuid; derived from name and version where the file gives none.
    pub uuid: Uuid,
    /// Its version.
    pub version: Version,
    /// The interface it extends.
    pub base: Option<InterfaceId>,
    /// Its own operations, without those of the base.
    pub operations: Vec<Operation>,
    /// Those of its own that cannot be sent, and are not among `operations`.
    pub declared: Vec<DeclaredOperation>,
    /// `local`: no stubs, only declarations.
    pub is_local: bool,
    /// Declared in an imported file.
    pub imported: bool,
    /// What the ACF says of it.
    pub acf: LocalAttrs,
}

/// An operation.
#[derive(Clone, Debug, PartialEq)]
pub struct Operation {
    /// Its name.
    pub name: String,
    /// Its documentation.
    pub doc: Doc,
    /// Number on the wire: those of the base first, then declaration order.
    pub opnum: u16,
    /// Result; `None` for `void`.
    pub result: Option<Ty>,
    /// Parameters in order.
    pub params: Vec<Param>,
    /// `oneway`: no reply, no result, no out parameter.
    pub oneway: bool,
    /// `idempotent`: may be repeated after a failure.
    pub idempotent: bool,
    /// `local`: declared, never sent.
    pub is_local: bool,
    /// What the ACF says of it, with the interface's settings merged in.
    pub acf: LocalAttrs,
}

/// A parameter.
#[derive(Clone, Debug, PartialEq)]
pub struct Param {
    /// Its name.
    pub name: String,
    /// Its documentation.
    pub doc: Doc,
    /// `in`, `out` or both.
    pub dir: Dir,
    /// Its type with one outermost reference pointer removed, whatever the direction:
    /// `[out] long *n` is `Scalar(I32)`, `[in] struct s *p` is `Named(s)`.
    pub ty: Ty,
    /// A reference pointer was removed from `ty`, so C passes it by pointer. The pointers that
    /// arrays (`[size_is(n)] long *a`), strings (`[string] char *s`), interface references and
    /// context handles consist of do not count: `[out, string] char **s` has it (the callee
    /// provides the string), `[out, string, size_is(n)] char *s` has not (the caller's buffer).
    pub by_pointer: bool,
    /// `range(low, high)`, inclusive.
    pub range: Option<IntRange>,
    /// `retval`.
    pub retval: bool,
    /// What the ACF says of it, with the settings of its type merged in.
    pub acf: LocalAttrs,
}

impl Param {
    /// Travels with the request.
    #[must_use]
    pub fn is_in(&self) -> bool {
        self.dir != Dir::Out
    }

    /// Travels with the reply.
    #[must_use]
    pub fn is_out(&self) -> bool {
        self.dir != Dir::In
    }
}

/// Directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dir {
    /// `in`
    In,
    /// `out`
    Out,
    /// `in, out`
    InOut,
}

/// Everything an ACF can say. Absent means: as the enclosing scope, then the default.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LocalAttrs {
    /// `copy_below(n | auto)`: arrays smaller than this (bytes) are copied into the body;
    /// `reference_above(n | auto)`: larger ones go by reference (string item or grant).
    /// Both keys set the same threshold.
    pub reference_above: Option<Threshold>,
    /// `inproc(by_ref | copy)`.
    pub inproc: Option<Inproc>,
    /// `user_marshal(type, module)`: the local type and the functions that convert.
    pub user_marshal: Option<UserMarshal>,
    /// `represent_as(type)`.
    pub represent_as: Option<String>,
    /// `impl(path)`, `impl(client, path)`, `impl(server, path)`.
    pub impl_client: Option<String>,
    /// The server's.
    pub impl_server: Option<String>,
    /// `allocate(arena | pool(name) | caller | fn(name))`.
    pub allocate: Option<Allocate>,
    /// `sync(spin(us) | park | adaptive)`: of an interface how connections wait, of an operation
    /// how its calls do. Not handed on from the one to the other.
    pub sync: Option<Sync>,
    /// `timeout(ms)`.
    pub timeout_ms: Option<u64>,
    /// `max_message(bytes)`.
    pub max_message: Option<u64>,
    /// `max_inflight(n)`: of interfaces only.
    pub max_inflight: Option<u32>,
    /// `on_violation(disconnect | fault)`.
    pub on_violation: Option<OnViolation>,
    /// `comm_status`: on an operation, or on the parameter that receives it.
    pub comm_status: bool,
    /// `fault_status`: ditto.
    pub fault_status: bool,
    /// `code` / `nocode`: whether a client stub is made.
    pub code: Option<bool>,
    /// `in_line` / `out_of_line`.
    pub in_line: Option<bool>,
    /// `deferred`: the server side gets a token and may reply later.
    pub deferred: bool,
}

/// Where by reference begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Threshold {
    /// Bytes.
    Bytes(u64),
    /// Measured crossover of this machine, read from the IPC library at bind time.
    Auto,
}

/// How stubs behave when client and server share an address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inproc {
    /// Direct call, arguments by reference.
    ByRef,
    /// Marshalled all the same.
    Copy,
}

/// Hand-written conversion of a type.
#[derive(Clone, Debug, PartialEq)]
pub struct UserMarshal {
    /// Local type as the target language names it.
    pub local_type: String,
    /// Module or prefix of `to_wire` and `from_wire`.
    pub functions: String,
}

/// Who provides memory for what is unmarshalled.
#[derive(Clone, Debug, PartialEq)]
pub enum Allocate {
    /// Freed together when the call ends.
    Arena,
    /// A named pool of the user's.
    Pool(String),
    /// The caller's buffer.
    Caller,
    /// A function of the user's.
    Fn(String),
}

/// How waits are done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sync {
    /// Spin for so many microseconds at most; `None`: until the deadline.
    Spin(Option<u64>),
    /// Sleep at once.
    Park,
    /// Measured budget.
    Adaptive,
}

/// What a server does with a message that breaks the interface's rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnViolation {
    /// Disconnect the client and tell it why (default).
    Disconnect,
    /// Answer with a fault and go on.
    Fault,
}
