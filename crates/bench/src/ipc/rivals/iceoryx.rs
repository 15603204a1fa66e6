//! The crate `iceoryx2`: publish-subscribe each way, its fastest pattern; blocking by its event
//! service. Its files go to a folder and a prefix of this run, which the coordinator removes
//! (`scratch.rs`).
#![allow(
    unsafe_code,
    reason = "filling a loaned sample in place means asserting that it is filled"
)]

use anyhow::{Result, anyhow};
use iceoryx2::port::{
    listener::Listener, notifier::Notifier, publisher::Publisher, subscriber::Subscriber,
};
use iceoryx2::prelude::*;

use crate::ipc::row::{
    Client, Kind, Mode, Row, SIZE_MAX, Server as ServerSide, Sides, Sink, Source, produce,
};
use crate::ipc::scratch;

/// The row.
pub(super) struct Iceoryx {
    /// True: the message is made in the loaned memory instead of being copied into it.
    pub(super) in_place: bool,
}

impl Row for Iceoryx {
    fn name(&self) -> &str {
        if self.in_place { "iceoryx2 (loan, no copy)" } else { "iceoryx2" }
    }

    fn kind(&self) -> Kind {
        if self.in_place { Kind::RivalInPlace } else { Kind::Rival }
    }

    fn link(&self, mode: Mode) -> Result<Sides> {
        let name = format!("bench-{}-{mode:?}", self.in_place);
        let far = name.clone();
        let (spins, in_place) = (mode.spins(), self.in_place);
        Ok(Sides::new(
            move || Side::new(&name, "reply", "request", spins, in_place),
            move || Side::new(&far, "request", "reply", spins, in_place),
        ))
    }
}

fn wrong(error: impl std::fmt::Debug) -> anyhow::Error {
    anyhow!("iceoryx2: {error:?}")
}

/// One side. Fields drop in order, because the ports have to go before their node.
struct Side {
    publisher: Publisher<ipc::Service, [u8], ()>,
    subscriber: Subscriber<ipc::Service, [u8], ()>,
    bell: Option<Bell>,
    in_place: bool,
    source: Source,
    sink: Sink,
    _node: Node<ipc::Service>,
}

impl Side {
    fn new(name: &str, to: &str, from: &str, spins: bool, in_place: bool) -> Result<Self> {
        set_log_level(LogLevel::Fatal);
        let mut config = Config::default();
        config.global.prefix =
            FileName::new(scratch::iceoryx_prefix().as_bytes()).map_err(wrong)?;
        let root = Path::new(scratch::iceoryx_root().as_bytes()).map_err(wrong)?;
        config.global.set_root_path(&root);
        let node = NodeBuilder::new().config(&config).create::<ipc::Service>().map_err(wrong)?;
        let service = |direction: &str| ServiceName::new(&format!("{name}/{direction}"));
        let open = |direction| {
            node.service_builder(&service(direction).map_err(wrong)?)
                .publish_subscribe::<[u8]>()
                .open_or_create()
                .map_err(wrong)
        };
        let longest = SIZE_MAX;
        let publisher =
            open(to)?.publisher_builder().initial_max_slice_len(longest).create().map_err(wrong)?;
        let subscriber = open(from)?.subscriber_builder().create().map_err(wrong)?;
        let bell = if spins { None } else { Some(bell(&node, name, to, from)?) };
        let (source, sink) = (Source::new(), Sink::default());
        Ok(Self { publisher, subscriber, bell, in_place, source, sink, _node: node })
    }

    fn give(&mut self, size: usize) -> Result<()> {
        let mut sample = self.publisher.loan_slice_uninit(size.max(1)).map_err(wrong)?;
        let sample = if self.in_place {
            let payload = sample.payload_mut();
            // SAFETY: `MaybeUninit<u8>` has the layout of `u8`; the memory is mapped, and every
            // byte of shared memory has a value, so treating it as filled is sound.
            let bytes = unsafe { &mut *(std::ptr::from_mut(payload) as *mut [u8]) };
            produce(&mut bytes[..size], self.source.next_number());
            // SAFETY: as for `bytes`: every byte of the mapped memory has a value.
            unsafe { sample.assume_init() }
        } else {
            let message = self.source.next(size);
            sample.write_from_slice(if message.is_empty() { &[0] } else { message })
        };
        sample.send().map_err(wrong)?;
        self.ring()
    }

    fn acknowledge(&self) -> Result<()> {
        let sample = self.publisher.loan_slice_uninit(1).map_err(wrong)?;
        sample.write_from_slice(&[1]).send().map_err(wrong)?;
        self.ring()
    }

    fn ring(&self) -> Result<()> {
        if let Some(Bell { notifier, .. }) = &self.bell {
            notifier.notify().map_err(wrong)?;
        }
        Ok(())
    }

    fn take(&mut self, size: Option<usize>) -> Result<()> {
        loop {
            if let Some(sample) = self.subscriber.receive().map_err(wrong)? {
                return match size {
                    Some(size) => self.sink.take_in_place(&sample.payload()[..size], size),
                    None => Ok(()),
                };
            }
            if let Some(Bell { listener, .. }) = &self.bell {
                listener.blocking_wait(|_| {}).map_err(wrong)?;
            }
        }
    }
}

/// What wakes the other side, and what is woken by it.
struct Bell {
    notifier: Notifier<ipc::Service>,
    listener: Listener<ipc::Service>,
}

fn bell(node: &Node<ipc::Service>, name: &str, to: &str, from: &str) -> Result<Bell> {
    let open = |direction: &str| {
        let name = ServiceName::new(&format!("{name}/{direction}/bell")).map_err(wrong)?;
        node.service_builder(&name).event().open_or_create().map_err(wrong)
    };
    let notifier = open(to)?.notifier_builder().create().map_err(wrong)?;
    let listener = open(from)?.listener_builder().create().map_err(wrong)?;
    Ok(Bell { notifier, listener })
}

impl ServerSide for Side {
    fn serve(&mut self, size: usize, count: u64) -> Result<()> {
        for _ in 0..count {
            self.take(Some(size))?;
            self.acknowledge()?;
        }
        Ok(())
    }
}

impl Client for Side {
    fn call(&mut self, size: usize, count: u64) -> Result<()> {
        for _ in 0..count {
            self.give(size)?;
            self.take(None)?;
        }
        Ok(())
    }
}
