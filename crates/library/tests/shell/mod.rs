//! Data calls as a shell sends them to the library, for the tests that have no preload library.

use rustix::fd::BorrowedFd;
use rustix::io::{Errno, IoSlice, IoSliceMut};
use sojourn_library::{BytesOnly, Recv, Route, Send, library};

/// As a shell serves `read`.
pub(crate) fn read(fd: i32, buf: &mut [u8]) -> Result<usize, Errno> {
    loop {
        match library().reading(fd) {
            Route::Plain => return rustix::io::read(at(fd), buf),
            Route::Kernel(using) => {
                let result = rustix::io::read(at(fd), &mut *buf);
                using.done(result.map_or(-1, |len| len as isize));
                return result;
            }
            Route::Datagrams(_) => panic!("a stream"),
            Route::Stream(call) => {
                let bufs = &mut [IoSliceMut::new(buf)];
                if let Some(done) = call.recv(bufs, Recv::default(), &mut BytesOnly::default()) {
                    return done;
                }
            }
        }
    }
}

/// As a shell serves `write`.
pub(crate) fn write(fd: i32, buf: &[u8]) -> Result<usize, Errno> {
    loop {
        match library().writing(fd) {
            Route::Plain => return rustix::io::write(at(fd), buf),
            Route::Kernel(using) => {
                let result = rustix::io::write(at(fd), buf);
                using.done(result.map_or(-1, |len| len as isize));
                return result;
            }
            Route::Datagrams(_) => panic!("a stream"),
            Route::Stream(call) => {
                if let Some(done) = call.send(&[IoSlice::new(buf)], Send::default()) {
                    return done;
                }
            }
        }
    }
}

/// A number as the program has it.
pub(crate) fn at(fd: i32) -> BorrowedFd<'static> {
    sojourn_shm::descriptor::of_program(fd).unwrap()
}
