//! The memory area of an AF_XDP socket: chunks to receive into, then chunks to send from.
//!
//! Not here: the rings. An address from a ring is accepted only if it lies in that ring's part of
//! the area, so that a chunk is never lent to a reader while the kernel has it, nor written by this
//! process while the kernel reads it.

use crate::map::Map;
use crate::xdp_ring::Descriptor;
use rustix::io;

/// The area.
#[derive(Debug)]
pub(crate) struct Umem {
    map: Map,
    chunk_len: usize,
    /// Bytes of the part to receive into.
    receive_len: usize,
}

impl Umem {
    /// Allocates the area; `chunk_len` must be a power of two.
    pub(crate) fn new(chunk_len: usize, receive: usize, send: usize) -> io::Result<Self> {
        let map = Map::anonymous(chunk_len * (receive + send))?;
        Ok(Self { map, chunk_len, receive_len: chunk_len * receive })
    }

    /// Returns the address, for the kernel.
    pub(crate) fn address(&self) -> u64 {
        self.map.address()
    }

    /// Returns the size of the area in bytes.
    pub(crate) const fn len(&self) -> usize {
        self.map.len()
    }

    /// Returns the size of a chunk in bytes.
    pub(crate) const fn chunk_len(&self) -> usize {
        self.chunk_len
    }

    /// Returns the addresses of the chunks to receive into.
    pub(crate) fn receive_chunks(&self) -> impl Iterator<Item = u64> + use<> {
        (0..self.receive_len as u64).step_by(self.chunk_len)
    }

    /// Returns the addresses of the chunks to send from.
    pub(crate) fn send_chunks(&self) -> impl Iterator<Item = u64> + use<> {
        (self.receive_len as u64..self.map.len() as u64).step_by(self.chunk_len)
    }

    /// Returns the chunk to receive into that contains `address`, if there is one.
    #[inline]
    pub(crate) fn receive_chunk(&self, address: u64) -> Option<u64> {
        let is_in = address < self.receive_len as u64;
        is_in.then_some(address & !(self.chunk_len as u64 - 1))
    }

    /// Returns the chunk to send from that contains `address`, if there is one.
    #[inline]
    pub(crate) fn send_chunk(&self, address: u64) -> Option<u64> {
        let is_in = (self.receive_len as u64..self.map.len() as u64).contains(&address);
        is_in.then_some(address & !(self.chunk_len as u64 - 1))
    }

    /// Returns the frame of an entry of the receive ring, if it lies within one chunk to receive
    /// into.
    ///
    /// # Safety
    /// The chunk must not be given back to the kernel before the borrow ends.
    #[inline]
    pub(crate) unsafe fn frame(&self, entry: Descriptor) -> Option<&[u8]> {
        let chunk = self.receive_chunk(entry.address)?;
        let end = entry.address.checked_add(u64::from(entry.len))?;
        if end > chunk + self.chunk_len as u64 {
            return None;
        }
        // SAFETY: the caller's contract; the kernel writes only to chunks that it was given, and
        // nobody else has the memory.
        unsafe { self.map.bytes(entry.address as usize, entry.len as usize) }
    }

    /// Returns a whole chunk to send from, to be written.
    ///
    /// # Safety
    /// The kernel must not have the chunk: it never got the chunk, or has completed it.
    #[inline]
    pub(crate) unsafe fn chunk_mut(&mut self, address: u64) -> Option<&mut [u8]> {
        if self.send_chunk(address) != Some(address) {
            return None;
        }
        // SAFETY: the caller's contract.
        unsafe { self.map.bytes_mut(address as usize, self.chunk_len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn umem() -> Umem {
        Umem::new(2048, 4, 2).unwrap()
    }

    #[test]
    fn the_two_parts_are_apart() {
        let umem = umem();
        assert_eq!(umem.receive_chunks().collect::<Vec<_>>(), [0, 2048, 4096, 6144]);
        assert_eq!(umem.send_chunks().collect::<Vec<_>>(), [8192, 10240]);
        assert_eq!(umem.receive_chunk(6144 + 300), Some(6144));
        assert_eq!(umem.receive_chunk(8192), None);
        assert_eq!((umem.send_chunk(8192), umem.send_chunk(8191)), (Some(8192), None));
        assert_eq!((umem.send_chunk(10239), umem.send_chunk(12288)), (Some(8192), None));
    }

    #[test]
    fn a_frame_lies_within_its_chunk() {
        let umem = umem();
        let len = |address, len| {
            // SAFETY: no kernel has the memory.
            unsafe { umem.frame(Descriptor { address, len }) }.map(<[u8]>::len)
        };
        assert_eq!(len(256, 1500), Some(1500));
        assert_eq!(len(2048, 2048), Some(2048));
        assert_eq!(len(2048, 2049), None);
        assert_eq!(len(6144 + 2000, 49), None);
        assert_eq!(len(8192, 10), None, "not one to receive into");
    }

    proptest! {
        #[test]
        fn hostile_descriptors_lead_nowhere(address: u64, near in 0u64..14000, len: u32, short in 0u32..4096) {
            let mut umem = umem();
            let base = umem.address() as usize;
            for address in [address, near] {
                for len in [len, short] {
                    // SAFETY: no kernel has the memory.
                    if let Some(frame) = unsafe { umem.frame(Descriptor { address, len }) } {
                        let range = frame.as_ptr_range();
                        prop_assert!(range.start as usize >= base && range.end as usize <= base + 8192);
                    }
                }
                // SAFETY: no kernel has the memory.
                if let Some(chunk) = unsafe { umem.chunk_mut(address) } {
                    prop_assert_eq!(chunk.len(), 2048);
                    prop_assert!(chunk.as_ptr() as usize >= base + 8192);
                }
            }
        }
    }
}
