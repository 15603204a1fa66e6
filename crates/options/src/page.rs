//! The table as a page in Markdown.

use crate::option::{AcceptedValue, Answer, Change, Kinds, Setting, SocketOption};
use crate::table::TABLE;
use core::fmt::Write as _;

const HEAD: &str = "\
# Socket options

What a socket option does to a session that is away from the kernel. The kernel's own socket is set
in any case, and what it refuses is refused.

This page is made from `crates/options/src/table.rs` by
`cargo run -p sojourn-options --example page > docs/reference/options.md`; a test compares them.

- **obeyed**: the session stays away, and the engine or the library does what the option says.
- **kernel's**: the kernel's socket has the value, which shows nowhere while the session is away.
- **goes home**: only the kernel does what the option says. The session goes home for good.
- **goes home, offered again**: the server decides whether it may leave with the new value.
- **stays in the kernel**: a socket with another value than this one does not leave, reason `option`.
  \"set\" is anything but 0 or nothing.

An option that is not here sends its session home when it is set.

| option | set on a stream of one host | on TCP with another host | on UDP | asked for, with another host | stays in the kernel |
|---|---|---|---|---|---|
";

const TAIL: &str = "
## How to add an option

1. Add a row to `crates/options/src/table.rs`, in the order of levels and numbers, with what setting
   it does and which values keep a socket in the kernel. Preload library and session server need no
   change for that.
2. If the engine is to obey it: a variant of `Change` (`crates/options/src/option.rs`), its value in
   `read` (`crates/pump/src/options.rs`; for UDP and IP options `read_udp` and `read_ip` there),
   what the connection does with it in `apply` (`crates/pump/src/carried/options.rs`), a field of
   `TcpOptions` (`crates/proto/src/record_tcp_options.rs`), of `UdpOptions` (`record_udp.rs` there)
   or of `IpOptions` (`record.rs` there). A new field has a row in the table of bytes of
   [the session record](session-record.md).
3. If it is answered while the session is away: a variant of `Answer`, its value in `overlay`
   (`crates/preload/src/options.rs`).
4. Make this page anew, and give the option a case in `tests/system/tests/network_options.rs`.
";

/// Returns the page.
pub fn page() -> String {
    let mut text = String::from(HEAD);
    let mut rows: Vec<&SocketOption> = TABLE.iter().collect();
    rows.sort_by_key(|row| row.name);
    for row in rows {
        let [one_host, remote, datagram] = effects(row);
        let (name, answer) = (row.name, row.answer.map_or("kernel's", answer));
        let kept = kept(row);
        // Writing to a string cannot fail.
        let _ =
            writeln!(text, "| `{name}` | {one_host} | {remote} | {datagram} | {answer} | {kept} |");
    }
    text + TAIL
}

/// Returns the words for the effect of setting the option on each kind of session.
fn effects(row: &SocketOption) -> [&'static str; 3] {
    const OBEYED: &str = "obeyed";
    const KERNELS: &str = "kernel's";
    const HOME: &str = "goes home";
    const OFFERED: &str = "goes home, offered again";
    match row.setting {
        Setting::Ignored => [KERNELS, KERNELS, OFFERED],
        Setting::Timeout => [OBEYED; 3],
        Setting::Home => [HOME; 3],
        Setting::DatagramsObey => [HOME, HOME, OBEYED],
        Setting::DatagramsOffered => [HOME, HOME, OFFERED],
        Setting::Engine(Change::Cork | Change::UserTimeout) => [OBEYED, OBEYED, OFFERED],
        Setting::Engine(Change::Header) => [KERNELS, OBEYED, OBEYED],
        Setting::Engine(_) | Setting::Keepalive => [KERNELS, OBEYED, OFFERED],
        Setting::NotRemote => [KERNELS, OFFERED, OFFERED],
    }
}

fn answer(answer: Answer) -> &'static str {
    match answer {
        Answer::Info => "the engine's figures",
        Answer::SegmentSize => "the engine's segment size",
        Answer::QuickAck => "the engine's mode",
        Answer::Keepalive => "the program's value",
        Answer::Error => "kernel's, and of a killed peer",
        Answer::Home => "goes home",
    }
}

/// Returns the words for the values and kinds that stay in the kernel.
fn kept(row: &SocketOption) -> String {
    let kinds = match row.keeps {
        Kinds::NONE => return String::new(),
        Kinds::ALL => "all",
        Kinds::STREAM => "streams",
        Kinds::REMOTE => "TCP with another host, UDP",
        Kinds::REMOTE_TCP => "TCP with another host",
        Kinds::DATAGRAM => "UDP",
        _ => "some",
    };
    match row.accepted {
        AcceptedValue::Number(0) | AcceptedValue::Empty | AcceptedValue::NoFilter => {
            format!("{kinds}: set")
        }
        AcceptedValue::Number(number) => format!("{kinds}: not {number}"),
        AcceptedValue::ZeroOrOne => format!("{kinds}: more than 1"),
        AcceptedValue::Rule(rule) => format!("{kinds}: not {rule}"),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_page_is_made_from_the_table() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/options.md");
        let there = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            there == super::page(),
            "docs/reference/options.md is not what the table says; make it anew: \
             cargo run -p sojourn-options --example page > docs/reference/options.md"
        );
    }
}
