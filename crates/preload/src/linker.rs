//! Addresses within this library that the linker defines, found without a relocation.
//!
//! Code that runs before this library is relocated takes addresses from here. Not here: the
//! relocation itself (`relocation`), and addresses in other objects (`objects`).

/// Returns the address of a symbol of this library relative to the instruction. The compiler would
/// take it from the global offset table, which is not relocated yet.
macro_rules! address_of {
    ($name:literal) => { $crate::linker::address_of!(@ $name, ) };
    (sym $name:path) => { $crate::linker::address_of!(@ "{symbol}", symbol = sym $name,) };
    (@ $name:literal, $($symbol:tt)*) => {{
        let at: usize;
        // SAFETY: computes an address.
        #[cfg(target_arch = "x86_64")]
        unsafe {
            core::arch::asm!(
                concat!("lea {at}, [rip + ", $name, "]"),
                at = out(reg) at,
                $($symbol)*
                options(pure, nomem, nostack, preserves_flags),
            );
        }
        // SAFETY: computes an address.
        #[cfg(target_arch = "aarch64")]
        unsafe {
            core::arch::asm!(
                concat!("adrp {at}, ", $name),
                concat!("add {at}, {at}, :lo12:", $name),
                at = out(reg) at,
                $($symbol)*
                options(pure, nomem, nostack, preserves_flags),
            );
        }
        at
    }};
}
pub(crate) use address_of;

/// Returns the address of this library's ELF header, which is the difference between addresses in
/// memory and in the file. The linker defines the symbol.
pub(crate) fn base() -> usize {
    address_of!("__ehdr_start")
}

/// Returns the address of this library's dynamic section. The linker defines the symbol.
pub(crate) fn own_dynamic() -> usize {
    address_of!("_DYNAMIC")
}
