//! Diagnostics: what the compiler has to say about a file, independent of how it is shown.
//!
//! [`codes`] lists every code, [`catalogue`] explains each with samples, [`render()`] shows them to
//! people and [`to_json`] to editors.

pub mod catalogue;
pub mod codes;
mod diagnostic;
mod json;
mod render;
mod sink;
mod suggest;

pub use codes::Code;
pub use diagnostic::{Diagnostic, Label, Severity};
pub use json::{Location, location, to_json};
pub use render::render;
pub use sink::Sink;
pub(crate) use sink::{Held, HeldCode};
pub use suggest::{listing, nearest};
