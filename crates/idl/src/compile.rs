//! The library's entry: one IDL file, perhaps an ACF, in; the resolved model out.

use std::fmt;
use std::path::Path;

use sha2::{Digest, Sha256};

use crate::diag::{self, Diagnostic, Severity, Sink, codes};
use crate::ir::Module;
use crate::sema::{self, Analyzed, Dialect, Places};
use crate::source::{FileNumber, Loader, SourceMap};

/// Choices for a compilation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// `max_is` is a count, as in DICE, not DCE's last index.
    pub max_is_count: bool,
    /// Stubs in Rust are wanted: what the ACF asks and they cannot do is refused.
    pub for_rust: bool,
}

/// A successful compilation.
#[derive(Clone, Debug)]
pub struct Compilation {
    /// The resolved model.
    pub module: Module,
    /// Warnings and notes.
    pub diagnostics: Vec<Diagnostic>,
    /// The texts, to show the diagnostics.
    pub sources: SourceMap,
    /// Where things are declared: `type`, `interface`, `interface.operation`.
    pub places: Places,
}

/// A failed compilation.
#[derive(Clone, Debug)]
pub struct Failure {
    /// At least one error; warnings and notes too.
    pub diagnostics: Vec<Diagnostic>,
    /// The texts, to show the diagnostics.
    pub sources: SourceMap,
}

impl Compilation {
    /// Warnings and notes as text for people; empty if there are none.
    #[must_use]
    pub fn rendered(&self) -> String {
        render_all(&self.diagnostics, &self.sources)
    }
}

impl Failure {
    /// All diagnostics as text for people.
    #[must_use]
    pub fn rendered(&self) -> String {
        render_all(&self.diagnostics, &self.sources)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.rendered())
    }
}

impl std::error::Error for Failure {}

fn render_all(diagnostics: &[Diagnostic], sources: &SourceMap) -> String {
    let texts: Vec<String> = diagnostics.iter().map(|d| diag::render(d, sources)).collect();
    texts.join("\n")
}

/// Compiles the IDL file `main` and, if given, the ACF `acf`; both names are handed to `loader`.
///
/// # Errors
/// [`Failure`] with every mistake found, if there is any.
pub fn compile(
    main: &str,
    acf: Option<&str>,
    loader: &dyn Loader,
    options: &Options,
) -> Result<Compilation, Box<Failure>> {
    let mut sources = SourceMap::default();
    let mut sink = Sink::default();
    let Analyzed { mut module, places } = match read(main, loader, &mut sources, &mut sink) {
        Some(file) => {
            let dialect = Dialect { max_is_count: options.max_is_count };
            sema::analyze(file, dialect, loader, &mut sources, &mut sink)
        }
        None => Analyzed::default(),
    };
    module.name = stem(main);
    module.file = main.to_owned();
    if let Some(file) = acf.and_then(|acf| read(acf, loader, &mut sources, &mut sink)) {
        // The names of a broken IDL file are no measure for the ACF's: only its grammar is checked.
        crate::acf::apply(file, &mut module, &sources, options.for_rust, &mut sink);
    }
    module.hash = hash(&sources);
    let read = sources.files().iter().map(|s| s.path.clone());
    module.sources = read.filter(|path| path != sema::PRELUDE_NAME).collect();
    let failed = sink.has_errors();
    let diagnostics = sink.finish();
    if failed {
        return Err(Box::new(Failure { diagnostics, sources }));
    }
    Ok(Compilation { module, diagnostics, sources, places })
}

fn read(
    name: &str,
    loader: &dyn Loader,
    sources: &mut SourceMap,
    sink: &mut Sink,
) -> Option<FileNumber> {
    match loader.load(name, None) {
        Ok(loaded) => Some(sema::add_source(sources, &loaded, sink, None)),
        Err(failure) => {
            let message = format!("cannot read `{name}`: {failure}");
            sink.push(
                Diagnostic::new(Severity::Error, codes::FILE_NOT_READ, None, message)
                    .help("check the path and the permissions of the file"),
            );
            None
        }
    }
}

/// `calc` for `path/to/calc.idl`.
fn stem(path: &str) -> String {
    Path::new(path).file_stem().map_or_else(String::new, |s| s.to_string_lossy().into_owned())
}

/// Depends on the texts alone, not on where the files lie.
fn hash(sources: &SourceMap) -> String {
    let mut hasher = Sha256::new();
    for source in sources.files() {
        hasher.update((source.text.len() as u64).to_le_bytes());
        hasher.update(source.text.as_bytes());
    }
    hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}
