//! Arithmetic of `size_is`, `length_is` and `switch_is` expressions.
//!
//! Total: what has no value (division by zero, overflow) becomes [`NONE`], which no count or tag
//! equals, so that it ends as a violation and never as a panic.

/// No value.
pub const NONE: i128 = i128::MIN;

macro_rules! checked {
    ($($(#[$doc:meta])* $name:ident = $op:ident;)*) => {$(
        $(#[$doc])*
        #[inline]
        #[must_use]
        pub const fn $name(a: i128, b: i128) -> i128 {
            match a.$op(b) {
                Some(v) if a != NONE && b != NONE => v,
                _ => NONE,
            }
        }
    )*};
}

checked! {
    /// `a + b`
    add = checked_add;
    /// `a - b`
    sub = checked_sub;
    /// `a * b`
    mul = checked_mul;
    /// `a / b`, towards zero
    div = checked_div;
    /// `a % b`
    rem = checked_rem;
}

/// `a << b`
#[inline]
#[must_use]
pub const fn shl(a: i128, b: i128) -> i128 {
    if a == NONE || b < 0 || b > 63 { NONE } else { a.wrapping_shl(b as u32) }
}

/// `a >> b`
#[inline]
#[must_use]
pub const fn shr(a: i128, b: i128) -> i128 {
    if a == NONE || b < 0 || b > 63 { NONE } else { a >> b }
}
