//! For tests: runs of the loaded programs on made-up frames, and access to their state.

use crate::filter::Filter;
use crate::loader::{INGRESS, PORT_OUT, SELECT, XDP};
use crate::rule::OwnerId;
use crate::sys;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::io;

/// Words of `struct __sk_buff` up to and with `gso_size`.
const CONTEXT_WORDS: usize = 45;
const INTERFACE_WORD: usize = 10;
const GSO_SIZE_WORD: usize = 44;

/// A loaded program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// On the interface.
    Ingress,
    /// In the fanout group.
    Select,
    /// On the server's side of ports.
    PortOut,
    /// Before all other hooks.
    Xdp,
}

/// The filter on one owner's packet socket.
#[derive(Debug)]
pub struct Owned(OwnedFd);

impl Filter {
    /// Runs a program on a frame that arrives on interface `index`, and returns its result.
    ///
    /// # Errors
    /// The kernel's error for frames on which it does not run programs.
    pub fn probe(
        &self,
        program: Program,
        frame: &[u8],
        index: u32,
        gso_size: u32,
    ) -> io::Result<u32> {
        let name = match program {
            Program::Ingress => INGRESS,
            Program::Select => SELECT,
            Program::PortOut => PORT_OUT,
            Program::Xdp => XDP,
        };
        let fd = self.loaded.program(name).map_err(|error| error.source)?;
        match program {
            Program::Xdp => sys::test_run(fd, frame, &[]),
            _ => run(fd, frame, index, gso_size),
        }
    }

    /// Loads the owner's filter once more.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn probe_owned(&self, owner: OwnerId) -> io::Result<Owned> {
        self.template.load(owner).map(Owned).map_err(|error| error.source)
    }

    /// Returns the member of the group that the programs take for the owner's.
    pub fn probe_index(&self, owner: OwnerId) -> Option<u32> {
        self.loaded.place(owner).map(|place| place.index)
    }

    /// Writes a wrong member for an owner.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn probe_confuse(&mut self, owner: OwnerId, index: u32) -> io::Result<()> {
        let place = self.loaded.place(owner).unwrap_or_default();
        let place = crate::loader::SocketSlots { index, ..place };
        self.loaded.set_place(owner, place).map_err(|error| error.source)
    }
}

impl Owned {
    /// See [`Filter::probe`].
    ///
    /// # Errors
    /// See [`Filter::probe`].
    pub fn probe(&self, frame: &[u8], index: u32) -> io::Result<u32> {
        run(self.0.as_fd(), frame, index, 0)
    }
}

fn run(fd: BorrowedFd<'_>, frame: &[u8], index: u32, gso_size: u32) -> io::Result<u32> {
    let mut context = [0; CONTEXT_WORDS];
    context[INTERFACE_WORD] = index;
    context[GSO_SIZE_WORD] = gso_size;
    sys::test_run(fd, frame, &context)
}
