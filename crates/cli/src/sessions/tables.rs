//! The kernel's tables of sockets: `/proc/PID/net/tcp`, `tcp6`, `udp`, `udp6` and `unix`. Pure but
//! for reading them.
//!
//! Each network name space has its own tables; `/proc/PID/net` has those of the process's name
//! space. See proc_net(5).

use sojourn_session::Inode;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;

/// `TCP_ESTABLISHED`.
const TCP_ESTABLISHED: u8 = 1;
/// `SS_CONNECTED`.
const UNIX_CONNECTED: u8 = 3;
/// `SOCK_STREAM`.
const UNIX_STREAM: u32 = 1;

/// A TCP socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tcp {
    pub(super) local: SocketAddr,
    pub(super) remote: SocketAddr,
    pub(super) is_established: bool,
}

/// A UDP socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Udp {
    pub(super) local: SocketAddr,
    /// The peer of a connected socket.
    pub(super) remote: Option<SocketAddr>,
}

/// A Unix stream socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Unix {
    /// The path or `@name` of the socket; empty if the socket has no address.
    pub(super) name: String,
    pub(super) is_connected: bool,
}

/// The addresses of a connection's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Addresses {
    local: SocketAddr,
    remote: SocketAddr,
}

/// A line of a table.
struct Line<S> {
    inode: Inode,
    socket: S,
}

/// The sockets of one network name space, by inode.
#[derive(Clone, Debug, Default)]
pub(super) struct Tables {
    pub(super) tcp: HashMap<Inode, Tcp>,
    pub(super) udp: HashMap<Inode, Udp>,
    pub(super) unix: HashMap<Inode, Unix>,
    /// The inodes of established TCP sockets, by local and remote address.
    by_addresses: HashMap<Addresses, Inode>,
}

impl Tables {
    /// Reads the tables that the process in `directory` sees; `None` if it has ended.
    pub(super) fn read(directory: &Path) -> Option<Self> {
        let read = |name: &str| {
            let bytes = std::fs::read(directory.join("net").join(name)).ok()?;
            Some(String::from_utf8_lossy(&bytes).into_owned())
        };
        // Without IPv6 the kernel has only some of these.
        let text = |name: &str| read(name).unwrap_or_default();
        let tcp = [text("tcp"), text("tcp6")];
        let udp = [text("udp"), text("udp6")];
        // Every kernel has this one. It is read last: the process was there until then.
        let unix = read("unix")?;
        Some(Self::parse([&tcp[0], &tcp[1]], [&udp[0], &udp[1]], &unix))
    }

    fn parse(tcp: [&str; 2], udp: [&str; 2], unix: &str) -> Self {
        let lines = |texts: [&str; 2]| -> Vec<Line<Tcp>> {
            let lines = texts.into_iter().flat_map(|text| text.lines().skip(1));
            lines.filter_map(internet_line).collect()
        };
        let tcp: HashMap<Inode, Tcp> =
            lines(tcp).into_iter().map(|line| (line.inode, line.socket)).collect();
        // UDP's table has the format of TCP's.
        let is_peer = |socket: &Tcp| socket.is_established && socket.remote.port() != 0;
        let udp = lines(udp).into_iter().map(|Line { inode, socket }| {
            let remote = is_peer(&socket).then_some(socket.remote);
            (inode, Udp { local: socket.local, remote })
        });
        let udp = udp.collect();
        let established = tcp.iter().filter(|(_, socket)| socket.is_established);
        let addresses = |socket: &Tcp| Addresses { local: socket.local, remote: socket.remote };
        let by_addresses = established.map(|(inode, socket)| (addresses(socket), *inode)).collect();
        let unix = unix.lines().skip(1).filter_map(unix_line);
        let unix = unix.map(|line| (line.inode, line.socket)).collect();
        Self { tcp, udp, unix, by_addresses }
    }

    /// Returns the inode of a TCP connection's other end, if that is in this name space and not
    /// closed.
    pub(super) fn mirror(&self, socket: &Tcp) -> Option<Inode> {
        let mirrored = Addresses { local: socket.remote, remote: socket.local };
        self.by_addresses.get(&mirrored).copied()
    }
}

#[cfg(any(debug_assertions, fuzzing))]
/// Parses a line as one of each table, for fuzzing.
pub(super) fn fuzz_line(line: &str) {
    let _ = (internet_line(line), unix_line(line));
}

/// Parses a line of TCP's or UDP's table. Connected UDP sockets have the state of established TCP
/// sockets.
fn internet_line(line: &str) -> Option<Line<Tcp>> {
    let fields: Vec<&str> = line.split_ascii_whitespace().collect();
    let state = u8::from_str_radix(fields.get(3)?, 16).ok()?;
    let socket = Tcp {
        local: address(fields.get(1)?)?,
        remote: address(fields.get(2)?)?,
        is_established: state == TCP_ESTABLISHED,
    };
    let inode = fields.get(9)?.parse().ok().filter(|inode| *inode != 0)?;
    Some(Line { inode: Inode(inode), socket })
}

/// Parses an address such as `0100007F:1F90`: words of 32 bits in the machine's byte order, then
/// the port.
fn address(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let mut bytes = Vec::new();
    for word in ip.as_bytes().chunks(8) {
        let word = u32::from_str_radix(std::str::from_utf8(word).ok()?, 16).ok()?;
        bytes.extend(word.to_ne_bytes());
    }
    let ip: IpAddr = match bytes.len() {
        4 => Ipv4Addr::from(<[u8; 4]>::try_from(bytes).ok()?).into(),
        // An IPv6 socket's connection with an IPv4 socket is an IPv4 connection.
        16 => Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?).to_canonical(),
        _ => return None,
    };
    Some(SocketAddr::new(ip, port))
}

fn unix_line(line: &str) -> Option<Line<Unix>> {
    // The name is the last field and may have spaces.
    let mut rest = line;
    let mut field = || {
        rest = rest.trim_start();
        let end = rest.find(' ').unwrap_or(rest.len());
        let (field, after) = rest.split_at(end);
        rest = after;
        field
    };
    let fields: [&str; 7] = std::array::from_fn(|_| field());
    if u32::from_str_radix(fields[4], 16).ok()? != UNIX_STREAM {
        return None;
    }
    let state = u8::from_str_radix(fields[5], 16).ok()?;
    let name = rest.strip_prefix(' ').unwrap_or(rest).to_owned();
    let inode = Inode(fields[6].parse().ok()?);
    Some(Line { inode, socket: Unix { name, is_connected: state == UNIX_CONNECTED } })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tcp_tables_are_read() {
        let four = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
            \x20  0: 0100007F:18EB 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 11 1 x 100 0 0 10 0\n\
            \x20  1: 0100007F:18EB 0200007F:9C40 01 00000000:00000000 00:00000000 00000000  1000        0 12 1 x 20 4 30 10 -1\n\
            \x20  2: 0100007F:18EB 0200007F:9C41 06 00000000:00000000 03:00000A2E 00000000     0        0 0 3 x\n";
        let six = "heading\n\
            \x20  0: 0000000000000000FFFF00000200007F:9C40 0000000000000000FFFF00000100007F:18EB 01 00000000:00000000 00:00000000 00000000  1000 0 13 1 x 20 4 30 10 -1\n\
            \x20  1: 00000000000000000000000001000000:0050 00000000000000000000000001000000:C000 01 0:0 00:0 0 1000 0 14 1\n\
            damaged\n";
        if cfg!(target_endian = "big") {
            return;
        }
        let tables = Tables::parse([four, six], [""; 2], "");
        assert_eq!(tables.tcp.len(), 4);
        let server = &tables.tcp[&Inode(12)];
        assert_eq!(server.local, "127.0.0.1:6379".parse().unwrap());
        assert_eq!(server.remote, "127.0.0.2:40000".parse().unwrap());
        assert!(server.is_established && !tables.tcp[&Inode(11)].is_established);
        assert_eq!(
            tables.mirror(server),
            Some(Inode(13)),
            "mapped addresses are those of version 4"
        );
        assert_eq!(tables.tcp[&Inode(14)].local, "[::1]:80".parse().unwrap());
        assert_eq!(tables.mirror(&tables.tcp[&Inode(14)]), None);
    }

    #[test]
    fn udp_tables_are_read() {
        let four = "   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops\n\
            \x20 128: 00000000:0035 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 31 2 x 0\n\
            \x20 129: 0201000A:D6D1 0101000A:17D4 01 00000000:00000000 00:00000000 00000000     0        0 32 2 x 0\n";
        let six = "heading\n\
            \x20  1: 00000000000000000000000000000000:0050 00000000000000000000000000000000:0000 07 0:0 00:0 0 0 0 33 2 x 0\n";
        if cfg!(target_endian = "big") {
            return;
        }
        let tables = Tables::parse([""; 2], [four, six], "");
        let udp = |local: &str, remote: Option<&str>| Udp {
            local: local.parse().unwrap(),
            remote: remote.map(|remote| remote.parse().unwrap()),
        };
        assert_eq!(tables.udp.len(), 3);
        assert_eq!(tables.udp[&Inode(31)], udp("0.0.0.0:53", None));
        assert_eq!(tables.udp[&Inode(32)], udp("10.0.1.2:54993", Some("10.0.1.1:6100")));
        assert_eq!(tables.udp[&Inode(33)], udp("[::]:80", None));
        assert!(tables.tcp.is_empty());
    }

    #[test]
    fn unix_tables_are_read() {
        let text = "Num       RefCount Protocol Flags    Type St Inode Path\n\
            0000000000000000: 00000002 00000000 00010000 0001 01    21 /run/a b\n\
            0000000000000000: 00000003 00000000 00000000 0001 03    22 @name\n\
            0000000000000000: 00000003 00000000 00000000 0001 03    23\n\
            0000000000000000: 00000003 00000000 00000000 0005 03    24\n";
        let tables = Tables::parse([""; 2], [""; 2], text);
        let unix = |name: &str, is_connected| Unix { name: name.into(), is_connected };
        assert_eq!(tables.unix.len(), 3, "packets are not streams");
        assert_eq!(tables.unix[&Inode(21)], unix("/run/a b", false));
        assert_eq!(tables.unix[&Inode(22)], unix("@name", true));
        assert_eq!(tables.unix[&Inode(23)], unix("", true));
    }
}
