//! The memory and descriptors that the server makes for the two sides of a stream.
//!
//! The server keeps descriptors of the memory, to give them out and to read the counters of bytes.
//! Reading does not wait for anybody. Writing by a call would wait for the file's lock, which a
//! client holds as long as it likes (it writes to the file itself, from a page that does not come):
//! so memory is mapped to be written, for that moment. Not here: the layout (`sojourn-stream`).

use crate::registry::{InboxDescriptors, SharedMemory};
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{EventfdFlags, eventfd};
use sojourn_ipc::rt::Descriptor;
use sojourn_pump::Counts;
use sojourn_pump::figures::Figures;
use sojourn_shm::{Access, Mapping, Segment, fault};
use sojourn_stream::{
    CONTROL_BYTES, Inbox, LayerTimes, Layout, TIMES_WISH_AT, figures_in_header, ledger_in_header,
    times_in_header, totals_in_header,
};
use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering;

/// Slots of an inbox.
pub const SLOTS: u32 = Inbox::SLOTS;

/// Descriptors kept free for clients to come and for the descriptors that they send.
pub(crate) const RESERVE: u64 = 128;

/// Makes regions and inboxes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Memory;

impl SharedMemory for Memory {
    fn region(&mut self, ring_bytes: [u32; 2]) -> Option<Descriptor> {
        let made = segment("sojourn-stream", Layout::new(ring_bytes)?.len());
        fault::point("sojournd.region");
        made
    }

    fn inbox(&mut self, is_apart: bool) -> Option<InboxDescriptors> {
        let memory = segment("sojourn-inbox", Inbox::LEN)?;
        let (ready, attention) = (event()?, event()?);
        let peer = [memory.clone(), ready.clone(), attention.clone()];
        let owner = match is_apart {
            false => peer.clone(),
            true => [memory, watch(&ready)?, watch(&attention)?],
        };
        Some(InboxDescriptors { owner, peer })
    }

    fn totals(&self, region: &Descriptor) -> [u64; 2] {
        header(region).and_then(|header| totals_in_header(&header)).unwrap_or_default()
    }

    fn counts(&self, region: &Descriptor) -> Counts {
        let words = header(region).and_then(|header| ledger_in_header(&header));
        words.map(|words| Counts::from_words(&words)).unwrap_or_default()
    }

    fn figures(&self, region: &Descriptor) -> Option<Figures> {
        Figures::from_words(&figures_in_header(&header(region)?)?)
    }

    fn times(&self, region: &Descriptor, until_s: u32) -> Option<LayerTimes> {
        // The word is the session's program's to read; nothing of the server's depends on it.
        let page = Mapping::new(region.as_fd()?, CONTROL_BYTES, Access::ReadWrite).ok()?;
        page.word32(TIMES_WISH_AT)?.store(until_s, Ordering::Relaxed);
        times_in_header(&header(region)?)
    }
}

/// A copy of a region's control page.
fn header(region: &Descriptor) -> Option<[u8; CONTROL_BYTES]> {
    let mut header = [0; CONTROL_BYTES];
    let len = rustix::io::pread(region.as_fd()?, &mut header[..], 0).ok()?;
    (len == CONTROL_BYTES).then_some(header)
}

fn segment(name: &str, len: usize) -> Option<Descriptor> {
    let (segment, _mapping) = Segment::create(name, len, Access::ReadWrite).ok()?;
    // The segment keeps its descriptor for itself, so the stream gets a duplicate.
    let fd = rustix::io::fcntl_dupfd_cloexec(&segment, 0).ok()?;
    // The kernel gives out the lowest free number, so this number tells how many are taken.
    let most = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let is_reserve = most.is_some_and(|most| fd.as_raw_fd() as u64 + RESERVE > most);
    (!is_reserve).then(|| Descriptor::from(fd))
}

fn event() -> Option<Descriptor> {
    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).ok().map(Descriptor::from)
}

/// Makes an epoll set that hears each write to an event (`sojourn_stream::Inbox`).
fn watch(event: &Descriptor) -> Option<Descriptor> {
    let set = epoll::create(epoll::CreateFlags::CLOEXEC).ok()?;
    epoll::add(&set, event.as_fd()?, EventData::new_u64(0), EventFlags::IN | EventFlags::ET)
        .ok()?;
    Some(Descriptor::from(set))
}
