//! The bar that shows how far a run is.

use std::cell::Cell;

use indicatif::{ProgressBar, ProgressStyle};

/// So much of the bar for a second of work.
const STEPS: f64 = 10.0;

/// The bar. What is expected of each part is its weight (about seconds).
pub(crate) struct Progress {
    bar: ProgressBar,
    /// Where the part at hand begins, and its weight.
    part: Cell<(f64, f64)>,
}

impl Progress {
    /// For parts of so much weight together. Nothing is shown where nobody looks.
    pub(crate) fn new(weight: f64) -> Self {
        let bar = ProgressBar::new((weight * STEPS) as u64);
        // The template is right as it stands; a wrong one would only leave the usual look.
        if let Ok(style) = ProgressStyle::with_template("{bar:40} {percent:>3} %  {msg}  {elapsed}")
        {
            bar.set_style(style);
        }
        Self { bar, part: Cell::new((0.0, 0.0)) }
    }

    /// Begins a part; the one before is over.
    pub(crate) fn begin(&self, name: &str, weight: f64) {
        let (start, before) = self.part.get();
        self.part.set((start + before, weight));
        self.bar.set_message(name.to_owned());
        self.at(0.0);
    }

    /// Of the part at hand so much is done, 0 to 1.
    pub(crate) fn at(&self, fraction: f64) {
        let (start, weight) = self.part.get();
        self.bar.set_position(((start + weight * fraction) * STEPS) as u64);
    }

    /// Everything is done.
    pub(crate) fn end(&self) {
        self.bar.finish_and_clear();
    }
}
