//! The objects that the dynamic loader has loaded, and their symbols: a replacement for dlsym(3).
//!
//! dlsym(3) itself is not used, for three reasons: before glibc 2.34 it is in another library and
//! has another version; a program may define a function of that name; and it takes locks, which a
//! signal handler must not wait for. This file only reads the tables that the loader has written.
//! Symbols are found only in objects that stay loaded as long as the program. Read elf(5) and
//! `link.h` first.

use crate::{linker, raw};
use core::ffi::{CStr, c_char, c_int};
use core::ops::Range;
use core::sync::atomic::{AtomicPtr, Ordering};

/// `struct link_map`: one loaded object. The list is in the order in which the loader searches
/// objects.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Object {
    /// The difference between addresses in memory and in the file.
    pub(crate) base: usize,
    name: *const c_char,
    dynamic: *const Dyn,
    next: *const Object,
    previous: *const Object,
}

/// `Elf64_Dyn`: an entry of the dynamic section.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dyn {
    pub(crate) tag: usize,
    pub(crate) value: usize,
}

/// The beginning of `struct r_debug`.
#[repr(C)]
struct Debug {
    version: c_int,
    first: *const Object,
}

/// `Elf64_Phdr`: an entry of the program header table.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segment {
    pub(crate) kind: u32,
    pub(crate) flags: u32,
    _offset: usize,
    address: usize,
    _physical: usize,
    _len_in_file: usize,
    len: usize,
    _align: usize,
}

impl Segment {
    /// Returns the segment's place in memory if the object is at `base`.
    pub(crate) fn range(&self, base: usize) -> Range<usize> {
        let start = base.wrapping_add(self.address);
        start..start.wrapping_add(self.len)
    }
}

/// Returns the segments of the file whose first page is at `base`.
///
/// # Safety
/// An ELF file must be mapped at `base`, and stay mapped.
pub(crate) unsafe fn segments_of_file(base: usize) -> &'static [Segment] {
    /// Offsets of `e_phoff` and `e_phnum` in `Elf64_Ehdr`.
    const AT: usize = 32;
    const COUNT: usize = 56;
    // SAFETY: the caller promises an ELF file at `base`.
    unsafe {
        let at = *((base + AT) as *const usize);
        let count = *((base + COUNT) as *const u16);
        core::slice::from_raw_parts((base + at) as *const Segment, count.into())
    }
}

/// Segment types: loaded memory, the dynamic section, the program header table, memory that becomes
/// read-only after relocation.
const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const PT_PHDR: u32 = 6;
pub(crate) const PT_GNU_RELRO: u32 = 0x6474_e552;

/// Tags of the dynamic section.
const DEBUG: usize = 21;
const HASH: usize = 4;
const STRTAB: usize = 5;
const SYMTAB: usize = 6;
const RELA: usize = 7;
const RELASZ: usize = 8;
const SONAME: usize = 14;
const JMPREL: usize = 23;
const PLTRELSZ: usize = 2;
const GNU_HASH: usize = 0x6fff_fef5;
const VERSYM: usize = 0x6fff_fff0;

/// `Elf64_Sym`: an entry of the symbol table.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Symbol {
    pub(crate) name: u32,
    info: u8,
    _other: u8,
    section: u16,
    value: usize,
    _size: usize,
}

/// Iterates over all objects, beginning with the program itself.
pub(crate) fn all() -> impl Iterator<Item = &'static Object> {
    // Relaxed order suffices: every thread would store the same address, and the object existed
    // before any thread.
    let mut first = FIRST.load(Ordering::Relaxed).cast_const();
    if first.is_null() {
        first = find_first();
        FIRST.store(first.cast_mut(), Ordering::Relaxed);
    }
    chain(first)
}

/// The program's object; null until the first look-up.
#[unsafe(link_section = ".data.start")]
static FIRST: AtomicPtr<Object> = AtomicPtr::new(core::ptr::null_mut());

/// Finds the beginning of the loader's list. The loader stores its address for debuggers in the
/// entry `DT_DEBUG` of the program's dynamic section.
///
/// The symbol `_r_debug` would give the same address. But that symbol is in the loader, which would
/// be one more library to depend on, and other C libraries do not have it.
fn find_first() -> *const Object {
    // SAFETY: the kernel or the loader gives the address and length of the program's own program
    // header table (getauxval(3)).
    let segments = unsafe {
        let (at, count) = (libc::getauxval(libc::AT_PHDR), libc::getauxval(libc::AT_PHNUM));
        core::slice::from_raw_parts(at as *const Segment, count as usize)
    };
    let address_of = |kind| segments.iter().find(|one| one.kind == kind).map(|one| one.address);
    let base = address_of(PT_PHDR).map_or(0, |at| (segments.as_ptr() as usize).wrapping_sub(at));
    let Some(dynamic) = address_of(PT_DYNAMIC) else { return core::ptr::null() };
    let program = Object {
        base,
        name: core::ptr::null(),
        dynamic: base.wrapping_add(dynamic) as *const Dyn,
        next: core::ptr::null(),
        previous: core::ptr::null(),
    };
    match program.entry(DEBUG) {
        None | Some(0) => core::ptr::null(),
        // SAFETY: the loader has written a `struct r_debug` at this address.
        Some(at) => unsafe { (*(at as *const Debug)).first },
    }
}

/// Returns this library's object.
pub(crate) fn own() -> Option<&'static Object> {
    all().find(|object| object.is_own())
}

fn chain(first: *const Object) -> impl Iterator<Item = &'static Object> {
    // SAFETY: null, or an object in the loader's list. Objects that were loaded with the program
    // are never removed.
    core::iter::successors(unsafe { first.as_ref() }, |object| unsafe { object.next.as_ref() })
}

/// Returns the address of the next function or variable `name` behind this library, as
/// `dlsym(RTLD_NEXT, name)` does.
pub(crate) fn next(name: &CStr) -> Option<usize> {
    own()?.behind().find_map(|object| object.find(name))
}

/// Returns the address of the first symbol `name` of all objects, to which the program's own
/// references are bound.
pub(crate) fn first(name: &CStr) -> Option<usize> {
    all().find_map(|object| object.find(name))
}

/// Returns the C library's own symbol `name`, even if another object defines the same name.
pub(crate) fn of_c_library(name: &CStr) -> Option<usize> {
    // The objects that made up glibc before 2.34. An array of names would need relocation.
    let is_part = |object: &&Object| {
        let name = object.soname().map(CStr::to_bytes);
        name.is_some_and(|name| {
            name == b"libc.so.6"
                || name == b"libpthread.so.0"
                || name == b"libdl.so.2"
                || name == b"libutil.so.1"
                || name == b"librt.so.1"
        })
    };
    all().filter(is_part).find_map(|object| object.find(name))
}

/// Returns a function of the vDSO, which the kernel maps into every process (vdso(7)).
pub(crate) fn of_kernel(name: &CStr) -> Option<usize> {
    let mut kernels = all().filter(|object| object.soname() == Some(c"linux-vdso.so.1"));
    kernels.find_map(|object| object.find(name))
}

/// `Elf64_Rela`: a word that the loader fills in.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Relocation {
    place: usize,
    info: u64,
    _addend: usize,
}

impl Relocation {
    /// Returns the address of the word.
    pub(crate) fn place(self, object: &Object) -> usize {
        object.base.wrapping_add(self.place)
    }
}

impl Object {
    /// Iterates over the objects that come later in the search order.
    pub(crate) fn behind(&self) -> impl Iterator<Item = &'static Object> + use<> {
        chain(self.next)
    }

    /// Iterates over the words that the loader has filled in, or will fill in at the first call.
    pub(crate) fn relocations(&self) -> impl Iterator<Item = Relocation> + '_ {
        let tables = [(RELA, RELASZ), (JMPREL, PLTRELSZ)];
        tables.into_iter().flat_map(|(at, len)| {
            let at = self.table(at).map_or(core::ptr::null(), |at| at as *const Relocation);
            let len = if at.is_null() { 0 } else { self.entry(len).unwrap_or(0) };
            // SAFETY: the table has `len` bytes.
            (0..len / size_of::<Relocation>()).map(move |index| unsafe { *at.add(index) })
        })
    }

    /// Returns the name of the symbol whose address the relocation stores.
    pub(crate) fn name_of(&self, relocation: Relocation) -> Option<&'static CStr> {
        /// `R_X86_64_64`, `R_X86_64_GLOB_DAT`, `R_X86_64_JUMP_SLOT`, or `R_AARCH64_ABS64` and so
        /// on: the word becomes the address of a symbol.
        #[cfg(target_arch = "x86_64")]
        const KINDS: [u32; 3] = [1, 6, 7];
        #[cfg(target_arch = "aarch64")]
        const KINDS: [u32; 3] = [257, 1025, 1026];
        let index = (relocation.info >> 32) as usize;
        if index == 0 || !KINDS.contains(&(relocation.info as u32)) {
            return None;
        }
        let (symbols, strings) = (self.table(SYMTAB)? as *const Symbol, self.table(STRTAB)?);
        // SAFETY: the object's relocations refer to its own tables.
        Some(unsafe {
            CStr::from_ptr((strings + (*symbols.add(index)).name as usize) as *const c_char)
        })
    }

    /// Returns the segments, if the object begins with the first page of its file.
    fn segments(&self) -> &'static [Segment] {
        // SAFETY: the address of a loaded library is that of its ELF header.
        if self.base == 0 { &[] } else { unsafe { segments_of_file(self.base) } }
    }

    /// Returns true if the address `at` is within the object.
    pub(crate) fn has(&self, at: usize) -> bool {
        self.segments().iter().any(|one| one.kind == PT_LOAD && one.range(self.base).contains(&at))
    }

    /// Iterates over the parts that become read-only after relocation (`PT_GNU_RELRO`). If such a
    /// part ends within a page, the rest of the page must stay writable, so the loader leaves that
    /// whole page writable.
    pub(crate) fn closed(&self) -> impl Iterator<Item = Range<usize>> + '_ {
        let is_closed = |one: &&Segment| one.kind == PT_GNU_RELRO;
        self.segments().iter().filter(is_closed).map(|one| one.range(self.base))
    }

    /// Calls `work` while the read-only pages of `range` are writable. Returns `None` if they
    /// cannot be made writable.
    pub(crate) fn write_closed<R>(
        &self,
        range: Range<usize>,
        work: impl FnOnce() -> R,
    ) -> Option<R> {
        const PAGE: usize = 4096;
        // Whole parts, so that the kernel need not split and join mappings.
        let is_met = |one: &Range<usize>| one.start < range.end && range.start < one.end;
        let protect = |protection: c_int| {
            self.closed().filter(is_met).fold(true, |is_done, one| {
                let (start, end) = (one.start & !(PAGE - 1), one.end & !(PAGE - 1));
                let arguments = [start, end - start, protection as usize, 0, 0, 0];
                // SAFETY: pages of the object's data, which were writable until the relocation was
                // complete.
                is_done & unsafe { raw::call(libc::SYS_mprotect, arguments) == 0 }
            })
        };
        let done = protect(libc::PROT_READ | libc::PROT_WRITE).then(work);
        protect(libc::PROT_READ);
        done
    }

    fn is_own(&self) -> bool {
        self.dynamic as usize == linker::own_dynamic()
    }

    /// Iterates over the dynamic section.
    pub(crate) fn entries(&self) -> impl Iterator<Item = Dyn> + '_ {
        let at = |index: usize| {
            // SAFETY: the array ends with a tag of 0, at which the iteration stops.
            (!self.dynamic.is_null()).then(|| unsafe { *self.dynamic.add(index) })
        };
        (0..).map_while(at).take_while(|entry| entry.tag != 0)
    }

    /// Returns the address that an entry of the dynamic section holds. glibc's loader has added the
    /// base to most entries, but not in a dynamic section that it cannot write (the vDSO's).
    pub(crate) fn address(&self, value: usize) -> usize {
        if value < self.base { value + self.base } else { value }
    }

    fn entry(&self, tag: usize) -> Option<usize> {
        self.entries().find(|entry| entry.tag == tag).map(|entry| entry.value)
    }

    fn table(&self, tag: usize) -> Option<usize> {
        self.entry(tag).filter(|at| *at != 0).map(|at| self.address(at))
    }

    fn soname(&self) -> Option<&'static CStr> {
        let (at, strings) = (self.entry(SONAME)?, self.table(STRTAB)?);
        // SAFETY: a string of the object's table.
        Some(unsafe { CStr::from_ptr((strings + at) as *const c_char) })
    }

    /// Returns the address of a symbol that this object defines, in the default version, with which
    /// programs are linked today.
    pub(crate) fn find(&self, name: &CStr) -> Option<usize> {
        let table = Table {
            symbols: self.table(SYMTAB)? as *const Symbol,
            strings: self.table(STRTAB)?,
            versions: self.table(VERSYM).map(|at| at as *const u16),
        };
        let found = match self.table(GNU_HASH) {
            // SAFETY: the table is this object's GNU hash table.
            Some(at) => unsafe { table.by_gnu_hash(at as *const u32, name) },
            // SAFETY: the table is this object's hash table.
            None => unsafe { table.by_hash(self.table(HASH)? as *const u32, name) },
        }?;
        let address = self.base.wrapping_add(found.value);
        // `STT_GNU_IFUNC`: the symbol is a function that returns the address to use.
        const INDIRECT: u8 = 10;
        if found.info & 15 == INDIRECT {
            // SAFETY: a symbol of this type is such a function, without arguments.
            let choose =
                unsafe { core::mem::transmute::<usize, extern "C" fn() -> usize>(address) };
            return Some(choose());
        }
        Some(address)
    }
}

/// The symbol table of an object.
struct Table {
    symbols: *const Symbol,
    strings: usize,
    versions: Option<*const u16>,
}

impl Table {
    /// Returns the symbol at `index` if the object defines it, under this name, in its default
    /// version.
    ///
    /// # Safety
    /// `index` must be within the tables.
    unsafe fn check(&self, index: usize, name: &CStr) -> Option<Symbol> {
        /// Marks a version that exists only for programs that were linked earlier.
        const HIDDEN: u16 = 0x8000;
        // SAFETY: the caller promises that `index` is within the tables; names are strings of the
        // string table.
        unsafe {
            let symbol = *self.symbols.add(index);
            let is_it = symbol.section != 0
                && symbol.value != 0
                && CStr::from_ptr((self.strings + symbol.name as usize) as *const c_char) == name;
            let is_present =
                || self.versions.is_none_or(|versions| *versions.add(index) & HIDDEN == 0);
            (is_it && is_present()).then_some(symbol)
        }
    }

    /// Looks a name up in a `DT_GNU_HASH` table.
    ///
    /// # Safety
    /// `at` must be the object's table of that kind.
    unsafe fn by_gnu_hash(&self, at: *const u32, name: &CStr) -> Option<Symbol> {
        let step = |hash: u32, byte: &u8| hash.wrapping_mul(33).wrapping_add((*byte).into());
        let hash = name.to_bytes().iter().fold(5381, step);
        // SAFETY: the head, the Bloom filter, the buckets and the chains lie one after another; the
        // head has their lengths.
        unsafe {
            let (buckets, first, words, shift) = (*at, *at.add(1), *at.add(2), *at.add(3));
            let filter = at.add(4).cast::<u64>();
            let word = *filter.add((hash / 64).checked_rem(words)? as usize);
            let bits = 1 << (hash % 64) | 1 << ((hash >> shift) % 64);
            // | The Bloom filter rules the name out.
            if word & bits != bits || buckets == 0 {
                return None;
            }
            let bucket = filter.add(words as usize).cast::<u32>();
            let chain = bucket.add(buckets as usize);
            let mut index = *bucket.add((hash % buckets) as usize);
            while index >= first {
                let other = *chain.add((index - first) as usize);
                if other | 1 == hash | 1
                    && let Some(found) = self.check(index as usize, name)
                {
                    return Some(found);
                }
                // The lowest bit marks the end of a chain.
                if other & 1 != 0 {
                    break;
                }
                index += 1;
            }
            None
        }
    }

    /// Looks a name up in a `DT_HASH` table.
    ///
    /// # Safety
    /// As [`Table::by_gnu_hash`].
    unsafe fn by_hash(&self, at: *const u32, name: &CStr) -> Option<Symbol> {
        let step = |hash: u32, byte: &u8| {
            let hash = (hash << 4).wrapping_add((*byte).into());
            let high = hash & 0xf000_0000;
            (hash ^ high >> 24) & !high
        };
        let hash = name.to_bytes().iter().fold(0, step);
        // SAFETY: the counts, the buckets and the chains lie one after another.
        unsafe {
            let buckets = *at;
            let bucket = at.add(2);
            let chain = bucket.add(buckets as usize);
            let mut index = if buckets == 0 { 0 } else { *bucket.add((hash % buckets) as usize) };
            while index != 0 {
                if let Some(found) = self.check(index as usize, name) {
                    return Some(found);
                }
                index = *chain.add(index as usize);
            }
            None
        }
    }
}
