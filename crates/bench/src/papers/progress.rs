//! The bar that shows how far a run is.

use std::cell::Cell;

use indicatif::{ProgressBar, ProgressStyle};

/// So much of the bar for a second of work.
const STEPS: f64 = 10.0;

/// The progress bar. A part's weight is its expected time (about seconds).
pub(crate) struct Progress {
    bar: ProgressBar,
    /// The current part.
    part: Cell<Part>,
}

#[derive(Clone, Copy, Default)]
struct Part {
    /// The weight of the parts before it.
    start: f64,
    weight: f64,
}

impl Progress {
    /// Makes a bar for parts of this total weight. The bar is hidden if standard error is no
    /// terminal.
    pub(crate) fn new(weight: f64) -> Self {
        let bar = ProgressBar::new((weight * STEPS) as u64);
        // The template is constant and valid. With an invalid one the bar would have its default
        // style.
        if let Ok(style) = ProgressStyle::with_template("{bar:40} {percent:>3} %  {msg}  {elapsed}")
        {
            bar.set_style(style);
        }
        Self { bar, part: Cell::default() }
    }

    /// Begins a part and ends the part before.
    pub(crate) fn begin(&self, name: &str, weight: f64) {
        let before = self.part.get();
        self.part.set(Part { start: before.start + before.weight, weight });
        self.bar.set_message(name.to_owned());
        self.at(0.0);
    }

    /// Sets the finished fraction of the current part, 0 to 1.
    pub(crate) fn at(&self, fraction: f64) {
        let Part { start, weight } = self.part.get();
        self.bar.set_position(((start + weight * fraction) * STEPS) as u64);
    }

    /// Ends the bar.
    pub(crate) fn end(&self) {
        self.bar.finish_and_clear();
    }
}
