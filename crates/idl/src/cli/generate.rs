//! Compiling an IDL file to stubs.

use std::fs;

use anyhow::{Context as _, Result};
use sojourn_idl::backend::{self, Output};
use sojourn_idl::{make_rule, write_all};

use super::args::Generate;
use super::show;

pub(super) fn run(args: &Generate) -> Result<bool> {
    let Some(file) = &args.input.file else { return Ok(false) };
    let both = !(args.rust || args.c);
    let reading = &args.input.reading;
    let Some(compilation) = show::compiled(file, reading, both || args.rust) else {
        return Ok(false);
    };
    let all = !(args.client || args.server || args.header);
    let options = backend::Options {
        client: all || args.client,
        server: all || args.server,
        types: all || args.header,
        tests: args.tests,
        ..backend::Options::default()
    };
    let mut outputs: Vec<Output> = Vec::new();
    if both || args.rust {
        outputs.extend(backend::rust::generate(&compilation.module, &options));
    }
    if both || args.c {
        outputs.extend(backend::c::generate(&compilation.module, &options));
    }
    let written = write_all(&args.out_dir, &outputs)?;
    if let Some(depend) = &args.depend {
        let rule = make_rule(&written, &compilation.module.sources);
        fs::write(depend, rule).with_context(|| format!("cannot write {}", depend.display()))?;
    }
    Ok(true)
}
