//! Session records on their way from one process to another: memory files without a name, sealed
//! against changes (memfd_create(2), fcntl(2)).
//!
//! The receiver copies the file once and trusts none of it. Not here: the record's format
//! (`sojourn_proto::record`).

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::Errno;
use sojourn_proto::record::{RecordError, SessionRecord};

/// The largest record that is opened (bytes): both queues of the largest connection, and a little.
const MAX: u64 = 96 << 20;

/// The reason why a file has no usable record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SealedError {
    /// The file is larger than any record.
    TooLarge,
    /// The file can still be changed, or is not memory: reading it could block for as long as its
    /// owner likes.
    NotSealed,
    /// The file cannot be read.
    System(Errno),
    /// The file's content is not a record.
    Record(RecordError),
}

impl core::fmt::Display for SealedError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::TooLarge => f.write_str("larger than any record"),
            Self::NotSealed => f.write_str("not sealed memory"),
            Self::System(error) => write!(f, "cannot be read: {error}"),
            Self::Record(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for SealedError {}

/// Makes a sealed file with the record. Its queues are not copied on the way, so that a program
/// without much memory can still send a session home.
///
/// # Errors
/// No descriptors or no memory left.
pub fn pack(record: &SessionRecord) -> Result<OwnedFd, Errno> {
    let file = empty()?;
    pack_into(record, file.as_fd())?;
    Ok(file)
}

/// Writes the record into a file of [`empty`], and seals that.
///
/// # Errors
/// No memory left.
pub fn pack_into(record: &SessionRecord, file: BorrowedFd<'_>) -> Result<(), Errno> {
    let mut pieces = Pieces { file, held: [0; HELD], len: 0 };
    let mut result = Ok(());
    record.encode_to(&mut |piece| {
        if result.is_ok() {
            result = pieces.put(piece);
        }
    });
    result?;
    pieces.end()
}

/// Bytes of short pieces that are written together; of a caller's stack.
const HELD: usize = 512;

/// A file in the making, from many pieces.
struct Pieces<'f> {
    file: BorrowedFd<'f>,
    held: [u8; HELD],
    len: usize,
}

impl Pieces<'_> {
    fn put(&mut self, piece: &[u8]) -> Result<(), Errno> {
        if self.len + piece.len() > HELD {
            write_all(self.file, &self.held[..self.len])?;
            self.len = 0;
        }
        // A queue: its bytes go to the file from where they are.
        if piece.len() > HELD {
            return write_all(self.file, piece);
        }
        self.held[self.len..self.len + piece.len()].copy_from_slice(piece);
        self.len += piece.len();
        Ok(())
    }

    fn end(self) -> Result<(), Errno> {
        write_all(self.file, &self.held[..self.len])?;
        seal_file(self.file)
    }
}

/// Makes a file for a record that is to come ([`pack_into`]): until then it is not sealed.
///
/// # Errors
/// No descriptors left.
pub fn empty() -> Result<OwnedFd, Errno> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    rustix::fs::memfd_create("sojourn-record", flags)
}

fn write_all(file: BorrowedFd<'_>, mut rest: &[u8]) -> Result<(), Errno> {
    while !rest.is_empty() {
        match rustix::io::write(file, rest) {
            Ok(len) => rest = &rest[len..],
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn seal_file(file: BorrowedFd<'_>) -> Result<(), Errno> {
    let seals = SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    rustix::fs::fcntl_add_seals(file, seals)
}

/// Makes a sealed file with any bytes, one piece after the other.
pub(crate) fn seal<'b>(pieces: impl IntoIterator<Item = &'b [u8]>) -> Result<OwnedFd, Errno> {
    let file = empty()?;
    pieces.into_iter().try_for_each(|piece| write_all(file.as_fd(), piece))?;
    seal_file(file.as_fd())?;
    Ok(file)
}

/// Returns true if a file is memory that nobody can change any more. Only memory has seals
/// (fcntl(2)).
pub(crate) fn is_sealed(file: impl AsFd) -> bool {
    let fixed = SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW;
    rustix::fs::fcntl_get_seals(file).is_ok_and(|seals| seals.contains(fixed))
}

/// Opens the record in a file, which must be sealed memory: another file is neither asked nor read.
///
/// # Errors
/// [`SealedError`].
pub fn open(file: impl AsFd) -> Result<SessionRecord, SealedError> {
    if !is_sealed(&file) {
        return Err(SealedError::NotSealed);
    }
    SessionRecord::decode(&read(file, MAX)?).map_err(SealedError::Record)
}

/// Reads a file of `max` bytes at most.
pub(crate) fn read(file: impl AsFd, max: u64) -> Result<Vec<u8>, SealedError> {
    let size = rustix::fs::fstat(&file).map_err(SealedError::System)?.st_size;
    let size = u64::try_from(size).ok().filter(|size| *size <= max).ok_or(SealedError::TooLarge)?;
    // What others have made must not end a process that has no memory for it.
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(size as usize).map_err(|_| SealedError::System(Errno::NOMEM))?;
    bytes.resize(size as usize, 0);
    // A file that has shrunk since gives fewer bytes, which are then checked like any.
    let len = read_at(file, &mut bytes, 0).map_err(SealedError::System)?;
    bytes.truncate(len);
    Ok(bytes)
}

/// Fills `bytes` from offset `start` of a file, as far as it goes. Returns the number of bytes.
pub(crate) fn read_at(file: impl AsFd, bytes: &mut [u8], start: u64) -> Result<usize, Errno> {
    let mut done = 0;
    while done < bytes.len() {
        match rustix::io::pread(&file, &mut bytes[done..], start + done as u64) {
            Ok(0) => break,
            Ok(more) => done += more,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sojourn_proto::record::{IpOptions, Kind, TcpRecord};

    #[test]
    fn what_was_packed_is_opened() {
        let record = SessionRecord {
            local: "192.0.2.1:1".parse().unwrap(),
            remote: Some("192.0.2.2:2".parse().unwrap()),
            ip: IpOptions::default(),
            kind: Kind::Tcp(TcpRecord { receive_queue: vec![7; 100_000], ..TcpRecord::default() }),
        };
        let file = pack(&record).unwrap();
        assert_eq!(open(&file), Ok(record));
        assert!(rustix::io::write(&file, b"x").is_err(), "it can still be changed");
    }

    #[test]
    fn what_is_no_record_is_refused() {
        let memory = || {
            let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
            rustix::fs::memfd_create("test", flags).unwrap()
        };
        let sealed = |file: OwnedFd| {
            let seals = SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW;
            rustix::fs::fcntl_add_seals(&file, seals).unwrap();
            open(&file)
        };
        assert!(matches!(sealed(memory()), Err(SealedError::Record(_))));
        let large = memory();
        rustix::fs::ftruncate(&large, MAX + 1).unwrap();
        assert_eq!(sealed(large), Err(SealedError::TooLarge));
        // Reading these could wait, or give something else each time.
        assert_eq!(open(memory()), Err(SealedError::NotSealed));
        assert_eq!(open(std::io::pipe().unwrap().0), Err(SealedError::NotSealed));
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        assert_eq!(open(file), Err(SealedError::NotSealed));
    }
}
