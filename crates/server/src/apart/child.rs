//! The child's side of its line to the parent: what belongs to it, its beats, its end.
//!
//! A child beats while all of its threads make progress (`beat`). It ends with its parent: the
//! kernel kills it, and if it was started by one that had ended already, the line tells. Not here:
//! the parent's side (`generation`).

use super::line::{self, BEAT, BELONGINGS, LineMessage, READY, STOP};
use crate::beat::Beats;
use crate::log::{self, Level};
use rustix::fd::{AsFd, OwnedFd};
use rustix::process::{
    DumpableBehavior, Signal, set_dumpable_behavior, set_parent_process_death_signal,
};
use std::ffi::CStr;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The interval between two beats.
pub(super) const BEAT_EVERY: Duration = Duration::from_secs(5);
/// The time in which the parent sends what belongs to a child.
const BELONGINGS_LIMIT: Duration = Duration::from_secs(10);

/// A child of the parent, in its own process.
#[derive(Clone, Debug)]
pub(super) struct Child {
    control: Arc<OwnedFd>,
}

/// A child that has begun.
pub(super) struct EnteredChild {
    pub(super) child: Child,
    /// What belongs to it.
    pub(super) belongings: Vec<OwnedFd>,
}

impl Child {
    /// Begins as a child with that name, after it has given up its rights.
    pub(super) fn enter(name: &CStr) -> io::Result<EnteredChild> {
        // A Ctrl-C for the process group of the parent must not end the child, and its working
        // directory must not keep a file system from being unmounted.
        let _ = rustix::process::setsid();
        let _ = rustix::process::chdir("/");
        let _ = rustix::thread::set_name(name);
        // After the change of rights, which would undo both. Other processes of the same user may
        // look into this one no more than those of other users.
        set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
        set_parent_process_death_signal(Some(Signal::KILL))?;
        let control = io::stdin().as_fd().try_clone_to_owned()?;
        line::wait(&control, BELONGINGS_LIMIT);
        match line::hear(&control) {
            LineMessage::Told(BELONGINGS, belongings) => {
                Ok(EnteredChild { child: Self { control: Arc::new(control) }, belongings })
            }
            _ => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    /// Tells the parent that this process is ready.
    pub(super) fn ready(&self) {
        let _ = line::tell(&self.control, READY, &[]);
    }

    /// Beats from now on, on a thread of its own; `stop` is called when the parent asks for the
    /// end.
    pub(super) fn watch(
        &self,
        beats: Beats,
        mut stop: impl FnMut() + Send + 'static,
    ) -> io::Result<()> {
        let control = Arc::clone(&self.control);
        let watch = move || {
            let mut was_late = None;
            let mut next = Instant::now();
            loop {
                line::wait(&control, next.saturating_duration_since(Instant::now()));
                match line::hear(&control) {
                    LineMessage::Told(STOP, _) => stop(),
                    LineMessage::Told(..) | LineMessage::Nothing => {}
                    // Nothing is left to be done: the parent has ended, or ends this process.
                    LineMessage::Ended => std::process::exit(0),
                }
                if Instant::now() < next {
                    continue;
                }
                next = Instant::now() + BEAT_EVERY;
                let late = beats.late_now();
                match late {
                    None => drop(line::tell(&control, BEAT, &[])),
                    // Reported once, and not at every look.
                    Some(name) if was_late != late => {
                        log::say(Level::Error, format_args!("no progress: {name}"));
                    }
                    Some(_) => {}
                }
                was_late = late;
            }
        };
        std::thread::Builder::new().name("sojourn-parent".into()).spawn(watch).map(drop)
    }
}
