//! The preload library: C calls in, protocol library calls out.
