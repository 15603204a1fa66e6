//! Files: reading, parsing, importing each once.

use super::analyzer::Analyzer;
use crate::ast::Text;
use crate::diag::{Diagnostic, Sink, codes};
use crate::ir::PtrClass;
use crate::lex::IncludedFile;
use crate::pre::Includes;
use crate::source::{FILE_SIZE_MAX, FileNumber, Loaded, Loader, SourceMap, Span};

/// Imports inside imports beyond this are refused.
const DEPTH_MAX: u32 = 64;

/// Files of COM that declare nothing but names known here anyway.
const COM_FILES: &[&str] = &[
    "unknwn.idl",
    "wtypes.idl",
    "objidl.idl",
    "oaidl.idl",
    "ocidl.idl",
    "oleidl.idl",
    "basetsd.idl",
];

/// Headers of COM that are imported for names known here anyway, whether they exist or not.
const COM_HEADERS: &[&str] = &["basetsd.h", "guiddef.h"];

impl Analyzer<'_> {
    /// Parses and analyses a file that is in the source map.
    pub(super) fn file(&mut self, file: FileNumber) {
        let Some(source) = self.sources.file(file) else { return };
        let text = source.text.clone();
        self.files.insert(source.path.clone(), file);
        let mut opener = Opener { loader: self.loader, sources: &mut *self.sources };
        let tokens = crate::pre::preprocess(file, &text, &mut opener, self.sink);
        self.is_com |= crate::parse::is_com(&tokens);
        if self.import_depth == 0 && self.is_com && !crate::parse::imports(&tokens) {
            self.is_part = true;
            self.com_names = true;
        }
        let tree = crate::parse::parse(&tokens, &text, self.is_com, self.sink);
        let outer = std::mem::replace(&mut self.pointer_default, PtrClass::Unique);
        self.items(&tree.items);
        self.pointer_default = outer;
    }

    pub(super) fn import(&mut self, files: &[Text]) {
        for file in files {
            self.import_one(file);
        }
    }

    fn import_one(&mut self, name: &Text) {
        if self.import_depth >= DEPTH_MAX {
            return self.error(
                codes::TOO_DEEP,
                name.span,
                format!("more than {DEPTH_MAX} imports inside one another"),
                "let the main file import the innermost ones",
            );
        }
        if COM_HEADERS.contains(&name.text.as_str()) {
            self.com_names = true;
            return;
        }
        let from = self.sources.file(name.span.file).map(|s| s.path.clone());
        match self.loader.load(&name.text, from.as_deref()) {
            Ok(loaded) => self.imported(&loaded, name),
            Err(_) if COM_FILES.contains(&name.text.as_str()) => self.com_names = true,
            Err(failure) => self.sink.push(
                Diagnostic::error(
                    codes::IMPORT_NOT_FOUND,
                    name.span,
                    format!("cannot read `{}`: {failure}", name.text),
                )
                .help(
                    "it is looked for beside the importing file, then in the folders given with -I",
                ),
            ),
        }
    }

    fn imported(&mut self, loaded: &Loaded, name: &Text) {
        if self.files.contains_key(&loaded.path) {
            return;
        }
        let file = add_source(self.sources, loaded, self.sink, Some(name.span));
        self.import_depth += 1;
        self.file(file);
        self.import_depth -= 1;
    }
}

/// Opens what `#include` names: as `import` does, but again each time.
struct Opener<'a> {
    loader: &'a dyn Loader,
    sources: &'a mut SourceMap,
}

impl Includes for Opener<'_> {
    fn open(&mut self, name: &str, at: Span, sink: &mut Sink) -> Result<IncludedFile, String> {
        let from = self.sources.file(at.file).map(|s| s.path.clone());
        let loaded = self.loader.load(name, from.as_deref()).map_err(|e| e.to_string())?;
        let file = add_source(self.sources, &loaded, sink, Some(at));
        let text = self.sources.file(file).map_or_else(String::new, |s| s.text.clone());
        Ok(IncludedFile { file, text })
    }
}

/// Puts a file into the source map; complains about bytes that are not UTF-8.
pub(crate) fn add_source(
    sources: &mut SourceMap,
    loaded: &Loaded,
    sink: &mut Sink,
    at: Option<Span>,
) -> FileNumber {
    let mut bytes = loaded.bytes.as_slice();
    if bytes.len() > FILE_SIZE_MAX {
        bytes = &bytes[..0];
        let message = format!("`{}` is larger than {} MiB", loaded.path, FILE_SIZE_MAX >> 20);
        let severity = crate::diag::Severity::Error;
        sink.push(
            Diagnostic::new(severity, codes::FILE_TOO_LARGE, at, message)
                .help("split it and import the parts"),
        );
    }
    let bytes = bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(bytes);
    let text = String::from_utf8_lossy(bytes).into_owned();
    let file = sources.add(loaded.path.clone(), text);
    if let Err(e) = std::str::from_utf8(bytes) {
        let offset = u32::try_from(e.valid_up_to()).unwrap_or(0);
        let span = Span { file, start: offset, end: offset.saturating_add(1) };
        sink.push(
            Diagnostic::error(codes::NOT_UTF8, span, "the file is not UTF-8 from here on")
                .help("save it as UTF-8"),
        );
    }
    file
}
