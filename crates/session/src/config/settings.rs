//! Table of settings: the name, the help, and the functions that read and show a value.
//!
//! Flags, variables, the file's keys and the manual are made from the table, so a new setting is
//! added here and in [`Config`] and nowhere else.

use super::values::Config;

/// Prefix of the environment variables.
pub(super) const PREFIX: &str = "SOJOURN_";

/// Entry of the table of settings.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Name in lower case with underscores.
    pub name: &'static str,
    /// Placeholder for the value in usage texts.
    pub metavar: &'static str,
    /// Description for users, of one or two sentences.
    pub help: &'static str,
    /// Function that reads a value into the configuration, or returns the error in words.
    pub read: fn(&mut Config, &str) -> Result<(), String>,
    /// Function that shows the value in the form in which it is read; `None` for a setting that
    /// only stands for several other settings.
    pub show: Option<fn(&Config) -> String>,
}

impl Setting {
    /// Returns the setting with that name.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        SETTINGS.iter().find(|setting| setting.name == name)
    }

    /// Returns the flag without its leading dashes.
    #[must_use]
    pub fn flag(&self) -> String {
        self.name.replace('_', "-")
    }

    /// Returns the name of the environment variable.
    #[must_use]
    pub fn variable(&self) -> String {
        format!("{}{}", PREFIX, self.name.to_ascii_uppercase())
    }
}

/// Makes the entry of a field of [`Config`] that `$parse` reads and `Display` shows.
macro_rules! setting {
    ($field:ident, $metavar:literal, $parse:expr, $help:literal) => {
        Setting {
            name: stringify!($field),
            metavar: $metavar,
            help: $help,
            read: |config, text| {
                config.$field = $parse(text.trim())?;
                Ok(())
            },
            show: Some(|config| config.$field.to_string()),
        }
    };
}

/// All settings. A setting that stands for several others comes before these.
pub const SETTINGS: &[Setting] = &[
    setting!(
        tcp,
        "on|off",
        switch,
        "Move TCP connections: between programs of this host, and with other hosts where a server runs with `--network`."
    ),
    setting!(unix, "on|off", switch, "Move Unix stream connections."),
    setting!(pipe, "on|off", switch, "Move pipes."),
    setting!(
        udp,
        "on|off",
        switch,
        "Move what UDP sockets exchange with other hosts, where a server runs with `--network`."
    ),
    setting!(
        ports,
        "PORTS",
        str::parse,
        "TCP and UDP ports of either end: `80,8000-8099` moves these only, `!22` leaves that one to the kernel. What has no ports is not concerned."
    ),
    setting!(
        addresses,
        "PREFIXES",
        str::parse,
        "TCP and UDP addresses of the other end: `127.0.0.0/8,::1` moves these only, `!10.0.0.0/8` leaves those to the kernel."
    ),
    setting!(
        programs,
        "NAMES",
        str::parse,
        "Names of programs (of the file, of the link to it, or as `ps` shows it): `redis-server` accelerates that one only, `!sshd` leaves that one alone."
    ),
    setting!(
        home,
        "library|server",
        str::parse,
        "Where TCP sessions with other hosts are while they are away from the kernel: in the program's own process, or in the protocol server's, which the program calls."
    ),
    setting!(
        move_after_calls,
        "N",
        |text| number(text, 0, u64::from(u32::MAX)).map(|n| n as u32),
        "A session moves after so many calls that send or receive; 0 moves it at the first."
    ),
    setting!(
        move_after_bytes,
        "BYTES",
        |text| number(text, 0, u64::MAX),
        "A session moves after so many bytes; `256k` and `1M` are understood."
    ),
    Setting {
        name: "ring_bytes",
        metavar: "BYTES",
        help: "Size of the ring for each direction, for sessions of every kind; rounded down to a power of two.",
        read: |config, text| {
            let bytes = ring(text.trim())?;
            config.ring_bytes_tcp = bytes;
            config.ring_bytes_unix = bytes;
            config.ring_bytes_pipe = bytes;
            Ok(())
        },
        show: None,
    },
    setting!(ring_bytes_tcp, "BYTES", ring, "The same for TCP connections."),
    setting!(ring_bytes_unix, "BYTES", ring, "The same for Unix connections."),
    setting!(ring_bytes_pipe, "BYTES", ring, "The same for pipes."),
    setting!(
        await_moves,
        "on|off",
        switch,
        "The call that makes a session hot waits until the server has looked at it, a second at most. For test suites, whose sessions are over before they would have moved."
    ),
    setting!(
        measure_bulk,
        "on|off",
        switch,
        "Measure sessions with other hosts, and those of this host whose ends sleep at each exchange; leave them to the kernel where it is faster."
    ),
    setting!(
        spin,
        "adaptive|always|never",
        str::parse,
        "Whether a thread that waits looks again and again for a while before it sleeps."
    ),
    setting!(
        spin_budget_us,
        "MICROSECONDS",
        |text| number(text, 0, 1_000_000).map(|n| n as u32),
        "With spin=always: the longest time a thread looks before it sleeps; 0 is for ever. With adaptive that time is measured."
    ),
    setting!(
        load,
        "auto|on|off",
        str::parse,
        "Load programs that make their own system calls (static ones, musl's, Go's) with Sojourn's loader, so that their sessions move as well. They start some milliseconds later the first time, a fraction of a millisecond afterwards. With auto, static children whose last three starts had no busy session start plainly."
    ),
    setting!(
        rewrite,
        "on|off",
        switch,
        "Rewrite the system calls that preloaded programs make themselves, past the C library (inline, as in Rust's rustix), before the first session moves, so that these are served for sessions as well."
    ),
    setting!(
        follow,
        "off|same-user|on",
        str::parse,
        "Put the library back into the environment of new programs where the program that starts them has emptied it (env -i, sshd, nginx for its successor): as long as that program is the user that it was at its start, or also when it has become another one. Never into programs that gain privileges."
    ),
    setting!(
        strict,
        "on|off",
        switch,
        "Fail instead of running a program without acceleration: if it cannot be preloaded, the library is missing or no server can be had."
    ),
    setting!(
        server,
        "ADDRESS",
        |text: &str| Ok::<_, String>(text.to_owned()),
        "Where the session server is: a path, or `@name` in the abstract name space. Empty: where it usually is."
    ),
];

/// Smallest and largest size of a ring (bytes).
const RING: (u64, u64) = (4 << 10, 16 << 20);

fn switch(text: &str) -> Result<bool, String> {
    match text.to_ascii_lowercase().as_str() {
        "1" | "on" | "true" | "yes" => Ok(true),
        "0" | "off" | "false" | "no" => Ok(false),
        _ => Err(format!("`{text}` is neither on nor off")),
    }
}

fn ring(text: &str) -> Result<u32, String> {
    // The upper bound is 16 MiB, so the number fits into 32 bits.
    number(text, RING.0, RING.1).map(|bytes| bytes as u32)
}

/// Reads a number, optionally with the suffix `k`, `M` or `G` for powers of 1024.
fn number(text: &str, min: u64, max: u64) -> Result<u64, String> {
    let (digits, shift) = match text.as_bytes().last() {
        Some(b'k' | b'K') => (&text[..text.len() - 1], 10),
        Some(b'm' | b'M') => (&text[..text.len() - 1], 20),
        Some(b'g' | b'G') => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    let value = digits
        .replace('_', "")
        .parse::<u64>()
        .ok()
        .and_then(|value| value.checked_mul(1 << shift))
        .ok_or_else(|| format!("`{text}` is not a number (such as 65536 or 64k)"))?;
    if value < min || value > max {
        return Err(format!("{text} is out of range: at least {min}, at most {max}"));
    }
    Ok(value)
}
