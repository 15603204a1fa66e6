//! The options that one process may set or read for another, which names them by number.
//!
//! The value of such an option is its bytes. Other options name memory or a descriptor of the
//! caller: the kernel would take them for those of the process that makes the call. Nor does each
//! option count its length in bytes (`SO_GET_FILTER` counts instructions), so that the kernel
//! writes past a buffer of that length. Nobody knows the options of later kernels, so only what is
//! listed is allowed. Not here: who asks (`sojourn-protocol`).

use crate::option::OptionName;
use crate::table::TABLE;
use core::ffi::c_int;
use libc::{IPPROTO_IP as IP, IPPROTO_IPV6 as IPV6, IPPROTO_TCP as TCP, SOL_SOCKET as SOCKET};

/// Rows of the table whose value names memory of the caller, or has another length than it says.
const NOT_PLAIN: [OptionName; 2] = [
    OptionName::new(SOCKET, libc::SO_ATTACH_FILTER),
    // Reading it receives bytes to an address.
    OptionName::new(TCP, 35),
];

/// Options that only can be read, which the table therefore lacks.
const READ_ONLY: [OptionName; 11] = [
    OptionName::new(SOCKET, libc::SO_TYPE),
    OptionName::new(SOCKET, libc::SO_DOMAIN),
    OptionName::new(SOCKET, libc::SO_PROTOCOL),
    OptionName::new(SOCKET, libc::SO_ACCEPTCONN),
    OptionName::new(SOCKET, libc::SO_COOKIE),
    OptionName::new(SOCKET, libc::SO_MEMINFO),
    OptionName::new(SOCKET, libc::SO_INCOMING_NAPI_ID),
    OptionName::new(SOCKET, SO_NETNS_COOKIE),
    OptionName::new(IP, libc::IP_MTU),
    OptionName::new(IPV6, libc::IPV6_MTU),
    OptionName::new(TCP, libc::TCP_CC_INFO),
];

/// See `asm-generic/socket.h`.
const SO_NETNS_COOKIE: c_int = 71;

fn is_row(option: OptionName) -> bool {
    TABLE.iter().any(|row| OptionName::new(row.level, row.number) == option)
}

/// Returns true if one process may set the option for another.
pub fn can_be_set_for_another(option: OptionName) -> bool {
    is_row(option) && !NOT_PLAIN.contains(&option)
}

/// Returns true if one process may read the option for another.
pub fn can_be_read_for_another(option: OptionName) -> bool {
    can_be_set_for_another(option) || READ_ONLY.contains(&option)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_name_something_of_the_caller_are_not_for_others() {
        // SO_ATTACH_FILTER, SO_ATTACH_BPF, SO_ATTACH_REUSEPORT_CBPF and _EBPF; SO_PEERPIDFD.
        for number in [26, 50, 51, 52, 77] {
            assert!(!can_be_set_for_another(OptionName::new(SOCKET, number)), "{number}");
            assert!(!can_be_read_for_another(OptionName::new(SOCKET, number)), "{number}");
        }
        // TCP_ZEROCOPY_RECEIVE, TCP_AO_GET_KEYS, and tables of iptables.
        for option in [OptionName::new(TCP, 35), OptionName::new(TCP, 41), OptionName::new(IP, 65)]
        {
            assert!(!can_be_read_for_another(option), "{option:?}");
        }
    }

    #[test]
    fn what_only_can_be_read_is_not_in_the_table() {
        for option in READ_ONLY {
            assert!(!is_row(option), "{option:?}");
            assert!(can_be_read_for_another(option) && !can_be_set_for_another(option));
        }
    }

    #[test]
    fn numbers_stay_bytes() {
        let nodelay = OptionName::new(TCP, libc::TCP_NODELAY);
        assert!(can_be_set_for_another(nodelay) && can_be_read_for_another(nodelay));
    }
}
