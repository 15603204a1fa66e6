//! The smaller commands.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::path::Path;

use anyhow::{Context as _, Result};
use clap::CommandFactory as _;
use sojourn_idl::diag::{Code, Diagnostic, catalogue, codes, nearest};
use sojourn_idl::{compat, docgen, format_source, stubs};

use super::args::{Cli, Reading};
use super::show;

pub(super) fn list_codes() -> Result<bool> {
    let mut out = io::stdout().lock();
    for entry in catalogue::entries() {
        writeln!(out, "{}  {}", entry.code, entry.title)?;
    }
    Ok(true)
}

pub(super) fn explain(code: &str) -> Result<bool> {
    let entry = Code::parse(code).and_then(catalogue::entry);
    if let Some(entry) = entry {
        print!("{}", entry.explain());
        return Ok(true);
    }
    let names: Vec<String> = codes::ALL.iter().map(ToString::to_string).collect();
    let near = nearest(code, names.iter().map(String::as_str));
    eprintln!("sojourn-idl: there is no diagnostic {code}");
    match near {
        Some(near) => eprintln!("did you mean {near}?"),
        None => eprintln!("sojourn-idl --list-codes lists all"),
    }
    Ok(false)
}

pub(super) fn format(files: &[std::path::PathBuf], check: bool) -> Result<bool> {
    let mut fine = true;
    for file in files {
        fine &= format_one(file, check)?;
    }
    Ok(fine)
}

fn format_one(file: &Path, check: bool) -> Result<bool> {
    let standard = file == Path::new("-");
    let name = if standard { "<standard input>".to_owned() } else { file.display().to_string() };
    let text = if standard {
        let mut text = String::new();
        io::stdin().read_to_string(&mut text).context("cannot read standard input")?;
        text
    } else {
        fs::read_to_string(file).with_context(|| format!("cannot read {name}"))?
    };
    let formatted = match format_source(&name, &text) {
        Ok(formatted) => formatted,
        Err(failure) => {
            show::print_all(&failure.diagnostics, &failure.sources, false);
            return Ok(false);
        }
    };
    if check {
        if formatted != text {
            eprintln!("{name} is not formatted");
        }
        return Ok(formatted == text);
    }
    if standard {
        io::stdout().write_all(formatted.as_bytes())?;
    } else if formatted != text {
        fs::write(file, formatted).with_context(|| format!("cannot write {name}"))?;
    }
    Ok(true)
}

/// To a file, or to standard output.
fn deliver(text: &str, output: Option<&Path>) -> Result<bool> {
    match output {
        Some(path) => {
            fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
        }
        None => io::stdout().write_all(text.as_bytes())?,
    }
    Ok(true)
}

pub(super) fn document(
    file: &Path,
    reading: &Reading,
    html: bool,
    output: Option<&Path>,
) -> Result<bool> {
    let Some(compilation) = show::compiled(file, reading, false) else { return Ok(false) };
    let text = if html {
        docgen::html(&compilation.module)
    } else {
        docgen::markdown(&compilation.module)
    };
    deliver(&text, output)
}

pub(super) fn dump(file: &Path, reading: &Reading, output: Option<&Path>) -> Result<bool> {
    let Some(compilation) = show::compiled(file, reading, false) else { return Ok(false) };
    deliver(&compat::dump(&compilation.module), output)
}

pub(super) fn check(file: &Path, reading: &Reading, against: &Path) -> Result<bool> {
    let old = fs::read_to_string(against)
        .with_context(|| format!("cannot read {}", against.display()))?;
    let Some(compilation) = show::compiled(file, reading, false) else { return Ok(false) };
    let found = compat::check(&compilation, &against.display().to_string(), &old);
    show::print_all(&found, &compilation.sources, reading.json);
    Ok(!found.iter().any(Diagnostic::is_error))
}

/// Which operations have stubs, one a line.
pub(super) fn list(file: &Path, reading: &Reading) -> Result<bool> {
    let Some(compilation) = show::compiled(file, reading, false) else { return Ok(false) };
    let mut out = io::stdout().lock();
    for entry in stubs::listing(&compilation) {
        writeln!(out, "{}", if reading.json { entry.to_json() } else { entry.to_text() })?;
    }
    Ok(true)
}

pub(super) fn completions(shell: clap_complete::Shell) -> Result<bool> {
    clap_complete::generate(shell, &mut Cli::command(), "sojourn-idl", &mut io::stdout());
    Ok(true)
}

pub(super) fn man() -> Result<bool> {
    clap_mangen::Man::new(Cli::command()).render(&mut io::stdout())?;
    Ok(true)
}
