//! The objects that the dynamic loader has loaded, and their symbols: `dlsym`, without the C
//! library.
//!
//! `dlsym` is in another library, or has another version, in C libraries before 2.34 and after; a
//! program may have a function of that name; and it takes locks, which a signal handler may not.
//! This here reads what the loader has written, and nothing else. What is looked up is found in
//! objects that stay as long as the program. See elf(5) and `link.h`.

use core::ffi::{CStr, c_char, c_int};
use core::ops::Range;
use core::sync::atomic::{AtomicPtr, Ordering};

/// `struct link_map`: one loaded object, in the order in which they are searched.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Object {
    /// Added to addresses in the file.
    pub(crate) base: usize,
    name: *const c_char,
    dynamic: *const Dyn,
    next: *const Object,
    previous: *const Object,
}

/// An entry of the dynamic section.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dyn {
    pub(crate) tag: usize,
    pub(crate) value: usize,
}

/// `struct r_debug`, its beginning.
#[repr(C)]
struct Debug {
    version: c_int,
    first: *const Object,
}

/// `Elf64_Phdr`.
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
    /// Where it is in memory when the object is at `base`.
    pub(crate) fn range(&self, base: usize) -> Range<usize> {
        let start = base.wrapping_add(self.address);
        start..start.wrapping_add(self.len)
    }
}

/// The segments of the file whose first page is at `base`.
///
/// # Safety
/// An ELF file must be there, and stay.
pub(crate) unsafe fn segments_of_file(base: usize) -> &'static [Segment] {
    /// Where the header has the place of the list, and its length.
    const AT: usize = 32;
    const COUNT: usize = 56;
    // SAFETY: as the caller promises.
    unsafe {
        let at = *((base + AT) as *const usize);
        let count = *((base + COUNT) as *const u16);
        core::slice::from_raw_parts((base + at) as *const Segment, count.into())
    }
}

unsafe extern "C" {
    /// This library's own, from the linker.
    #[link_name = "_DYNAMIC"]
    static OWN: Dyn;
}

/// Kinds of segments: memory, the dynamic section, the list of segments itself, what is closed.
const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const PT_PHDR: u32 = 6;
const PT_GNU_RELRO: u32 = 0x6474_e552;

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

/// `Elf64_Sym`.
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

/// All objects, the program itself first.
pub(crate) fn all() -> impl Iterator<Item = &'static Object> {
    // Relaxed: every thread would store the same, and it was there before any of them.
    let mut first = FIRST.load(Ordering::Relaxed).cast_const();
    if first.is_null() {
        first = find_first();
        FIRST.store(first.cast_mut(), Ordering::Relaxed);
    }
    chain(first)
}

/// The program, once it has been looked for.
static FIRST: AtomicPtr<Object> = AtomicPtr::new(core::ptr::null_mut());

/// Where the loader has told debuggers, in the dynamic section of the program, that its list
/// begins. The symbol of that name is in the loader, which would be one more library to depend on,
/// and in no other C library.
fn find_first() -> *const Object {
    // SAFETY: a list of that many segments, which the kernel or the loader says is the program's.
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
        // SAFETY: what the loader has written there.
        Some(at) => unsafe { (*(at as *const Debug)).first },
    }
}

/// This library.
pub(crate) fn own() -> Option<&'static Object> {
    all().find(|object| object.is_own())
}

fn chain(first: *const Object) -> impl Iterator<Item = &'static Object> {
    // SAFETY: null, or an object in the loader's list. Those that came with the program are never
    // taken out.
    core::iter::successors(unsafe { first.as_ref() }, |object| unsafe { object.next.as_ref() })
}

/// The next function or variable of that name behind this library: what `dlsym(RTLD_NEXT, NAME)`
/// finds.
pub(crate) fn next(name: &CStr) -> Option<usize> {
    own()?.behind().find_map(|object| object.find(name))
}

/// The first of that name at all: what a program's own use of it means.
pub(crate) fn first(name: &CStr) -> Option<usize> {
    all().find_map(|object| object.find(name))
}

/// The C library's own, whoever else has that name.
pub(crate) fn of_c_library(name: &CStr) -> Option<usize> {
    /// The parts that it had before 2.34.
    const PARTS: [&CStr; 5] =
        [c"libc.so.6", c"libpthread.so.0", c"libdl.so.2", c"libutil.so.1", c"librt.so.1"];
    let is_part = |object: &&Object| object.soname().is_some_and(|name| PARTS.contains(&name));
    all().filter(is_part).find_map(|object| object.find(name))
}

/// A function that the kernel has put into every process.
pub(crate) fn of_kernel(name: &CStr) -> Option<usize> {
    let mut kernels = all().filter(|object| object.soname() == Some(c"linux-vdso.so.1"));
    kernels.find_map(|object| object.find(name))
}

/// `Elf64_Rela`: a word that the loader has filled in.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Relocation {
    place: usize,
    info: u64,
    _addend: usize,
}

impl Relocation {
    /// The address of the word.
    pub(crate) fn place(self, object: &Object) -> usize {
        object.base.wrapping_add(self.place)
    }
}

impl Object {
    /// Those that were loaded later.
    pub(crate) fn behind(&self) -> impl Iterator<Item = &'static Object> + use<> {
        chain(self.next)
    }

    /// What the loader has filled in, or will.
    pub(crate) fn relocations(&self) -> impl Iterator<Item = Relocation> + '_ {
        let tables = [(RELA, RELASZ), (JMPREL, PLTRELSZ)];
        tables.into_iter().flat_map(|(at, len)| {
            let at = self.table(at).map_or(core::ptr::null(), |at| at as *const Relocation);
            let len = if at.is_null() { 0 } else { self.entry(len).unwrap_or(0) };
            // SAFETY: a table of so many bytes.
            (0..len / size_of::<Relocation>()).map(move |index| unsafe { *at.add(index) })
        })
    }

    /// The name whose address a relocation stores.
    pub(crate) fn name_of(&self, relocation: Relocation) -> Option<&'static CStr> {
        /// The word is the address of a symbol: anyhow, in the table of addresses, or for calls.
        const KINDS: [u32; 3] = [1, 6, 7];
        let index = (relocation.info >> 32) as usize;
        if index == 0 || !KINDS.contains(&(relocation.info as u32)) {
            return None;
        }
        let (symbols, strings) = (self.table(SYMTAB)? as *const Symbol, self.table(STRTAB)?);
        // SAFETY: within the object's tables, as its relocations say.
        Some(unsafe {
            CStr::from_ptr((strings + (*symbols.add(index)).name as usize) as *const c_char)
        })
    }

    /// The segments, if the first page of the file is where the object begins.
    fn segments(&self) -> &'static [Segment] {
        // SAFETY: the address of a loaded library is that of its ELF header.
        if self.base == 0 { &[] } else { unsafe { segments_of_file(self.base) } }
    }

    /// Whether an address is within the object.
    pub(crate) fn has(&self, at: usize) -> bool {
        self.segments().iter().any(|one| one.kind == PT_LOAD && one.range(self.base).contains(&at))
    }

    /// Whether an address is in the part that is read-only once everything is bound.
    pub(crate) fn is_closed(&self, at: usize) -> bool {
        const PAGE: usize = 4096;
        // Of a page that it ends in the rest can be written, so that stays open.
        let is_here = |one: &Segment| {
            let range = one.range(self.base);
            one.kind == PT_GNU_RELRO
                && (range.start & !(PAGE - 1)..range.end & !(PAGE - 1)).contains(&at)
        };
        self.segments().iter().any(is_here)
    }

    fn is_own(&self) -> bool {
        core::ptr::eq(self.dynamic, &raw const OWN)
    }

    /// The dynamic section.
    pub(crate) fn entries(&self) -> impl Iterator<Item = Dyn> + '_ {
        let at = |index: usize| {
            // SAFETY: an array that ends with a tag of 0, at which we stop.
            (!self.dynamic.is_null()).then(|| unsafe { *self.dynamic.add(index) })
        };
        (0..).map_while(at).take_while(|entry| entry.tag != 0)
    }

    /// An address in the dynamic section. The loader has added the base to most, not in memory that
    /// it cannot write.
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

    /// The address of a symbol that this object has: the version that programs are linked with
    /// today.
    pub(crate) fn find(&self, name: &CStr) -> Option<usize> {
        let table = Table {
            symbols: self.table(SYMTAB)? as *const Symbol,
            strings: self.table(STRTAB)?,
            versions: self.table(VERSYM).map(|at| at as *const u16),
        };
        let found = match self.table(GNU_HASH) {
            // SAFETY: this object's tables.
            Some(at) => unsafe { table.by_gnu_hash(at as *const u32, name) },
            // SAFETY: as above.
            None => unsafe { table.by_hash(self.table(HASH)? as *const u32, name) },
        }?;
        let address = self.base.wrapping_add(found.value);
        // A function that says which one it is to be.
        const INDIRECT: u8 = 10;
        if found.info & 15 == INDIRECT {
            // SAFETY: what such a symbol stands for.
            let choose =
                unsafe { core::mem::transmute::<usize, extern "C" fn() -> usize>(address) };
            return Some(choose());
        }
        Some(address)
    }
}

/// An object's symbols.
struct Table {
    symbols: *const Symbol,
    strings: usize,
    versions: Option<*const u16>,
}

impl Table {
    /// The symbol of that index, if it is defined here under that name in its present version.
    ///
    /// # Safety
    /// `index` must be within the tables.
    unsafe fn check(&self, index: usize, name: &CStr) -> Option<Symbol> {
        /// Of a version that is there for old programs.
        const HIDDEN: u16 = 0x8000;
        // SAFETY: as the caller promises; names are strings of the table.
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

    /// # Safety
    /// `at` must be the object's table of that kind.
    unsafe fn by_gnu_hash(&self, at: *const u32, name: &CStr) -> Option<Symbol> {
        let step = |hash: u32, byte: &u8| hash.wrapping_mul(33).wrapping_add((*byte).into());
        let hash = name.to_bytes().iter().fold(5381, step);
        // SAFETY: head, filter, buckets and chains, one after another, as the head says.
        unsafe {
            let (buckets, first, words, shift) = (*at, *at.add(1), *at.add(2), *at.add(3));
            let filter = at.add(4).cast::<u64>();
            let word = *filter.add((hash / 64 % words) as usize);
            let bits = 1 << (hash % 64) | 1 << ((hash >> shift) % 64);
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
                // The lowest bit ends a chain.
                if other & 1 != 0 {
                    break;
                }
                index += 1;
            }
            None
        }
    }

    /// # Safety
    /// As [`Table::by_gnu_hash`].
    unsafe fn by_hash(&self, at: *const u32, name: &CStr) -> Option<Symbol> {
        let step = |hash: u32, byte: &u8| {
            let hash = (hash << 4).wrapping_add((*byte).into());
            let high = hash & 0xf000_0000;
            (hash ^ high >> 24) & !high
        };
        let hash = name.to_bytes().iter().fold(0, step);
        // SAFETY: counts, buckets and chains, one after another.
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
