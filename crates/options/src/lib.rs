//! Socket options of sessions: one table with the effect of each option on a session that is away,
//! and with the options that keep a socket in the kernel.
//!
//! Pure: nothing here reads a socket. Users: the preload library when a program sets or reads an
//! option, the session server when a socket is offered, the driver for the options that the engine
//! obeys ([`Change`]). Not here: reading and applying values (`sojourn_pump::options`). [`page()`]
//! makes `docs/reference/options.md` from the table.
//!
//! The numbers are those of `asm-generic/socket.h`, `linux/tcp.h`, `linux/udp.h`, `linux/in.h` and
//! `linux/in6.h`; the names those of socket(7), tcp(7), udp(7), ip(7) and ipv6(7).

mod option;
mod page;
mod plain;
mod table;

pub use option::{AcceptedValue, Answer, Change, Kind, Kinds, OptionName, Setting, SocketOption};
pub use page::page;
pub use plain::{can_be_read_for_another, can_be_set_for_another};
pub use table::TABLE;

use core::ffi::c_int;

/// Returns the table's row of an option, if it has one.
pub fn find(level: c_int, number: c_int) -> Option<&'static SocketOption> {
    let at = TABLE.binary_search_by_key(&(level, number), |row| (row.level, row.number));
    at.ok().map(|at| &TABLE[at])
}

/// Returns the effect of setting an option. An option that is not in the table sends the session
/// home: its value may change how bytes arrive, and only the kernel honours it.
pub fn setting(level: c_int, number: c_int) -> Setting {
    find(level, number).map_or(Setting::Home, |row| row.setting)
}

/// Returns the answer of the library when a program reads an option; `None` if only the kernel
/// answers.
pub fn answer(level: c_int, number: c_int) -> Option<Answer> {
    find(level, number)?.answer
}

/// Returns the options that must have accepted values before a session of this kind may move.
/// Those with a rule ([`AcceptedValue::Rule`]) are among them.
pub fn keeping(kind: Kind) -> impl Iterator<Item = &'static SocketOption> {
    TABLE.iter().filter(move |row| row.keeps.has(kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_sorted_and_named_once() {
        let keys = TABLE.iter().map(|row| (row.level, row.number));
        assert!(keys.is_sorted_by(|a, b| a < b), "a search by halves needs an order");
        for row in TABLE {
            let same = TABLE.iter().filter(|other| other.name == row.name).count();
            assert_eq!(same, 1, "{}", row.name);
            assert_eq!(find(row.level, row.number).map(|found| found.name), Some(row.name));
        }
    }

    #[test]
    fn numbers_are_those_of_the_system() {
        let same = [
            (libc::SOL_SOCKET, libc::SO_KEEPALIVE, "SO_KEEPALIVE"),
            (libc::SOL_SOCKET, libc::SO_RCVTIMEO, "SO_RCVTIMEO"),
            (libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, "SO_ATTACH_FILTER"),
            (libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, "SO_MAX_PACING_RATE"),
            (libc::IPPROTO_TCP, libc::TCP_INFO, "TCP_INFO"),
            (libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, "TCP_NOTSENT_LOWAT"),
            (libc::IPPROTO_TCP, libc::TCP_ULP, "TCP_ULP"),
            (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, "IP_MTU_DISCOVER"),
            (libc::IPPROTO_IP, libc::IP_MINTTL, "IP_MINTTL"),
            (libc::IPPROTO_IPV6, libc::IPV6_TCLASS, "IPV6_TCLASS"),
            (libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, "IPV6_RECVPKTINFO"),
            (libc::IPPROTO_IPV6, libc::IPV6_MULTICAST_IF, "IPV6_MULTICAST_IF"),
        ];
        for (level, number, name) in same {
            assert_eq!(find(level, number).map(|row| row.name), Some(name));
        }
    }

    #[test]
    fn what_nobody_knows_is_the_kernels() {
        assert_eq!(setting(libc::SOL_SOCKET, 9999), Setting::Home);
        assert_eq!(setting(9999, 1), Setting::Home);
        assert_eq!(answer(libc::SOL_SOCKET, 9999), None);
    }

    #[test]
    fn what_keeps_a_kind_cannot_be_set_and_ignored_by_it() {
        for row in keeping(Kind::OneHost) {
            assert_ne!(row.setting, Setting::Ignored, "{}", row.name);
        }
        for row in keeping(Kind::RemoteTcp) {
            assert!(!matches!(row.setting, Setting::Ignored | Setting::Engine(_)), "{}", row.name);
        }
    }
}
