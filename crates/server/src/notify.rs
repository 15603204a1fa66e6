//! Messages to the service manager: sd_notify(3).
//!
//! Not here: the things to tell (`beat`, `apart`).

use rustix::net::{AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType};
use std::time::Duration;

/// Returns the interval at which the service manager is to hear of this process: half of the limit
/// that it sets (sd_watchdog_enabled(3)).
pub(crate) fn watchdog_interval() -> Option<Duration> {
    let number = |name: &str| std::env::var(name).ok()?.parse::<u64>().ok();
    let is_ours = number("WATCHDOG_PID").is_none_or(|pid| pid == u64::from(std::process::id()));
    let limit = number("WATCHDOG_USEC").filter(|limit| is_ours && *limit > 0)?;
    Some(Duration::from_micros(limit / 2))
}

/// Sends a message to the service manager, if there is one: sd_notify(3).
pub(crate) fn notify(text: &str) {
    let Some(place) = std::env::var_os("NOTIFY_SOCKET") else { return };
    let place = place.as_encoded_bytes();
    let address = match place.split_first() {
        Some((b'@', name)) => SocketAddrUnix::new_abstract_name(name),
        _ => SocketAddrUnix::new(place),
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None);
    if let (Ok(address), Ok(socket)) = (address, socket) {
        let _ = rustix::net::sendto(&socket, text.as_bytes(), SendFlags::NOSIGNAL, &address);
    }
}
