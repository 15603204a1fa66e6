//! The instructions that save and load the vector registers where a program's system call enters
//! this project's code: compilers keep values in them over a call.
//!
//! With AVX, the processor knows whether upper halves are in use, and a register that is loaded
//! whole counts as used, even with zeroes. Instructions of SSE then cost up to thirty times as
//! much, for they must keep the upper half of what they write. So upper halves are loaded only
//! where one was not 0, and are marked unused (`vzeroupper`) elsewhere, as the kernel leaves them.
//!
//! Not here: the ways in (`enter` of the loader, `own_calls` of the preload library).

/// Expands to the instructions that `save` or `load` registers 0 to 15 of a kind (`"xmm"`, `"ymm"`)
/// by `$mov`, each at its own 32 bytes from the stack pointer on, for an assembly template. Without
/// a kind: those of AVX, for which the byte at 512 tells whether an upper half is not 0. These
/// change flags.
#[macro_export]
macro_rules! vectors {
    (save) => {
        concat!(
            $crate::vectors!(save "vmovups" "ymm"),
            $crate::vectors!(@either "0" "1" "2" "3" "4" "5" "6" "7"),
            $crate::vectors!(@either "8" "9" "10" "11" "12" "13" "14" "15"),
            $crate::vectors!(@either "0" "2" "4" "6" "8" "10" "12" "14"),
            $crate::vectors!(@either "0" "4" "8" "12"),
            "vorps ymm0, ymm0, ymm8\n",
            "vextractf128 xmm0, ymm0, 1\n",
            "vptest xmm0, xmm0\n",
            "setnz byte ptr [rsp + 512]\n",
            "vzeroupper\n",
        )
    };
    (load) => {
        concat!(
            "cmp byte ptr [rsp + 512], 0\n",
            "jne 20f\n",
            "vzeroupper\n",
            $crate::vectors!(load "movups" "xmm"),
            "jmp 21f\n",
            "20:\n",
            $crate::vectors!(load "vmovups" "ymm"),
            "21:\n",
        )
    };
    // Of each two registers, the first gets the bits of both.
    (@either $($first:literal $second:literal)+) => {
        concat!($("vorps ymm", $first, ", ymm", $first, ", ymm", $second, "\n",)+)
    };
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

    #[test]
    fn each_upper_half_counts() {
        let mut seen = (0..16).map(|at| 1u32 << at).collect::<Vec<_>>();
        for line in vectors!(save).lines().filter_map(|line| line.strip_prefix("vorps ")) {
            let at = line.split(", ").map(|name| name["ymm".len()..].parse::<usize>().unwrap());
            let [to, first, second] = at.collect::<Vec<_>>()[..] else { panic!("{line}") };
            seen[to] = seen[first] | seen[second];
        }
        assert_eq!(seen[0], 0xffff);
    }
}
