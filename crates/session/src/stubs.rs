//! The stubs of the control interface, as the build script has them generated.

include!(concat!(env!("OUT_DIR"), "/session.rs"));
