//! C programs, each run with and without the library: they must not notice a difference.

mod common;

macro_rules! same {
    ($($name:ident),+ $(,)?) => {$(
        #[test]
        fn $name() {
            common::same(stringify!($name));
        }
    )+};
}

same!(
    io,
    messages,
    signals,
    storm,
    process,
    readiness,
    cancel,
    streams,
    descriptors,
    numbers,
    memory,
);
