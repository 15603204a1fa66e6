//! Sizes and offsets on the wire: `docs/reference/idl-wire.md` as pure functions over the model.
//!
//! Not the memory layout of any target language. All sizes and alignments are bytes. The
//! functions are total for models the front end has accepted; on an impossible model (a type that
//! contains itself in place) they return 0 rather than recurse for ever. However often a type is
//! named inside another, a question is asked of it once (`Known`).

mod bound;
mod in_place;
mod known;

pub use bound::{reply_size_max, request_size_max};
pub use in_place::{
    BlockLayout, InPlace, OBJECT_ALIGN, Padding, Slot, StructLayout, in_place, is_fixed, is_flat,
    is_header, is_varying, kind, reply_is_fixed, reply_layout, request_is_fixed, request_layout,
    round_up, scalar_size, strip, struct_layout,
};
pub(crate) use known::Known;

#[cfg(test)]
mod tests;
