//! Writing what was generated: everything or nothing.
//!
//! Every file is first written beside its destination under a temporary name; only when all are
//! there are they renamed. A file whose text has not changed is left alone, so that build tools
//! see nothing new.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::backend::Output;

/// A file could not be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {}: {source}", path.display())]
pub struct WriteError {
    /// Which.
    pub path: PathBuf,
    /// Why.
    pub source: io::Error,
}

/// Writes `outputs` below `dir`, which is made if it does not exist; answers their paths.
///
/// # Errors
/// [`WriteError`] for the first file that could not be written; no destination is touched then,
/// unless a rename fails midway.
pub fn write_all(dir: &Path, outputs: &[Output]) -> Result<Vec<PathBuf>, WriteError> {
    let mut staged = Vec::new();
    let result = stage(dir, outputs, &mut staged);
    if let Err(failure) = result {
        for Staged { temporary, .. } in &staged {
            // What cannot be removed now could not be removed later either.
            let _ = fs::remove_file(temporary);
        }
        return Err(failure);
    }
    for Staged { temporary, path } in &staged {
        fs::rename(temporary, path).map_err(|source| WriteError { path: path.clone(), source })?;
    }
    Ok(outputs.iter().map(|o| dir.join(&o.path)).collect())
}

/// A file that is written under a temporary name.
struct Staged {
    temporary: PathBuf,
    /// Its destination.
    path: PathBuf,
}

fn stage(dir: &Path, outputs: &[Output], staged: &mut Vec<Staged>) -> Result<(), WriteError> {
    for output in outputs {
        let path = dir.join(&output.path);
        if fs::read(&path).is_ok_and(|old| old == output.text.as_bytes()) {
            continue;
        }
        let failed = |source| WriteError { path: path.clone(), source };
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(failed)?;
        }
        let mut name = path.file_name().unwrap_or_default().to_os_string();
        name.push(format!(".{}.tmp", std::process::id()));
        let temporary = path.with_file_name(name);
        staged.push(Staged { temporary: temporary.clone(), path: path.clone() });
        fs::write(&temporary, &output.text).map_err(failed)?;
    }
    Ok(())
}

/// A rule for make: `targets: sources`.
#[must_use]
pub fn make_rule(targets: &[PathBuf], sources: &[String]) -> String {
    let targets: Vec<String> = targets.iter().map(|t| escape(&t.display().to_string())).collect();
    let sources: Vec<String> = sources.iter().map(|s| escape(s)).collect();
    format!("{}: {}\n", targets.join(" "), sources.join(" \\\n  "))
}

fn escape(path: &str) -> String {
    path.replace('$', "$$").replace('#', "\\#").replace(' ', "\\ ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output(path: &str, text: &str) -> Output {
        Output { path: path.into(), text: text.into() }
    }

    #[test]
    fn all_or_nothing() {
        let dir = std::env::temp_dir().join(format!("sojourn-idl-out-{}", std::process::id()));
        fs::create_dir_all(dir.join("taken")).unwrap();
        let files = [output("a.h", "a"), output("taken", "a folder has this name")];
        // A folder cannot be replaced by a file, but nothing shows that before the rename.
        assert!(write_all(&dir, &[output("taken/x/\0", "x"), output("b.h", "b")]).is_err());
        assert!(!dir.join("b.h").exists());
        assert!(write_all(&dir, &files).is_err());
        let left: Vec<_> = fs::read_dir(&dir).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert!(!left.iter().any(|n| n == "b.h"), "{left:?}");
        write_all(&dir, &files[..1]).unwrap();
        assert_eq!(fs::read_to_string(dir.join("a.h")).unwrap(), "a");
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn make_sees_no_special_characters() {
        let rule = make_rule(&[PathBuf::from("out dir/a.h")], &["a.idl".into(), "$x.idl".into()]);
        assert_eq!(rule, "out\\ dir/a.h: a.idl \\\n  $$x.idl\n");
    }
}
