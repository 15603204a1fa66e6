//! Source texts and positions in them, and the one door through which files come in.
//!
//! Nothing here knows the language. A [`Span`] is meaningful only together with the
//! [`SourceMap`] that the compilation made.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Largest file accepted, in bytes: positions are 32 bits wide and nobody writes such an IDL file.
pub const FILE_SIZE_MAX: usize = 16 << 20;

/// Names a file of a [`SourceMap`]: its place there, from 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileNumber(u32);

/// A half-open range of bytes in one source file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Span {
    /// The file.
    pub file: FileNumber,
    /// First byte.
    pub start: u32,
    /// One past the last byte.
    pub end: u32,
}

impl Span {
    /// The range from the beginning of `self` to the end of `other`, if both are in one file.
    #[must_use]
    pub fn to(self, other: Self) -> Self {
        if self.file != other.file {
            return self;
        }
        Self { file: self.file, start: self.start.min(other.start), end: self.end.max(other.end) }
    }

    /// An empty range just behind `self`.
    #[must_use]
    pub fn after(self) -> Self {
        Self { start: self.end, ..self }
    }
}

/// One source file.
#[derive(Clone, Debug)]
pub struct Source {
    /// Path as the loader named it.
    pub path: String,
    /// Its text; bytes that are not UTF-8 have been replaced.
    pub text: String,
    line_starts: Vec<u32>,
}

/// A position as editors count: both from 1, the column in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineColumn {
    /// Line.
    pub line: u32,
    /// Column in characters.
    pub column: u32,
}

impl Source {
    fn new(path: String, text: String) -> Self {
        let breaks = text.bytes().enumerate().filter(|(_, b)| *b == b'\n');
        let starts = std::iter::once(0).chain(breaks.map(|(i, _)| i + 1));
        let line_starts = starts.map(|i| u32::try_from(i).unwrap_or(u32::MAX)).collect();
        Self { path, text, line_starts }
    }

    /// Line and column of a byte offset.
    #[must_use]
    pub fn line_column(&self, offset: u32) -> LineColumn {
        let line = self.line_starts.partition_point(|s| *s <= offset).max(1);
        let start = self.line_starts[line - 1] as usize;
        let end = (offset as usize).min(self.text.len());
        let before = self.text.get(start..end).unwrap_or("");
        let column = before.chars().count() + 1;
        LineColumn {
            line: u32::try_from(line).unwrap_or(u32::MAX),
            column: u32::try_from(column).unwrap_or(u32::MAX),
        }
    }

    /// Text of a line (counted from 1), without its end.
    #[must_use]
    pub fn line(&self, line: u32) -> &str {
        let index = (line as usize).saturating_sub(1);
        let Some(start) = self.line_starts.get(index) else { return "" };
        let end = self.line_starts.get(index + 1).map_or(self.text.len(), |e| *e as usize);
        self.text.get(*start as usize..end).unwrap_or("").trim_end_matches(['\n', '\r'])
    }

    /// The text of a span.
    #[must_use]
    pub fn slice(&self, span: Span) -> &str {
        self.text.get(span.start as usize..span.end as usize).unwrap_or("")
    }
}

/// All source files of one compilation.
#[derive(Clone, Debug, Default)]
pub struct SourceMap {
    files: Vec<Source>,
}

impl SourceMap {
    /// Adds a file and answers its number.
    pub fn add(&mut self, path: impl Into<String>, text: impl Into<String>) -> FileNumber {
        self.files.push(Source::new(path.into(), text.into()));
        FileNumber(u32::try_from(self.files.len() - 1).unwrap_or(u32::MAX))
    }

    /// The file of that number, if it is one of this map.
    #[must_use]
    pub fn file(&self, file: FileNumber) -> Option<&Source> {
        self.files.get(file.0 as usize)
    }

    /// All files in the order in which they were read.
    #[must_use]
    pub fn files(&self) -> &[Source] {
        &self.files
    }
}

/// A file that a loader has found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loaded {
    /// Where: identifies the file, so that it is imported only once.
    pub path: String,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// Finds and reads source files.
pub trait Loader {
    /// Reads `name` as written in `import`, looking first beside `from` (the path of the
    /// importing file; `None` for a file of the command line), then in the include folders.
    ///
    /// # Errors
    /// The reason why there is no such file to be had, as [`io::Error`].
    fn load(&self, name: &str, from: Option<&str>) -> io::Result<Loaded>;
}

/// Reads from the file system.
#[derive(Clone, Debug, Default)]
pub struct FileLoader {
    /// Folders of `-I`, searched in order.
    pub include_dirs: Vec<PathBuf>,
}

impl FileLoader {
    fn candidates(&self, name: &str, from: Option<&str>) -> Vec<PathBuf> {
        let Some(from) = from else { return vec![PathBuf::from(name)] };
        let beside = Path::new(from).parent().map(|p| p.join(name));
        beside.into_iter().chain(self.include_dirs.iter().map(|d| d.join(name))).collect()
    }
}

impl Loader for FileLoader {
    fn load(&self, name: &str, from: Option<&str>) -> io::Result<Loaded> {
        let mut failure = io::Error::new(io::ErrorKind::NotFound, "no such file");
        for path in self.candidates(name, from) {
            match fs::read(&path) {
                Ok(bytes) => return Ok(Loaded { path: path.display().to_string(), bytes }),
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(e) => failure = e,
            }
        }
        Err(failure)
    }
}

/// Files held in memory: for tests, fuzzing and editors.
#[derive(Clone, Debug, Default)]
pub struct MemoryLoader {
    files: BTreeMap<String, Vec<u8>>,
}

impl MemoryLoader {
    /// A loader that knows no file.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// With one file more.
    #[must_use]
    pub fn with(mut self, name: &str, text: impl AsRef<[u8]>) -> Self {
        self.files.insert(name.to_owned(), text.as_ref().to_vec());
        self
    }
}

impl Loader for MemoryLoader {
    fn load(&self, name: &str, _from: Option<&str>) -> io::Result<Loaded> {
        match self.files.get(name) {
            Some(bytes) => Ok(Loaded { path: name.to_owned(), bytes: bytes.clone() }),
            None => Err(io::Error::new(io::ErrorKind::NotFound, "no such file")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_and_columns_count_from_one_in_characters() {
        let mut map = SourceMap::default();
        let file = map.add("x.idl", "a\nüb c\n");
        let source = map.file(file).unwrap();
        assert_eq!(source.line_column(0), LineColumn { line: 1, column: 1 });
        assert_eq!(source.line_column(4), LineColumn { line: 2, column: 2 });
        assert_eq!(source.line(2), "üb c");
        assert_eq!(source.line(9), "");
    }

    #[test]
    fn an_offset_inside_a_character_or_behind_the_end_is_survived() {
        let source = Source::new("x".into(), "ü".into());
        assert_eq!(source.line_column(1).line, 1);
        assert_eq!(source.line_column(99).line, 1);
    }
}
