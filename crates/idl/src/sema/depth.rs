//! How deep types may go into one another: what is deeper is refused, for every later stage goes
//! along all of it, on one stack.
//!
//! Not here: how large they may be, and their order, in which parts come before what contains them
//! (`order`).

use super::analyzer::Analyzer;
use super::order::{contained, for_each, for_each_in_kind};
use crate::diag::codes;
use crate::ir::{Module, Ty, TypeKind};
use crate::source::Span;

/// Types in place inside one another.
const NESTING_MAX: u32 = 256;

/// Pointers to pointers, by names of types that are nothing else.
const POINTERS_MAX: u32 = 16;

/// Types that point to, or hold, one another in a row: every later stage goes along it.
const ROW_MAX: u32 = 512;

impl Analyzer<'_> {
    /// Types that stand in place inside one another: every later stage goes down into them.
    pub(super) fn check_nesting(&mut self, module: &Module, spans: &[Span]) {
        // Parts come before what contains them.
        let mut levels: Vec<u32> = Vec::new();
        for (def, span) in module.types.iter().zip(spans) {
            let parts = contained(&def.kind);
            let below = parts.iter().filter_map(|id| levels.get(id.0 as usize)).max();
            let level = below.map_or(0, |below| below + 1);
            if level == NESTING_MAX {
                self.error(
                    codes::TOO_DEEP,
                    *span,
                    format!("`{}` has types inside one another {level} deep", def.name),
                    "point to inner parts instead of holding them",
                );
            }
            levels.push(level);
        }
        self.check_pointers(module, spans);
        self.check_rows(module, spans);
    }

    /// Types each of which mentions the one before.
    fn check_rows(&mut self, module: &Module, spans: &[Span]) {
        let mut lengths: Vec<u32> = Vec::new();
        for (def, span) in module.types.iter().zip(spans) {
            let mut length = 0;
            for_each_in_kind(&def.kind, &mut |ty| {
                if let Ty::Named(id) | Ty::Union(id, _) = ty {
                    // One that comes later closes a circle, and is gone along once.
                    length = length.max(lengths.get(id.0 as usize).map_or(0, |before| before + 1));
                }
            });
            if length > ROW_MAX {
                self.error(
                    codes::TOO_DEEP,
                    *span,
                    format!(
                        "`{}` is the last of {length} types each of which uses the one before",
                        def.name
                    ),
                    "use an array, or a list: one structure that points to its own kind",
                );
                length = 0;
            }
            lengths.push(length);
        }
    }

    /// Names of pointers that point to such names: they are written out, one inside the other.
    fn check_pointers(&mut self, module: &Module, spans: &[Span]) {
        // What an alias points to comes before it: only structures can close a circle.
        let mut levels: Vec<u32> = Vec::new();
        for (def, span) in module.types.iter().zip(spans) {
            let mut level = 0;
            if let TypeKind::Alias(ty) = &def.kind {
                let mut pointers = 0;
                for_each(ty, &mut |ty| match ty {
                    Ty::Pointer(..) | Ty::Array(_) => pointers += 1,
                    Ty::Named(id) => {
                        level = pointers + levels.get(id.0 as usize).copied().unwrap_or(0);
                    }
                    _ => {}
                });
            }
            // Once for the first of them, and once for each that begins anew from there.
            if level > POINTERS_MAX {
                self.error(
                    codes::TOO_DEEP,
                    *span,
                    format!("`{}` is a pointer to pointers, {level} deep", def.name),
                    "point to a structure that has the next pointer",
                );
                level = 0;
            }
            levels.push(level);
        }
    }
}
