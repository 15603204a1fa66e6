//! What can be wrong with a message, seen from either end.
//!
//! What decoders and encoders return on every step is made of whole words: a smaller field would
//! share a word with the value returned otherwise, and the compiler takes that value apart and
//! stores it piecemeal, which costs a failed store forwarding where it is used.

/// Why received bytes are not a message of the interface, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{cause} at byte {offset} of the body")]
pub struct DecodeError {
    /// What is wrong.
    pub cause: Cause,
    /// Bytes from the beginning of the body.
    pub offset: usize,
}

impl DecodeError {
    /// `cause` at `offset` bytes.
    #[inline]
    #[must_use]
    pub fn new(cause: Cause, offset: usize) -> Self {
        Self { cause, offset }
    }
}

/// Ways in which a message can break the rules of `docs/reference/idl-wire.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[repr(usize)]
pub enum Cause {
    /// The body ends before the object does.
    #[error("the body ends too early")]
    Short,
    /// Bytes after the last object.
    #[error("bytes are left over")]
    Trailing,
    /// Padding that is not zero.
    #[error("padding is not zero")]
    Padding,
    /// A boolean other than 0 and 1.
    #[error("not a boolean")]
    Bool,
    /// Not a member of the enumeration.
    #[error("not a member of the enumeration")]
    Enum,
    /// No arm of the union has this discriminant, or it contradicts `switch_is`.
    #[error("wrong discriminant")]
    Discriminant,
    /// A count that contradicts `size_is`, `length_is` or `first_is`, or exceeds the bound.
    #[error("wrong count")]
    Count,
    /// Outside `range`.
    #[error("outside the range")]
    Range,
    /// A form that does not exist or that the type does not allow.
    #[error("wrong form")]
    Form,
    /// Null or presence word wrong.
    #[error("wrong pointer word")]
    Pointer,
    /// A string that is not terminated where its length says.
    #[error("string not terminated at its length")]
    Terminator,
    /// More than 32 levels.
    #[error("nested too deep")]
    Depth,
    /// A string item or grant is missing, left over, or of another length.
    #[error("wrong string items")]
    Item,
    /// A descriptor is missing or left over.
    #[error("wrong descriptors")]
    Descriptor,
    /// Number of a `ptr` object out of sequence or of another type.
    #[error("wrong object number")]
    Number,
    /// Objects that refer to themselves.
    #[error("cyclic objects")]
    Cycle,
    /// A context handle that is not of this client, or stale.
    #[error("stale or foreign context handle")]
    Handle,
    /// A hand-written conversion refused the value.
    #[error("refused by the conversion")]
    Converted,
    /// Body and string items are more than the operation's `max_message`.
    #[error("larger than the operation takes")]
    TooLarge,
}

/// Why arguments cannot be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[repr(usize)]
pub enum EncodeError {
    /// More elements than the counter's type or the wire can say.
    #[error("an array is too long")]
    TooLong,
    /// Lengths or tags that contradict `size_is`, `length_is`, `switch_is` or a bound.
    #[error("lengths or tags of the arguments contradict each other")]
    Mismatch,
    /// Outside `range`.
    #[error("an argument is outside its range")]
    Range,
    /// More than 32 levels.
    #[error("nested too deep")]
    Depth,
    /// More than 16 descriptors.
    #[error("too many descriptors")]
    Descriptors,
    /// A zero inside a wide string.
    #[error("a string contains a zero")]
    Zero,
    /// What a hand-written conversion gives cannot travel (descriptors, shared objects).
    #[error("the converted value cannot travel")]
    Converted,
    /// The body is smaller than its contents: values changed between measuring and writing.
    #[error("the body is too small")]
    Overflow,
    /// Body and string items are more than the operation's `max_message`;
    /// [`super::CallError::TooLarge`] to the caller.
    #[error("larger than the operation takes")]
    TooLarge,
}

/// A reply that is no result: a code from `docs/reference/idl-wire.md` or the user's own (0x1000
/// and above).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[error("fault {0:#x}")]
pub struct Fault(pub u32);

impl Fault {
    /// No such operation number.
    pub const UNKNOWN_OPERATION: Self = Self(1);
    /// Binding refused.
    pub const UNKNOWN_INTERFACE: Self = Self(2);
    /// A violation, with `on_violation(fault)`.
    pub const BAD_MESSAGE: Self = Self(3);
    /// Context handle not of this client, or stale.
    pub const BAD_CONTEXT: Self = Self(4);
    /// Out of memory or descriptors.
    pub const NO_RESOURCES: Self = Self(5);
    /// The server let go of the call without an answer.
    pub const DROPPED: Self = Self(6);
    /// The reply is larger than the client accepts.
    pub const TOO_LARGE: Self = Self(7);
    /// The first code that is the user's own.
    pub const FIRST_OWN: u32 = 0x1000;
}
