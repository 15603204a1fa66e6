//! The configuration: one table of settings that flags, variables and the file share.
//!
//! A setting `move_after_calls` is the flag `--move-after-calls`, the variable
//! `SOJOURN_MOVE_AFTER_CALLS` and the key `move_after_calls` of the file; a flag wins over a
//! variable, a variable over the file. Whoever starts a program reads all three and hands the
//! result on as variables ([`Config::to_env`]); the preload library reads those alone
//! ([`Config::from_env`]). Not here: what the settings do; see `docs/understand/streams.md`. Read
//! `settings` first, the table; `file` is the file, `select` the lists of ports, addresses and
//! programs.

#[cfg(feature = "file")]
mod file;
mod select;
mod settings;
#[cfg(test)]
mod tests;

#[cfg(feature = "file")]
pub use file::{default_paths, load, load_noting};
pub use select::{Addresses, Ports, Prefix, Programs};
pub use settings::{SETTINGS, Setting};

use crate::KindT;
use std::ffi::OsStr;
use std::net::SocketAddr;
use std::path::PathBuf;

/// When a waiter spins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Spin {
    /// As long as it promises to be cheaper than sleeping.
    #[default]
    Adaptive,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// What can be configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// TCP connections may move.
    pub tcp: bool,
    /// Unix stream connections may move.
    pub unix: bool,
    /// Pipes may move.
    pub pipe: bool,
    /// UDP sockets may be carried by their programs.
    pub udp: bool,
    /// TCP ports, of either end.
    pub ports: Ports,
    /// TCP addresses, of the other end.
    pub addresses: Addresses,
    /// Names of programs.
    pub programs: Programs,
    /// Data calls after which a session is hot.
    pub move_after_calls: u32,
    /// Bytes after which a session is hot.
    pub move_after_bytes: u64,
    /// Ring bytes for each direction of a TCP connection.
    pub ring_bytes_tcp: u32,
    /// Ring bytes for each direction of a Unix connection.
    pub ring_bytes_unix: u32,
    /// Ring bytes of a pipe.
    pub ring_bytes_pipe: u32,
    /// The call that makes a session hot waits for the server's word: for tests.
    pub await_moves: bool,
    /// Bulk transfers with other hosts go home where the kernel is measured to be faster.
    pub measure_bulk: bool,
    /// When a waiter spins.
    pub spin: Spin,
    /// The longest time a waiter spins (µs) where it always spins; 0: for ever.
    pub spin_budget_us: u32,
    /// Fail instead of staying in the kernel where the user asked for acceleration: `sojourn run`
    /// fails if the program cannot be preloaded, the library is missing or no server can be had.
    pub strict: bool,
    /// Address of the server; empty: where it usually is, see [`crate::place`].
    pub server: String,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            tcp: true,
            unix: true,
            pipe: true,
            udp: true,
            ports: Ports::default(),
            addresses: Addresses::default(),
            programs: Programs::default(),
            move_after_calls: 32,
            move_after_bytes: 256 << 10,
            ring_bytes_tcp: 256 << 10,
            ring_bytes_unix: 128 << 10,
            ring_bytes_pipe: 128 << 10,
            await_moves: false,
            measure_bulk: true,
            spin: Spin::Adaptive,
            spin_budget_us: 0,
            strict: false,
            server: String::new(),
        }
    }
}

/// Why a setting could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// A flag's value.
    #[error("--{flag}: {cause}")]
    Flag {
        /// Without its dashes.
        flag: String,
        /// What is wrong with it.
        cause: String,
    },
    /// A variable's value.
    #[error("{variable}: {cause}")]
    Variable {
        /// Its name.
        variable: String,
        /// What is wrong with it.
        cause: String,
    },
    /// A line of the file.
    #[error("{}:{line}: {key}{cause}", path.display(), key = if key.is_empty() { String::new() } else { format!("{key}: ") })]
    File {
        /// The file.
        path: PathBuf,
        /// Counted from 1.
        line: usize,
        /// The key; empty where the text is not even TOML.
        key: String,
        /// What is wrong with it.
        cause: String,
    },
    /// The file itself.
    #[error("{}: cannot be read: {cause}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's words.
        cause: String,
    },
}

/// The smallest ring there is.
const RING_BYTES_UDP: u32 = 4 << 10;

/// What the variables begin with.
const PREFIX: &str = "SOJOURN_";

impl Config {
    /// The configuration that whoever started this program left in its environment. A variable that
    /// cannot be read counts as not set: the starter has told its user, and this program must run
    /// on. Looks at each variable once and allocates for lists and the server's address only.
    pub fn from_env<K: AsRef<OsStr>, V: AsRef<OsStr>>(
        variables: impl IntoIterator<Item = (K, V)>,
    ) -> Self {
        let mut config = Self::default();
        for (setting, value) in of_env(variables) {
            if let Some(value) = value {
                let _ = (setting.read)(&mut config, &value);
            }
        }
        config
    }

    /// Takes what the variables say.
    ///
    /// # Errors
    /// The first variable that cannot be read, [`ConfigError::Variable`]; the others count.
    pub fn apply_env<K: AsRef<OsStr>, V: AsRef<OsStr>>(
        &mut self,
        variables: impl IntoIterator<Item = (K, V)>,
    ) -> Result<(), ConfigError> {
        let mut first = Ok(());
        for (setting, value) in of_env(variables) {
            let read = match &value {
                Some(value) => (setting.read)(self, value),
                None => Err("not valid UTF-8".into()),
            };
            if let Err(cause) = read {
                let error = ConfigError::Variable { variable: setting.variable(), cause };
                first = first.and(Err(error));
            }
        }
        first
    }

    /// Takes one flag; `flag` without its dashes, with `-` or `_`.
    ///
    /// # Errors
    /// [`ConfigError::Flag`]: there is no such setting, or its value cannot be read.
    pub fn apply_flag(&mut self, flag: &str, value: &str) -> Result<(), ConfigError> {
        let error = |cause| ConfigError::Flag { flag: flag.to_owned(), cause };
        let setting = Setting::named(&flag.replace('-', "_"))
            .ok_or_else(|| error(unknown(&flag.replace('-', "_"))))?;
        (setting.read)(self, value).map_err(error)
    }

    /// The variables that say what differs from the defaults: with them [`Config::from_env`] gives
    /// the same.
    #[must_use]
    pub fn to_env(&self) -> Vec<(String, String)> {
        let default = Self::default();
        let mut pairs = Vec::new();
        for setting in SETTINGS {
            let Some(show) = setting.show else { continue };
            let value = show(self);
            if value != show(&default) {
                pairs.push((setting.variable(), value));
            }
        }
        pairs
    }

    /// Ring bytes wanted for each direction of a session.
    #[must_use]
    pub fn ring_bytes(&self, kind: KindT) -> u32 {
        match kind {
            KindT::Tcp => self.ring_bytes_tcp,
            KindT::Unix => self.ring_bytes_unix,
            KindT::Pipe => self.ring_bytes_pipe,
            // Its rings carry nothing.
            KindT::Udp => RING_BYTES_UDP,
        }
    }

    /// Whether sessions of this kind may move.
    #[must_use]
    pub fn allows(&self, kind: KindT) -> bool {
        match kind {
            KindT::Tcp => self.tcp,
            KindT::Unix => self.unix,
            KindT::Pipe => self.pipe,
            KindT::Udp => self.udp,
        }
    }

    /// Whether a TCP or UDP session between these ends may move, as far as ports and addresses go.
    /// A UDP socket that is not connected has no remote end: its peers are any.
    #[must_use]
    pub fn allows_between(&self, local: SocketAddr, remote: Option<SocketAddr>) -> bool {
        let Some(remote) = remote else {
            return self.addresses == Addresses::default()
                && self.ports.allow(local.port(), local.port());
        };
        self.ports.allow(local.port(), remote.port())
            && self.addresses.allow(remote.ip().to_canonical())
    }
}

/// The settings among variables, in the order of the table, so that a general setting comes before
/// the special ones whatever the order of the environment. `None`: not text.
fn of_env<K: AsRef<OsStr>, V: AsRef<OsStr>>(
    variables: impl IntoIterator<Item = (K, V)>,
) -> impl Iterator<Item = (&'static Setting, Option<String>)> {
    let mut found: [Option<Option<String>>; SETTINGS.len()] = [const { None }; SETTINGS.len()];
    for (name, value) in variables {
        let name = name.as_ref().as_encoded_bytes();
        let Some(rest) = name.strip_prefix(PREFIX.as_bytes()) else { continue };
        let is_it = |setting: &Setting| setting.name.as_bytes().eq_ignore_ascii_case(rest);
        let is_upper = !rest.iter().any(u8::is_ascii_lowercase);
        if let Some(at) = SETTINGS.iter().position(is_it).filter(|_| is_upper) {
            found[at] = Some(value.as_ref().to_str().map(str::to_owned));
        }
    }
    SETTINGS.iter().zip(found).filter_map(|(setting, value)| Some((setting, value?)))
}

/// What to tell the user of variables that are nearly settings: a name with a letter wrong counts
/// for nothing otherwise. Variables that are like none may be somebody else's.
pub fn misspelt<K: AsRef<OsStr>>(
    names: impl IntoIterator<Item = K>,
) -> impl Iterator<Item = ConfigError> {
    names.into_iter().filter_map(|variable| {
        let variable = variable.as_ref().to_str()?;
        let name = variable.strip_prefix(PREFIX)?;
        let meant = near(&name.to_ascii_lowercase())?.variable();
        let cause = format!("there is no such setting; did you mean {meant}?");
        (meant != variable).then(|| ConfigError::Variable { variable: variable.into(), cause })
    })
}

/// The setting that is most likely meant.
fn near(name: &str) -> Option<&'static Setting> {
    let setting = SETTINGS.iter().min_by_key(|setting| distance(setting.name, name))?;
    (distance(setting.name, name) <= 1 + name.len() / 4).then_some(setting)
}

/// What to say of a name that no setting has.
fn unknown(name: &str) -> String {
    match near(name) {
        Some(near) => format!("there is no such setting; did you mean `{}`?", near.name),
        None => {
            let names: Vec<_> = SETTINGS.iter().map(|setting| setting.name).collect();
            format!("there is no such setting; there are: {}", names.join(", "))
        }
    }
}

/// How many letters must be put in, taken out or replaced to make one name the other.
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut corner = row[0];
        row[0] = i + 1;
        for (j, y) in b.bytes().enumerate() {
            let replaced = corner + usize::from(x != y);
            corner = row[j + 1];
            row[j + 1] = replaced.min(corner + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}
