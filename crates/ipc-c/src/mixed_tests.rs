//! C and Rust in one process: each calls the other's endpoint, and neither is shown the other's
//! local object.

use crate::client::ConnectionHandle;
use crate::endpoint::EndpointHandle;
use crate::server_handle::ServerHandle;
use crate::status::Status;
use crate::types::{EventOut, In, Options, Out, Token};
use core::ffi::{c_char, c_int, c_void};
use core::mem::MaybeUninit;
use core::ptr::null_mut;
use sojourn_ipc::{Address, ConnectOptions, Connection, Deadline, Endpoint, Event, ServerOptions};
use std::ffi::CString;
use std::sync::Arc;
use std::time::Duration;

#[allow(improper_ctypes, reason = "C sees handles as incomplete types")]
unsafe extern "C" {
    fn sj_connect(
        address: *const c_char,
        options: *const Options,
        out: *mut *mut ConnectionHandle,
    ) -> Status;
    fn sj_disconnect(connection: *mut ConnectionHandle);
    fn sj_is_local(connection: *mut ConnectionHandle) -> c_int;
    fn sj_local(connection: *mut ConnectionHandle) -> *mut c_void;
    fn sj_start(connection: *mut ConnectionHandle, op: u16, body_len: usize, out: *mut Out);
    fn sj_call(
        connection: *mut ConnectionHandle,
        out: *mut Out,
        deadline_ns: i64,
        message: *mut In,
    ) -> Status;
    fn sj_now_ns() -> i64;
    fn sj_listen(
        address: *const c_char,
        options: *const Options,
        out: *mut *mut EndpointHandle,
    ) -> Status;
    fn sj_close(endpoint: *mut EndpointHandle);
    fn sj_endpoint_set_local(endpoint: *const EndpointHandle, object: *mut c_void);
    fn sj_server_new(endpoint: *const EndpointHandle, out: *mut *mut ServerHandle) -> Status;
    fn sj_server_free(server: *mut ServerHandle);
    fn sj_recv(server: *mut ServerHandle, deadline_ns: i64, event: *mut EventOut) -> Status;
    fn sj_reply_start(
        server: *mut ServerHandle,
        token: *const Token,
        body_len: usize,
        out: *mut Out,
    );
    fn sj_reply(server: *mut ServerHandle, out: *mut Out) -> Status;
}

fn fresh(what: &str) -> String {
    format!("@sojourn-mixed-{what}-{}", std::process::id())
}

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(20))
}

/// What a Rust server gives to clients in its process.
struct Object;

#[test]
fn c_is_not_shown_a_rust_object_and_calls_by_messages() {
    let name = fresh("rust");
    let address = Address::parse(&name).unwrap();
    let endpoint = Endpoint::bind(address, ServerOptions::default()).unwrap();
    endpoint.set_local(Arc::new(Object));
    let mut server = endpoint.server();
    let serving = std::thread::spawn(move || {
        loop {
            match server.recv(soon()).unwrap() {
                Event::Call(request) => {
                    let op = u64::from(request.op());
                    let mut draft = request.into_token().start(8);
                    draft.encoder().put_bytes(&(op + 1).to_ne_bytes()).unwrap();
                    // The client may have its answer and be gone before we hear that it was sent.
                    let _ = draft.finish().send();
                    return;
                }
                _ => continue,
            }
        }
    });
    let name = CString::new(name).unwrap();
    let mut connection = null_mut();
    let (mut out, mut message) = (MaybeUninit::<Out>::uninit(), MaybeUninit::<In>::uninit());
    // SAFETY: as the header asks: strings, places to write to, handles given out by it and used by
    // this thread alone.
    unsafe {
        assert_eq!(sj_connect(name.as_ptr(), core::ptr::null(), &mut connection), Status::Ok);
        assert_eq!(sj_is_local(connection), 1);
        assert!(sj_local(connection).is_null());
        sj_start(connection, 41, 0, out.as_mut_ptr());
        let limit = sj_now_ns() + 20_000_000_000;
        let status = sj_call(connection, out.as_mut_ptr(), limit, message.as_mut_ptr());
        assert_eq!(status, Status::Ok);
        let message = message.as_ptr();
        assert_eq!((*message).body_len, 8);
        assert_eq!((*message).body.cast::<u64>().read(), 42);
        sj_disconnect(connection);
    }
    serving.join().unwrap();
}

/// Receives calls until one comes, and answers it with its number plus one.
unsafe fn answer_one(server: *mut ServerHandle) {
    let (mut out, mut event) = (MaybeUninit::<Out>::uninit(), MaybeUninit::<EventOut>::uninit());
    // SAFETY: the caller's contract: a handle that only this thread uses.
    unsafe {
        let event = event.as_mut_ptr();
        loop {
            assert_eq!(sj_recv(server, sj_now_ns() + 20_000_000_000, event), Status::Ok);
            if matches!((*event).kind, crate::types::EventKind::Call) {
                break;
            }
        }
        sj_reply_start(server, &raw const (*event).token, 8, out.as_mut_ptr());
        let body = (*out.as_ptr()).body.cast::<u64>();
        body.write(u64::from((*event).message.op) + 1);
        assert_eq!(sj_reply(server, out.as_mut_ptr()), Status::Ok);
    }
}

#[test]
fn rust_is_not_shown_a_c_object_and_calls_by_messages() {
    let name = fresh("c");
    let address = CString::new(name.as_str()).unwrap();
    let (mut endpoint, mut server) = (null_mut(), null_mut());
    let mut object = [0_u64; 2];
    // SAFETY: as the header asks.
    unsafe {
        assert_eq!(sj_listen(address.as_ptr(), core::ptr::null(), &mut endpoint), Status::Ok);
        sj_endpoint_set_local(endpoint, object.as_mut_ptr().cast());
        assert_eq!(sj_server_new(endpoint, &mut server), Status::Ok);
    }
    let handle = server.expose_provenance();
    let serving = std::thread::spawn(move || {
        // SAFETY: this thread alone uses the handle until it is joined.
        unsafe { answer_one(core::ptr::with_exposed_provenance_mut(handle)) };
    });
    let options = ConnectOptions::default();
    let mut connection = Connection::connect(Address::parse(&name).unwrap(), &options).unwrap();
    assert!(connection.is_local());
    let shown = connection.local();
    assert!(shown.is_some_and(|object| object.downcast::<Object>().is_err()));
    let reply = connection.start(41, 0).call(soon()).unwrap();
    assert_eq!(reply.body(), 42_u64.to_ne_bytes());
    serving.join().unwrap();
    // SAFETY: given out above, used by nobody any more.
    unsafe {
        sj_server_free(server);
        sj_close(endpoint);
    }
}
