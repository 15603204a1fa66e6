//! This host's own addresses and their interfaces, for UDP sockets that are bound to an address or
//! to all.
//!
//! Not here: the choice of an interface (`datagrams`).
#![allow(unsafe_code, reason = "getifaddrs(3), which rustix does not have")]

use core::ffi::CStr;
use rustix::io::Errno;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// An address of this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Own {
    /// The name of its interface.
    pub(crate) interface: String,
    pub(crate) ip: IpAddr,
}

/// Lists the addresses of interfaces that are up and lead to other hosts, in the network namespace
/// of the calling thread. Link-local addresses are left out: a sender's address would need a scope
/// (RFC 4007).
///
/// # Errors
/// Those of getifaddrs(3).
pub(crate) fn own() -> Result<Vec<Own>, Errno> {
    let mut list: *mut libc::ifaddrs = core::ptr::null_mut();
    // SAFETY: `list` is ours to be written.
    if unsafe { libc::getifaddrs(&raw mut list) } != 0 {
        let error = std::io::Error::last_os_error();
        return Err(Errno::from_io_error(&error).unwrap_or(Errno::IO));
    }
    let mut found = Vec::new();
    let mut at = list;
    // SAFETY: null, or an element of the list, which lives until it is freed below.
    while let Some(one) = unsafe { at.as_ref() } {
        at = one.ifa_next;
        let leads = one.ifa_flags & (libc::IFF_UP | libc::IFF_LOOPBACK) as u32;
        if leads != libc::IFF_UP as u32 {
            continue;
        }
        let Some(ip) = ip_of(one.ifa_addr).filter(|ip| !is_of_link(*ip)) else { continue };
        // SAFETY: the name of an element ends with a zero byte.
        let name = unsafe { CStr::from_ptr(one.ifa_name) };
        found.push(Own { interface: name.to_string_lossy().into_owned(), ip });
    }
    // SAFETY: made above, and freed once.
    unsafe { libc::freeifaddrs(list) };
    Ok(found)
}

fn ip_of(address: *const libc::sockaddr) -> Option<IpAddr> {
    // SAFETY: null, or an address of the list, whose family says how long it is.
    unsafe {
        match i32::from(address.as_ref()?.sa_family) {
            libc::AF_INET => {
                let address = address.cast::<libc::sockaddr_in>().read_unaligned();
                Some(Ipv4Addr::from(u32::from_be(address.sin_addr.s_addr)).into())
            }
            libc::AF_INET6 => {
                let address = address.cast::<libc::sockaddr_in6>().read_unaligned();
                Some(Ipv6Addr::from(address.sin6_addr.s6_addr).into())
            }
            _ => None,
        }
    }
}

pub(crate) fn is_of_link(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn loopback_leads_to_no_other_host() {
        assert!(super::own().unwrap().iter().all(|own| !own.ip.is_loopback()));
    }
}
