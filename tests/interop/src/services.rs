//! Servers that know what must arrive.

use std::sync::Arc;

use sojourn_ipc::{Server, rt};
use sojourn_stubs_rust::{calc, everything, files, paper};

use crate::generated::corners;
use crate::limits::Failure;

/// Says whether a one-way message was wrong since the last call.
type Check = Box<dyn Fn() -> Result<(), rt::Fault>>;

/// The interfaces of one file behind one endpoint.
pub struct Checked {
    /// What serves them.
    pub router: rt::Router<Server>,
    checks: Vec<Check>,
}

impl core::fmt::Debug for Checked {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Checked").field("router", &self.router).finish_non_exhaustive()
    }
}

impl Checked {
    /// Whether the last one-way messages were as they must be: no answer says so of them.
    ///
    /// # Errors
    /// The oracle's fault.
    pub fn verdict(&self) -> Result<(), rt::Fault> {
        self.checks.iter().try_for_each(|check| check())
    }
}

/// Adds oracles and their checks.
macro_rules! oracles {
    ($checked:ident, $seed:ident: $($home:ident, $service:ident, $random:ident, $oracle:ident);+) => {{
        $(
            let oracle = Arc::new($home::$random::$oracle::new($seed));
            let service = $home::$service::<$home::$random::$oracle>::new(Arc::clone(&oracle));
            $checked.router.add(service)?;
            $checked.checks.push(Box::new(move || oracle.check(false, Ok(()))));
        )+
    }};
}

/// Serves the interfaces of `file` with the values of `seed`.
///
/// # Errors
/// No such file.
pub fn services(file: &str, seed: u64) -> Result<Checked, Failure> {
    let mut checked = Checked { router: rt::Router::new(), checks: Vec::new() };
    match file {
        "calc" => oracles!(checked, seed: calc, CalcService, calc_random, CalcOracle),
        "corners" => {
            oracles!(checked, seed: corners, CornersService, corners_random, CornersOracle)
        }
        "everything" => oracles!(checked, seed:
            everything, ObserverService, observer_random, ObserverOracle;
            everything, EverythingBaseService, everything_base_random, EverythingBaseOracle;
            everything, EverythingService, everything_random, EverythingOracle),
        "files" => oracles!(checked, seed: files, FilesService, files_random, FilesOracle),
        "paper" => oracles!(checked, seed: paper, PaperService, paper_random, PaperOracle),
        _ => return Err(format!("no such file: {file}").into()),
    }
    Ok(checked)
}
