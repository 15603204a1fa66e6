//! The filter on each program's packet socket: one eBPF program for each owner; the programs differ
//! only in the owner's number.
//!
//! aya loads each program of an object once, and creates new maps each time. So this file takes the
//! program out of the object, writes the existing maps and the owner's number into it, and loads it
//! by itself.

use crate::error::Failed;
use crate::loader::{Loaded, OWNED, object};
use crate::rule::OwnerId;
use crate::sys;
use aya_obj::Object;
use aya_obj::generated::bpf_insn;
use rustix::fd::{AsRawFd, OwnedFd};
use std::collections::HashSet;

/// The placeholder of the owner's number in the program: `sojourn_owned` in `bpf/filter.bpf.c`.
const STAND_IN: u64 = 0x536f_6a6f_4f77_6e72;
/// The opcode that loads a number of 64 bits, whose upper half is in the next instruction.
const LOAD_NUMBER: u8 = 0x18;

/// The program with the maps of one filter written into it.
pub(crate) struct Template {
    instructions: Vec<bpf_insn>,
    /// The index of the instruction that loads the owner's number.
    at: usize,
}

impl Template {
    pub(crate) fn new(loaded: &Loaded) -> Result<Self, Failed> {
        let bytes = object().ok_or_else(|| Failed::missing(OWNED))?;
        let wrong = |error| Failed::other("reading the owners' filter", error);
        let mut object = Object::parse(bytes).map_err(|error| Failed::other(OWNED, error))?;
        let maps = std::mem::take(&mut object.maps);
        let fds = loaded
            .map_fds()
            .filter_map(|one| Some((one.name, one.fd.as_raw_fd(), maps.get(one.name)?)));
        object.relocate_maps(fds, &HashSet::new()).map_err(wrong)?;
        let program = object.programs.get(OWNED).ok_or_else(|| Failed::missing(OWNED))?;
        let function = object.functions.remove(&program.function_key());
        let instructions = function.ok_or_else(|| Failed::missing(OWNED))?.instructions;
        let is_stand_in = |pair: &[bpf_insn]| {
            let number = (pair[1].imm as u32 as u64) << 32 | pair[0].imm as u32 as u64;
            pair[0].code == LOAD_NUMBER && number == STAND_IN
        };
        let at = instructions.windows(2).position(is_stand_in);
        Ok(Self { at: at.ok_or_else(|| Failed::missing(OWNED))?, instructions })
    }

    /// Loads the filter that accepts only the frames of `owner`.
    pub(crate) fn load(&self, owner: OwnerId) -> Result<OwnedFd, Failed> {
        let mut instructions = self.instructions.clone();
        instructions[self.at].imm = owner.0 as i32;
        instructions[self.at + 1].imm = 0;
        sys::load_socket_filter(OWNED, &instructions)
            .map_err(Failed::at("loading an owner's filter"))
    }
}
