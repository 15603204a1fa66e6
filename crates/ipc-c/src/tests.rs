//! The header and this module say the same: layouts, numbers, names.

use crate::status::{Status, reason, reasons};
use crate::types::{
    Client, CredentialsOut, EventKind, EventOut, GrantRef, In, ItemRef, Options, Out, PendingCall,
    Token, WaitOut,
};
use core::mem::{offset_of, size_of};
use std::io::Write;
use std::process::{Command, Stdio};

/// Has a C compiler check assertions against the header.
fn assert_in_c(assertions: &[String]) {
    let mut program = String::from("#include <sojourn/ipc.h>\n");
    for assertion in assertions {
        program += &format!("_Static_assert({assertion}, \"\");\n");
    }
    let include = concat!(env!("CARGO_MANIFEST_DIR"), "/include");
    let mut compiler = Command::new("cc")
        .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-I", include])
        .args(["-x", "c", "-"])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    compiler.stdin.take().unwrap().write_all(program.as_bytes()).unwrap();
    assert!(compiler.wait().unwrap().success(), "{program}");
}

macro_rules! layout {
    ($all:ident, $type:ty, $name:literal $(, $field:ident = $c:literal)*) => {
        $all.push(format!("sizeof({}) == {}", $name, size_of::<$type>()));
        $($all.push(format!("offsetof({}, {}) == {}", $name, $c, offset_of!($type, $field)));)*
    };
}

#[test]
fn messages_have_the_header_s_layout() {
    let mut all = vec![];
    layout!(
        all,
        Out,
        "sj_out",
        body = "body",
        body_len = "body_len",
        op = "op",
        n_items = "n_items",
        n_fds = "n_fds",
        n_grants = "n_grants",
        is_reply = "is_reply",
        items = "items",
        fds = "fds",
        grants = "grants",
        private = "private_"
    );
    layout!(
        all,
        In,
        "sj_in",
        body = "body",
        body_len = "body_len",
        op = "op",
        n_items = "n_items",
        n_fds = "n_fds",
        n_grants = "n_grants",
        fault = "fault",
        item_lens = "item_lens",
        fds = "fds",
        grants = "grants",
        private = "private_"
    );
    layout!(all, ItemRef, "((sj_out *)0)->items[0]");
    layout!(all, GrantRef, "((sj_out *)0)->grants[0]");
    let within = |array: &str, field: &str, offset: usize| {
        let whole = array.split('.').next().unwrap();
        let array = array.split('.').next_back().unwrap();
        format!("offsetof({whole}, {array}[0].{field}) - offsetof({whole}, {array}) == {offset}")
    };
    all.push(within("sj_out.items", "data", offset_of!(ItemRef, start)));
    all.push(within("sj_out.items", "len", offset_of!(ItemRef, len)));
    for array in ["sj_out.grants", "sj_in.grants"] {
        all.push(within(array, "id", offset_of!(GrantRef, id)));
        all.push(within(array, "flags", offset_of!(GrantRef, flags)));
        all.push(within(array, "offset", offset_of!(GrantRef, offset)));
        all.push(within(array, "len", offset_of!(GrantRef, len)));
    }
    assert_in_c(&all);
}

#[test]
fn other_structures_have_the_header_s_layout() {
    let mut all = vec![];
    layout!(
        all,
        EventOut,
        "sj_event",
        kind = "kind",
        reason = "reason",
        client = "client",
        badge = "badge",
        bits = "bits",
        token = "token",
        message = "in"
    );
    layout!(
        all,
        Options,
        "sj_options",
        wait = "wait",
        spin_us = "spin_us",
        area = "area",
        max_message = "max_message",
        max_inflight = "max_inflight",
        max_clients = "max_clients",
        max_granted = "max_granted",
        timeout_ms = "timeout_ms",
        check_uid = "check_uid",
        server_uid = "server_uid"
    );
    layout!(all, WaitOut, "sj_wait", wait = "wait", spin_us = "spin_us");
    layout!(all, Client, "sj_client", index = "index", generation = "generation");
    layout!(all, CredentialsOut, "sj_credentials", pid = "pid", uid = "uid", gid = "gid");
    layout!(all, Token, "sj_token", opaque = "opaque");
    layout!(all, PendingCall, "sj_pending", opaque = "opaque");
    layout!(all, Status, "sj_status");
    layout!(all, EventKind, "sj_event_kind");
    assert_in_c(&all);
}

/// `BadHeader` as `BAD_HEADER`.
fn upper(name: &str) -> String {
    let mut upper = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() && !upper.is_empty() {
            upper.push('_');
        }
        upper.push(letter.to_ascii_uppercase());
    }
    upper
}

#[test]
fn numbers_are_the_header_s() {
    let mut all: Vec<_> = reasons()
        .map(|reason| format!("SJ_REASON_{} == {}", upper(&format!("{reason:?}")), reason.code()))
        .collect();
    assert!(all.len() >= 16);
    for status in [
        Status::Ok,
        Status::Timeout,
        Status::Disconnected,
        Status::Fault,
        Status::Invalid,
        Status::TooLarge,
        Status::System,
        Status::BadMessage,
        Status::Gone,
        Status::Busy,
        Status::Refused,
    ] {
        all.push(format!("SJ_{} == {}", upper(&format!("{status:?}")), status as u32));
    }
    for kind in
        [EventKind::Call, EventKind::Send, EventKind::Notify, EventKind::Connected, EventKind::Gone]
    {
        all.push(format!("SJ_EVENT_{} == {}", upper(&format!("{kind:?}")), kind as u32));
    }
    for (name, number) in [
        ("SJ_ITEMS_MAX", sojourn_ipc::ITEMS_MAX as u64),
        ("SJ_FDS_MAX", sojourn_ipc::FDS_MAX as u64),
        ("SJ_GRANTS_MAX", sojourn_ipc::GRANTS_MAX as u64),
        ("SJ_INLINE_MAX", sojourn_ipc::INLINE_MAX as u64),
        ("SJ_GRANT_WRITE", sojourn_ipc::WRITE.into()),
        ("SJ_GRANT_KEEP", sojourn_ipc::KEEP.into()),
    ] {
        all.push(format!("{name} == {number}"));
    }
    assert_in_c(&all);
}

#[test]
fn the_header_has_no_reason_that_we_do_not_have() {
    let header = include_str!("../include/sojourn/ipc.h");
    assert_eq!(header.matches("#define SJ_REASON_").count(), reasons().count());
    assert_eq!((reason(0), reason(-1), reason(1000)), (None, None, None));
    assert_eq!(reason(8), Some(sojourn_ipc::Reason::BadMessage));
}

#[test]
fn a_panic_stays_inside() {
    std::panic::set_hook(Box::new(|_| {}));
    let status = crate::handle::guard(|| panic!("on purpose"));
    let _ = std::panic::take_hook();
    assert_eq!(status, Status::System);
    assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::ENOTRECOVERABLE));
}
