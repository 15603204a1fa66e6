//! The instructions that save and load the vector registers where a program's system call enters
//! this project's code: compilers keep values in them over a call.
//!
//! Not here: the ways in (`enter` of the loader, `own_calls` of the preload library).

/// Expands to the instructions that `save` or `load` registers 0 to 15 of a kind (`"xmm"`, `"ymm"`)
/// by `$mov`, each at its own 32 bytes from the stack pointer on, for an assembly template.
#[macro_export]
macro_rules! vectors {
    (save $mov:literal $kind:literal) => {
        $crate::vectors!(@all store $mov $kind)
    };
    (load $mov:literal $kind:literal) => {
        $crate::vectors!(@all fetch $mov $kind)
    };
    (@all $way:ident $mov:literal $kind:literal) => {
        concat!(
            $crate::vectors!(@$way $mov $kind "0" "0"),
            $crate::vectors!(@$way $mov $kind "1" "32"),
            $crate::vectors!(@$way $mov $kind "2" "64"),
            $crate::vectors!(@$way $mov $kind "3" "96"),
            $crate::vectors!(@$way $mov $kind "4" "128"),
            $crate::vectors!(@$way $mov $kind "5" "160"),
            $crate::vectors!(@$way $mov $kind "6" "192"),
            $crate::vectors!(@$way $mov $kind "7" "224"),
            $crate::vectors!(@$way $mov $kind "8" "256"),
            $crate::vectors!(@$way $mov $kind "9" "288"),
            $crate::vectors!(@$way $mov $kind "10" "320"),
            $crate::vectors!(@$way $mov $kind "11" "352"),
            $crate::vectors!(@$way $mov $kind "12" "384"),
            $crate::vectors!(@$way $mov $kind "13" "416"),
            $crate::vectors!(@$way $mov $kind "14" "448"),
            $crate::vectors!(@$way $mov $kind "15" "480"),
        )
    };
    (@store $mov:literal $kind:literal $number:literal $at:literal) => {
        concat!($mov, " [rsp + ", $at, "], ", $kind, $number, "\n")
    };
    (@fetch $mov:literal $kind:literal $number:literal $at:literal) => {
        concat!($mov, " ", $kind, $number, ", [rsp + ", $at, "]\n")
    };
}

#[cfg(test)]
mod tests {
    #[test]
    fn each_register_has_a_place_of_its_own() {
        let (save, load) = (vectors!(save "movups" "xmm"), vectors!(load "vmovups" "ymm"));
        for at in 0..16 {
            let line = format!("movups [rsp + {}], xmm{at}", at * 32);
            assert_eq!(save.lines().nth(at), Some(&*line));
            let line = format!("vmovups ymm{at}, [rsp + {}]", at * 32);
            assert_eq!(load.lines().nth(at), Some(&*line));
        }
        assert_eq!((save.lines().count(), load.lines().count()), (16, 16));
    }
}
