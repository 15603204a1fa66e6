//! Real sockets and pipes of every kind, as libraries might offer them.

use super::*;
use crate::key::Key;
use crate::raw;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::FileType;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::pipe::{PipeFlags, pipe_with};
use sojourn_shm::sockopt::set_option;
use sojourn_wire::SocketCookie;
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::unix::net::{UnixListener, UnixStream};

fn see(end: impl AsFd) -> Result<Identity, ReasonT> {
    identify(end.as_fd(), &mut Diag::new(false).unwrap())
}

fn reason(end: impl AsFd) -> ReasonT {
    see(end).unwrap_err()
}

/// Two ends that must be each other's mirror image.
fn assert_pair(a: impl AsFd, b: impl AsFd, kind: KindT) -> [Identity; 2] {
    let (a, b) = (see(a).unwrap(), see(b).unwrap());
    assert_eq!(a.key, b.key.mirror());
    assert_ne!(a.key, b.key);
    assert_eq!((a.kind, b.kind), (kind, kind));
    assert_eq!(a.from, b.to);
    [a, b]
}

fn tcp(address: &str) -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind(address).unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (client, listener.accept().unwrap().0)
}

fn unix() -> (UnixStream, UnixStream) {
    UnixStream::pair().unwrap()
}

fn pipe(flags: PipeFlags) -> (OwnedFd, OwnedFd) {
    pipe_with(flags | PipeFlags::CLOEXEC).unwrap()
}

#[test]
fn tcp_over_either_protocol_is_paired() {
    let (a, b) = tcp("127.0.0.1:0");
    let [identity, _] = assert_pair(&a, &b, KindT::Tcp);
    assert_eq!(identity.from, a.local_addr().unwrap().to_string());
    let (a, b) = tcp("[::1]:0");
    assert_pair(&a, &b, KindT::Tcp);
}

#[test]
fn ipv4_within_ipv6_is_ipv4() {
    // Listens for both protocols.
    let listener = TcpListener::bind("[::]:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let client = TcpStream::connect(SocketAddr::from(([127, 0, 0, 1], port))).unwrap();
    let server = listener.accept().unwrap().0;
    assert!(server.local_addr().unwrap().is_ipv6());
    let [_, identity] = assert_pair(&client, &server, KindT::Tcp);
    assert_eq!(identity.from, format!("127.0.0.1:{port}"));
}

#[test]
fn a_connection_that_has_the_addresses_of_one_before_is_another() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let connect = |from: SocketAddr| {
        let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        rustix::net::sockopt::set_socket_reuseaddr(&socket, true).unwrap();
        // Reset on close, so that the addresses are free at once.
        rustix::net::sockopt::set_socket_linger(&socket, Some(std::time::Duration::ZERO)).unwrap();
        rustix::net::bind(&socket, &from).unwrap();
        rustix::net::connect(&socket, &address).unwrap();
        (TcpStream::from(socket), listener.accept().unwrap().0)
    };
    let (old, _peer) = connect("127.0.0.1:0".parse().unwrap());
    let from = old.local_addr().unwrap();
    let stale = see(&old).unwrap();
    drop(old);
    let (new, peer) = connect(from);
    let [own, other] = assert_pair(&new, &peer, KindT::Tcp);
    assert_eq!(own.from, stale.from);
    assert_ne!(own.key, stale.key);
    assert_ne!(other.key.mirror(), stale.key, "the stale offer pairs with nobody");
}

#[test]
fn tcp_that_is_not_connected_to_this_host_is_refused() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    assert_eq!(reason(&listener), ReasonT::State);
    let fresh = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    assert_eq!(reason(&fresh), ReasonT::State);
    let (a, b) = tcp("127.0.0.1:0");
    a.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(reason(&a), ReasonT::State);
    drop(a);
    assert_eq!(reason(&b), ReasonT::State);
    // Not accepted yet, but there already.
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let early = see(&client).unwrap().key;
    let server = listener.accept().unwrap().0;
    assert_eq!(see(&server).unwrap().key, early.mirror());
}

#[test]
fn a_listener_is_not_taken_for_the_peer() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can make a connection without a peer");
        return;
    }
    let listener = TcpListener::bind("0.0.0.0:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let repair = |socket: &OwnedFd, value: i32| {
        let value = value.to_ne_bytes();
        set_option(socket, libc::IPPROTO_TCP, libc::TCP_REPAIR, &value).unwrap();
    };
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    repair(&socket, 1);
    rustix::net::bind(&socket, &SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    rustix::net::connect(&socket, &SocketAddr::from(([127, 0, 0, 2], port))).unwrap();
    // Without asking the peer, which is not there.
    repair(&socket, -1);
    assert_eq!(reason(&socket), ReasonT::NoPeer);
}

#[test]
fn unix_sockets_of_every_origin_are_paired() {
    let (a, b) = unix();
    let [identity, _] = assert_pair(&a, &b, KindT::Unix);
    assert!(identity.from.starts_with("socket:["));
    assert!(identity.holds[0] >= 212_992 && identity.holds[1] == 0);
    let path = std::env::temp_dir().join(format!("sojourn-identity-{}", std::process::id()));
    let listener = UnixListener::bind(&path).unwrap();
    let client = UnixStream::connect(&path).unwrap();
    assert_eq!(reason(&client), ReasonT::State, "not accepted yet");
    let server = listener.accept().unwrap().0;
    std::fs::remove_file(&path).unwrap();
    let [_, identity] = assert_pair(&client, &server, KindT::Unix);
    assert_eq!(identity.from, path.to_string_lossy());
    assert_eq!(reason(&listener), ReasonT::State);
}

#[test]
fn many_unix_sockets_are_asked_for_at_once_and_still_paired_right() {
    let mut diag = Diag::new(false).unwrap();
    let mut key = |end: &UnixStream| identify(end.as_fd(), &mut diag).unwrap().key;
    // So many that single questions cost too much: the answers for the later ones come from the
    // last question for all, or from a new one.
    let pairs: Vec<_> = (0..300).map(|_| unix()).collect();
    for _ in 0..3 {
        for (a, b) in &pairs {
            assert_eq!(key(a), key(b).mirror());
        }
    }
    for _ in 0..300 {
        let (a, b) = unix();
        assert_eq!(key(&a), key(&b).mirror());
    }
}

#[test]
fn unix_sockets_that_are_half_closed_or_alone_are_refused() {
    let (a, b) = unix();
    a.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(reason(&b), ReasonT::State);
    let (a, b) = unix();
    drop(a);
    assert_eq!(reason(&b), ReasonT::State);
}

/// Looks at it as a server does that carries.
fn see_carried(end: &UdpSocket) -> Result<Identity, ReasonT> {
    let mut diag = Diag::new(true).unwrap();
    identify(end.as_fd(), &mut diag)
}

/// A UDP socket with these options set, bound afterwards.
fn udp(address: SocketAddr, options: &[(i32, i32)]) -> UdpSocket {
    let domain = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = rustix::net::socket(domain, SocketType::DGRAM, None).unwrap();
    for (level, name) in options {
        set_option(&socket, *level, *name, &1i32.to_ne_bytes()).unwrap();
    }
    rustix::net::bind(&socket, &address).unwrap();
    UdpSocket::from(socket)
}

const REUSEADDR: (i32, i32) = (libc::SOL_SOCKET, libc::SO_REUSEADDR);

#[test]
fn udp_sockets_that_want_to_be_told_can_be_carried() {
    let any = SocketAddr::from(([0, 0, 0, 0], 0));
    let obeyed = [
        (libc::IPPROTO_IP, libc::IP_PKTINFO),
        (libc::IPPROTO_IP, libc::IP_RECVTOS),
        (libc::IPPROTO_IP, libc::IP_RECVTTL),
        (libc::SOL_SOCKET, libc::SO_TIMESTAMP),
    ];
    assert_eq!(see_carried(&udp(any, &obeyed)).unwrap().kind, KindT::Udp);
    let fine = (libc::SOL_SOCKET, libc::SO_TIMESTAMPNS);
    assert_eq!(see_carried(&udp(any, &[fine])).unwrap().kind, KindT::Udp);
    for other in [(libc::SOL_SOCKET, libc::SO_RXQ_OVFL), (libc::IPPROTO_IP, libc::IP_RECVOPTS)] {
        assert_eq!(see_carried(&udp(any, &[other])).unwrap_err(), ReasonT::Option, "{other:?}");
    }
}

#[test]
fn udp_sockets_that_may_be_joined_are_refused() {
    let any = SocketAddr::from(([0, 0, 0, 0], 0));
    assert!(see_carried(&udp(any, &[])).is_ok());
    for option in [libc::SO_REUSEADDR, libc::SO_REUSEPORT] {
        let socket = udp(any, &[(libc::SOL_SOCKET, option)]);
        assert_eq!(see_carried(&socket).unwrap_err(), ReasonT::SharedPort);
    }
}

#[test]
fn who_else_is_connected_to_a_peer_is_found() {
    let here = SocketAddr::from(([127, 0, 0, 1], 0));
    let peers = [udp(here, &[]), udp(here, &[])].map(|peer| peer.local_addr().unwrap());
    let one = udp(here, &[REUSEADDR]);
    let local = one.local_addr().unwrap();
    one.connect(peers[0]).unwrap();
    let cookie = SocketCookie(rustix::net::sockopt::socket_cookie(&one).unwrap());
    let is_shared = || {
        let found = Diag::new(false).unwrap().own.udp_is_shared(local, peers[0], cookie);
        found.unwrap()
    };
    assert!(!is_shared());
    // Neither one that is not connected nor one with another peer.
    let _waits = udp(local, &[REUSEADDR]);
    let other = udp(local, &[REUSEADDR]);
    other.connect(peers[1]).unwrap();
    assert!(!is_shared());
    other.connect(peers[0]).unwrap();
    assert!(is_shared());
    drop(other);
    assert!(!is_shared());
    // The same address as an IPv6 socket has it.
    let mapped = |ip: SocketAddr| {
        let std::net::IpAddr::V4(v4) = ip.ip() else { unreachable!() };
        SocketAddr::new(v4.to_ipv6_mapped().into(), ip.port())
    };
    let both = udp(mapped(local), &[REUSEADDR]);
    both.connect(mapped(peers[0])).unwrap();
    assert!(is_shared());
}

#[test]
fn other_kinds_are_refused() {
    for kind in [SocketType::SEQPACKET, SocketType::DGRAM] {
        let pair = socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).unwrap();
        assert_eq!(reason(&pair.0), ReasonT::Kind);
    }
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(socket.local_addr().unwrap()).unwrap();
    assert_eq!(reason(&socket), ReasonT::Kind);
    assert_eq!(reason(std::fs::File::open("/dev/null").unwrap()), ReasonT::Kind);
    assert_eq!(reason(std::fs::File::open("/").unwrap()), ReasonT::Kind);
    let path = rustix::fs::open("/dev/null", OFlags::PATH, rustix::fs::Mode::empty()).unwrap();
    assert_eq!(reason(&path), ReasonT::Kind);
    // IPPROTO_MPTCP, where there is one.
    let mptcp = rustix::net::Protocol::from_raw(262.try_into().unwrap());
    if let Ok(socket) = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, Some(mptcp)) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        rustix::net::connect(&socket, &listener.local_addr().unwrap()).unwrap();
        assert_eq!(reason(&socket), ReasonT::Kind);
    }
}

#[test]
fn plain_tcp_accepted_by_a_listener_of_multipath_tcp_may_move() {
    let mptcp = rustix::net::Protocol::from_raw(262.try_into().unwrap());
    let Ok(listener) = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, Some(mptcp))
    else {
        eprintln!("not tested: no Multipath TCP");
        return;
    };
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    rustix::net::bind(&listener, &any).unwrap();
    rustix::net::listen(&listener, 1).unwrap();
    let at = SocketAddr::try_from(rustix::net::getsockname(&listener).unwrap()).unwrap();
    let client = TcpStream::connect(at).unwrap();
    let accepted = rustix::net::accept(&listener).unwrap();
    assert!(see(&client).is_ok());
    assert!(see(&accepted).is_ok());
}

#[test]
fn options_that_only_the_kernel_honours_are_refused() {
    let one = 1i32.to_ne_bytes();
    for (name, value) in [
        (10, 1),  // SO_OOBINLINE
        (16, 1),  // SO_PASSCRED
        (18, 2),  // SO_RCVLOWAT
        (29, 1),  // SO_TIMESTAMP
        (35, 1),  // SO_TIMESTAMPNS
        (37, 16), // SO_TIMESTAMPING
        (42, 0),  // SO_PEEK_OFF
        (63, 1),  // SO_TIMESTAMP_NEW
    ] {
        let value = i32::to_ne_bytes(value);
        let (a, b) = unix();
        let is_set = set_option(&a, libc::SOL_SOCKET, name, &value).is_ok();
        assert_eq!(see(&a).is_err(), is_set, "option {name} of a Unix socket");
        assert!(!is_set || reason(&a) == ReasonT::Option);
        assert!(see(&b).is_ok());
        let (a, _b) = tcp("127.0.0.1:0");
        let is_set = set_option(&a, libc::SOL_SOCKET, name, &value).is_ok();
        assert_eq!(see(&a).is_err(), is_set, "option {name} of a TCP socket");
    }
    // A filter that lets everything pass: return 0xffff.
    let (a, _b) = tcp("127.0.0.1:0");
    let filter = libc::sock_filter { code: 6, jt: 0, jf: 0, k: 0xffff };
    let program = [1u64.to_ne_bytes(), (&raw const filter as u64).to_ne_bytes()].concat();
    set_option(&a, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program).unwrap();
    assert_eq!(reason(&a), ReasonT::Option);
    if rustix::process::geteuid().is_root() {
        let (a, _b) = tcp("127.0.0.1:0");
        set_option(&a, libc::IPPROTO_TCP, libc::TCP_REPAIR, &one).unwrap();
        assert_eq!(reason(&a), ReasonT::Option);
    }
    let (a, _b) = unix();
    rustix::net::sockopt::set_socket_send_buffer_size(&a, 1).unwrap();
    assert!(see(&a).unwrap().holds[0] < 8192);
}

#[test]
fn pipes_are_told_apart_and_by_their_ends() {
    let (reader, writer) = pipe(PipeFlags::empty());
    let [identity, _] = assert_pair(&reader, &writer, KindT::Pipe);
    assert!(matches!(identity.key, Key::Pipe { writes: false, .. }));
    assert_eq!(identity.holds, [64 << 10, 0]);
    let (other, _writer) = pipe(PipeFlags::empty());
    assert_ne!(see(&other).unwrap().key, identity.key);
    rustix::pipe::fcntl_setpipe_size(&other, 4096).unwrap();
    assert_eq!(see(&other).unwrap().holds, [4096, 0]);
}

#[test]
fn pipes_in_packets_with_names_or_for_both_are_refused() {
    let (_reader, writer) = pipe(PipeFlags::DIRECT);
    assert_eq!(reason(&writer), ReasonT::Option);
    let (reader, _writer) = pipe(PipeFlags::empty());
    let anew = std::fs::File::options()
        .read(true)
        .write(true)
        .open(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&reader)));
    assert_eq!(reason(anew.unwrap()), ReasonT::Kind);
    let name = fifo("both (deleted)");
    let fifo = std::fs::File::options().read(true).write(true).open(&name).unwrap();
    let writer = std::fs::File::options().write(true).open(&name).unwrap();
    assert_eq!(reason(&writer), ReasonT::Named, "it is called as if it had no name");
    std::fs::remove_file(&name).unwrap();
    assert_eq!(reason(&fifo), ReasonT::Kind);
}

/// Makes a FIFO.
fn fifo(name: &str) -> std::path::PathBuf {
    let name = std::env::temp_dir().join(format!("sojourn-fifo-{}-{name}", std::process::id()));
    let mode = rustix::fs::Mode::RWXU;
    rustix::fs::mknodat(rustix::fs::CWD, &name, FileType::Fifo, mode, 0).unwrap();
    name
}

#[test]
fn a_fifo_is_a_pipe_once_its_last_name_is_removed() {
    let name = fifo("one");
    let other = name.with_extension("other");
    std::fs::hard_link(&name, &other).unwrap();
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let mode = rustix::fs::Mode::empty();
    let reader = rustix::fs::openat(rustix::fs::CWD, &name, flags, mode).unwrap();
    let writer = std::fs::File::options().write(true).open(&name).unwrap();
    let both = || [reason(&reader), reason(&writer)];
    assert_eq!(both(), [ReasonT::Named; 2]);
    std::fs::remove_file(&name).unwrap();
    assert_eq!(both(), [ReasonT::Named; 2], "there is another name");
    std::fs::remove_file(&other).unwrap();
    let [reading, writing] = [see(&reader).unwrap(), see(&writer).unwrap()];
    assert_eq!(reading.key, writing.key.mirror());
    assert!(matches!(reading.object, Object::Fifo { writes: false, .. }));
    assert!(matches!(writing.object, Object::Fifo { writes: true, .. }));
    assert_eq!((reading.kind, reading.from), (KindT::Pipe, writing.to));
}

/// The watch that names a pipe asks its file system for the right to read it.
#[test]
fn a_fifo_in_a_file_system_that_may_ask_others_is_refused() {
    let folder = std::env::temp_dir().join(format!("sojourn-fifo-fs-{}", std::process::id()));
    std::fs::create_dir(&folder).unwrap();
    let place = std::ffi::CString::new(folder.to_str().unwrap()).unwrap();
    let ends = |kind: &'static core::ffi::CStr| {
        let (folder, place) = (folder.clone(), place.clone());
        // A thread with mounts of its own.
        let mounted = move || {
            raw::new_mount(kind, &place).ok()?;
            let name = folder.join("fifo");
            let mode = rustix::fs::Mode::RWXU;
            rustix::fs::mknodat(rustix::fs::CWD, &name, FileType::Fifo, mode, 0).ok()?;
            let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
            let reader = rustix::fs::open(&name, flags, rustix::fs::Mode::empty()).ok()?;
            let writer = std::fs::File::options().write(true).open(&name).ok()?;
            std::fs::remove_file(&name).ok()?;
            Some((see(&reader).map(drop), see(&writer).map(drop)))
        };
        std::thread::spawn(mounted).join().unwrap()
    };
    let seen = [c"tmpfs", c"ramfs"].map(ends);
    std::fs::remove_dir(&folder).unwrap();
    let [Some(tmpfs), Some(ramfs)] = seen else {
        return eprintln!("skipped: nothing can be mounted here");
    };
    assert_eq!(tmpfs, (Ok(()), Ok(())));
    let refused = Err(ReasonT::Kind);
    assert_eq!(ramfs, (refused, refused), "a file system that nobody has looked at");
}

/// Runs in a network name space of its own, if this user may make one.
fn elsewhere<T: Send + 'static>(f: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let thread = std::thread::spawn(move || {
        raw::new_netns().ok()?;
        let up = std::process::Command::new("ip").args(["link", "set", "lo", "up"]).status();
        up.is_ok_and(|status| status.success()).then(f)
    });
    let made = thread.join().unwrap();
    if made.is_none() {
        eprintln!("skipped: no network name space can be made here");
    }
    made
}

/// A connection of 10.9.9.1 with a host that does not exist, signed with a key or not.
fn with_another_host(is_signed: bool) -> OwnedFd {
    let set = |socket: &OwnedFd, name: i32, value: &[u8]| {
        set_option(socket, libc::IPPROTO_TCP, name, value).unwrap();
    };
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    if is_signed {
        // `struct tcp_md5sig`: the peer's address, the length of the key at 130, the key at 136.
        let mut key = [0; 216];
        key[..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
        key[4..8].copy_from_slice(&[10, 9, 9, 2]);
        key[130..132].copy_from_slice(&3u16.to_ne_bytes());
        key[136..139].copy_from_slice(b"key");
        set(&socket, libc::TCP_MD5SIG, &key);
    }
    // Without asking the peer, which is not there.
    set(&socket, libc::TCP_REPAIR, &1i32.to_ne_bytes());
    rustix::net::bind(&socket, &SocketAddr::from(([10, 9, 9, 1], 0))).unwrap();
    rustix::net::connect(&socket, &SocketAddr::from(([10, 9, 9, 2], 179))).unwrap();
    set(&socket, libc::TCP_REPAIR, &(-1i32).to_ne_bytes());
    socket
}

/// The engine signs no segment, and would take those that nobody has signed.
#[test]
fn a_signed_connection_with_another_host_is_refused() {
    let seen = elsewhere(|| {
        for words in [
            "link add away type veth peer name other",
            "address add 10.9.9.1/24 dev away",
            "link set away up",
            "link set other up",
        ] {
            let done = std::process::Command::new("ip").args(words.split(' ')).status();
            if !done.is_ok_and(|status| status.success()) {
                return None;
            }
        }
        let mut diag = Diag::new(true).unwrap();
        let mut see = |is_signed| {
            let seen = identify(with_another_host(is_signed).as_fd(), &mut diag);
            seen.map(|seen| (seen.kind, seen.key.is_carried()))
        };
        Some([see(false), see(true)])
    });
    let Some(seen) = seen.flatten() else { return eprintln!("skipped: no interface") };
    assert_eq!(seen, [Ok((KindT::Tcp, true)), Err(ReasonT::Option)]);
}

#[test]
fn sessions_of_another_network_name_space_are_paired_there() {
    let Some((tcp, unix)) = elsewhere(|| (tcp("127.0.0.1:0"), unix())) else { return };
    assert_pair(&tcp.0, &tcp.1, KindT::Tcp);
    assert_pair(&unix.0, &unix.1, KindT::Unix);
    let mut diag = Diag::new(false).unwrap();
    identify(tcp.0.as_fd(), &mut diag).unwrap();
    assert!(diag.holds_other());
    diag.let_go();
    assert!(!diag.holds_other());
}

#[test]
fn a_unix_connection_between_name_spaces_is_in_that_of_the_one_that_connected() {
    let path = std::env::temp_dir().join(format!("sojourn-between-{}", std::process::id()));
    let listener = UnixListener::bind(&path).unwrap();
    let there = path.clone();
    let client = elsewhere(move || UnixStream::connect(there).unwrap());
    std::fs::remove_file(&path).unwrap();
    let Some(client) = client else { return };
    let server = listener.accept().unwrap().0;
    let space = |socket: &UnixStream| raw::netns_cookie(socket).unwrap();
    assert_eq!(space(&client), space(&server));
    assert_ne!(space(&client), Diag::new(false).unwrap().own.space);
    assert_pair(&client, &server, KindT::Unix);
}
