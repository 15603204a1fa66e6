//! `size_is` and its kin: one slot for each step of the declarator.

use super::analyzer::Analyzer;
use super::scope::{Derivation, Role, Siblings};
use crate::ast::{Args, Attr, Expr as Tree};
use crate::diag::{Diagnostic, codes};
use crate::ir::{BinaryOp, Expr};
use crate::source::Span;

/// What attributes say about one array.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Extent {
    /// Number of elements.
    pub(super) size: Option<Expr>,
    pub(super) size_span: Option<Span>,
    /// First transmitted element.
    pub(super) first: Option<Expr>,
    length: Option<Expr>,
    last: Option<Expr>,
}

impl Extent {
    /// Returns true if anything is said, so that a pointer is an array.
    pub(super) fn is_given(&self) -> bool {
        self.size.is_some() || self.is_varying()
    }

    /// Returns true if only a part may be transmitted.
    pub(super) fn is_varying(&self) -> bool {
        self.first.is_some() || self.length.is_some() || self.last.is_some()
    }

    /// Number of transmitted elements; `None`: all.
    pub(super) fn length(&self, size: &Expr) -> Option<Expr> {
        let first = self.first.clone().unwrap_or(Expr::Const(0));
        if let Some(length) = &self.length {
            return Some(length.clone());
        }
        if let Some(last) = &self.last {
            return Some(add_one(subtract(last.clone(), first)));
        }
        self.first.as_ref().map(|first| subtract(size.clone(), first.clone()))
    }
}

/// Extents of the steps of one declarator.
#[derive(Clone, Debug, Default)]
pub(super) struct Sizes {
    list: Vec<Extent>,
}

impl Sizes {
    pub(super) fn at(&self, level: usize) -> Extent {
        self.list.get(level).cloned().unwrap_or_default()
    }

    /// As [`Self::at`]; the step counts as spoken for.
    pub(super) fn take(&mut self, level: usize) -> Extent {
        self.list.get_mut(level).map(std::mem::take).unwrap_or_default()
    }
}

impl Analyzer<'_> {
    /// Reads the size attributes. `None`: reported.
    pub(super) fn sizes(
        &mut self,
        attrs: &[Attr],
        levels: &[Derivation],
        siblings: &mut Siblings,
    ) -> Option<Sizes> {
        let mut sizes = Sizes { list: vec![Extent::default(); levels.len()] };
        let mut ok = true;
        for attr in attrs {
            let Args::Exprs(slots) = &attr.args else { continue };
            let name = attr.name.text.as_str();
            if !matches!(
                name,
                "size_is" | "max_is" | "min_is" | "length_is" | "first_is" | "last_is"
            ) {
                continue;
            }
            if slots.len() > levels.len() {
                self.too_many_slots(attr, levels.len());
                ok = false;
                continue;
            }
            for (level, tree) in
                slots.iter().enumerate().filter_map(|(i, s)| Some((i, s.as_ref()?)))
            {
                ok &= self.slot(name, attr.span, tree, &mut sizes.list[level], siblings).is_some();
            }
        }
        ok.then_some(sizes)
    }

    fn too_many_slots(&mut self, attr: &Attr, levels: usize) {
        let (message, help) = if levels == 0 {
            (
                format!("`{}` belongs to an array", attr.name.text),
                "declare a pointer or array: `[size_is(n)] long *a`",
            )
        } else {
            (
                format!("`{}` speaks of more dimensions than there are", attr.name.text),
                "there is one slot for each `[]` and `*`, from the name outwards",
            )
        };
        self.error(codes::SIZE_SLOTS, attr.span, message, help);
    }

    fn slot(
        &mut self,
        name: &str,
        span: Span,
        tree: &Tree,
        extent: &mut Extent,
        siblings: &mut Siblings,
    ) -> Option<()> {
        siblings.role = if matches!(name, "size_is" | "max_is") { Role::Size } else { Role::Part };
        let expr = self.expression(tree, siblings)?;
        let place = match name {
            "size_is" => &mut extent.size,
            "max_is" => {
                let size = if self.dialect.max_is_count { expr } else { add_one(expr) };
                return self.set(&mut extent.size, size, span).map(|()| {
                    extent.size_span = Some(span);
                });
            }
            "length_is" if extent.last.is_some() => return self.twice(span),
            "last_is" if extent.length.is_some() => return self.twice(span),
            "length_is" => &mut extent.length,
            "last_is" => &mut extent.last,
            "first_is" => &mut extent.first,
            _ => return self.min_is(&expr, span),
        };
        self.set(place, expr, span)?;
        if name == "size_is" {
            extent.size_span = Some(span);
        }
        Some(())
    }

    fn set(&mut self, place: &mut Option<Expr>, expr: Expr, span: Span) -> Option<()> {
        if place.is_some() {
            return self.twice(span);
        }
        *place = Some(expr);
        Some(())
    }

    fn twice(&mut self, span: Span) -> Option<()> {
        self.sink.push(
            Diagnostic::error(codes::ATTRIBUTE_CONFLICT, span, "this has been said already")
                .help("give either size_is or max_is, and either length_is or last_is"),
        );
        None
    }

    fn min_is(&mut self, expr: &Expr, span: Span) -> Option<()> {
        if *expr == Expr::Const(0) {
            return Some(());
        }
        self.error(
            codes::LOWER_BOUND,
            span,
            "arrays begin at index 0".to_owned(),
            "take min_is out; first_is says where transmission begins",
        );
        None
    }
}

fn add_one(expr: Expr) -> Expr {
    match expr {
        Expr::Const(n) => Expr::Const(n + 1),
        expr => Expr::Binary(BinaryOp::Add, Box::new(expr), Box::new(Expr::Const(1))),
    }
}

fn subtract(a: Expr, b: Expr) -> Expr {
    match (a, b) {
        (a, Expr::Const(0)) => a,
        (Expr::Const(a), Expr::Const(b)) => Expr::Const(a - b),
        (a, b) => Expr::Binary(BinaryOp::Sub, Box::new(a), Box::new(b)),
    }
}
