//! C programs, each with and without the library: they must not be able to tell.

mod common;

macro_rules! same {
    ($($name:ident),+ $(,)?) => {$(
        #[test]
        fn $name() {
            common::same(stringify!($name));
        }
    )+};
}

same!(io, messages, signals, storm, process, readiness, cancel, streams, descriptors, numbers);
