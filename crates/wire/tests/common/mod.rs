//! The shared code of this crate's tests.
#![allow(dead_code, reason = "each test uses a part")]

pub(crate) mod captures;
pub(crate) mod values;
