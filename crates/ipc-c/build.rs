//! Gives the shared library its soname: programs built against it ask for this version of the
//! interface, `libsojourn_ipc.so.0`, and no other.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let major = std::env::var("CARGO_PKG_VERSION_MAJOR").unwrap_or_default();
    // Cargo hands link arguments for shared libraries alone to every shared library that depends on
    // this crate as well, and the loader would take each for this one. Arguments for everything
    // linked here stay here; the tests ignore them.
    println!("cargo::rustc-link-arg=-Wl,-soname,libsojourn_ipc.so.{major}");
    // Its threads and thread-local destructors would outlive a dlclose.
    println!("cargo::rustc-link-arg=-Wl,-z,nodelete");
}
