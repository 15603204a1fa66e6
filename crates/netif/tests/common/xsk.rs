//! An XDP program of six instructions that passes every frame of a queue to an AF_XDP socket
//! (bpf(2)).
//!
//! The project's own programs are the filter's; this one allows a test of a socket without the
//! filter. It is attached in generic mode, which leaves the far end of the veth its segmentation
//! offload, and is detached when its link's descriptor closes.

use rustix::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

const MAP_CREATE: i32 = 0;
const MAP_UPDATE: i32 = 2;
const PROG_LOAD: i32 = 5;
const LINK_CREATE: i32 = 28;

const MAP_TYPE_XSKMAP: u32 = 17;
const PROG_TYPE_XDP: u32 = 6;
const ATTACH_XDP: u32 = 37;
const XDP_PASS: i32 = 2;
const XDP_FLAGS_SKB: u32 = 2;
const REDIRECT_MAP: i32 = 51;

/// A program on an interface, and the map in which it finds sockets.
#[derive(Debug)]
pub(crate) struct Steering {
    map: OwnedFd,
    _program: OwnedFd,
    _link: OwnedFd,
}

impl Steering {
    /// Attaches the program to the interface with this index in this thread's network namespace.
    pub(crate) fn new(index: u32) -> Self {
        let map = map_create();
        let program = program_load(map.as_raw_fd());
        let link = link_create(program.as_raw_fd(), index);
        Self { map, _program: program, _link: link }
    }

    /// Makes the socket the receiver of a queue.
    pub(crate) fn give(&self, queue: u32, socket: BorrowedFd<'_>) {
        let value = socket.as_raw_fd();
        #[repr(C)]
        struct Update {
            map: u32,
            pad: u32,
            key: u64,
            value: u64,
            flags: u64,
        }
        let update = Update {
            map: self.map.as_raw_fd() as u32,
            pad: 0,
            key: (&raw const queue) as u64,
            value: (&raw const value) as u64,
            flags: 0,
        };
        // SAFETY: key and value are alive and have the map's sizes.
        let done = unsafe { bpf(MAP_UPDATE, &update) };
        assert!(done >= 0, "map update: {}", std::io::Error::last_os_error());
    }
}

/// Calls bpf(2).
///
/// # Safety
/// `attributes` has the layout that `command` expects.
unsafe fn bpf<T>(command: i32, attributes: &T) -> i64 {
    // SAFETY: the contract of this function, which the caller keeps.
    unsafe {
        libc::syscall(libc::SYS_bpf, command, core::ptr::from_ref(attributes), size_of::<T>())
    }
}

fn owned(made: i64, what: &str) -> OwnedFd {
    assert!(made >= 0, "{what}: {}", std::io::Error::last_os_error());
    // SAFETY: a new descriptor that nothing else owns.
    unsafe { OwnedFd::from_raw_fd(made as RawFd) }
}

fn map_create() -> OwnedFd {
    // The type, the sizes of keys and of values, the number of entries.
    let attributes: [u32; 4] = [MAP_TYPE_XSKMAP, 4, 4, 4];
    // SAFETY: the beginning of the command's attributes; the kernel takes the rest as zero.
    owned(unsafe { bpf(MAP_CREATE, &attributes) }, "map")
}

/// Encodes an instruction: code, registers (the source in the high half), offset, immediate value.
const fn instruction(code: u8, registers: u8, offset: i16, value: i32) -> u64 {
    code as u64
        | (registers as u64) << 8
        | (offset as u16 as u64) << 16
        | (value as u32 as u64) << 32
}

fn program_load(map: RawFd) -> OwnedFd {
    let program = [
        // r2 = ctx->rx_queue_index
        instruction(0x61, 0x12, 16, 0),
        // r1 = map
        instruction(0x18, 0x11, 0, map),
        instruction(0, 0, 0, 0),
        // r3 = the action if there is no socket
        instruction(0xb7, 0x03, 0, XDP_PASS),
        // return bpf_redirect_map(r1, r2, r3)
        instruction(0x85, 0, 0, REDIRECT_MAP),
        instruction(0x95, 0, 0, 0),
    ];
    #[repr(C)]
    struct Load {
        kind: u32,
        count: u32,
        program: u64,
        license: u64,
        log: [u64; 3],
    }
    let attributes = Load {
        kind: PROG_TYPE_XDP,
        count: program.len() as u32,
        program: program.as_ptr() as u64,
        license: c"MIT".as_ptr() as u64,
        log: [0; 3],
    };
    // SAFETY: program and license are alive.
    owned(unsafe { bpf(PROG_LOAD, &attributes) }, "program")
}

fn link_create(program: RawFd, index: u32) -> OwnedFd {
    let attributes: [u32; 4] = [program as u32, index, ATTACH_XDP, XDP_FLAGS_SKB];
    // SAFETY: the beginning of the command's attributes; the kernel takes the rest as zero.
    owned(unsafe { bpf(LINK_CREATE, &attributes) }, "link")
}
