//! Tests of the configuration: flags, variables and file have the same effect, and errors are
//! worded as intended.

use super::*;
use crate::KindT;
use std::ffi::{OsStr, OsString};

fn changed() -> Config {
    let mut config = Config::default();
    for (flag, value) in [
        ("pipe", "off"),
        ("ports", "80, 8000-8099, !8022"),
        ("addresses", "127.0.0.0/8,::1,!127.0.0.2"),
        ("programs", "/usr/bin/redis-server,!sshd"),
        ("home", "server"),
        ("move-after-calls", "0"),
        ("move_after_bytes", "1M"),
        ("ring-bytes", "128k"),
        ("ring-bytes-pipe", "4096"),
        ("spin", "never"),
        ("spin-budget-us", "50"),
        ("load", "off"),
        ("strict", "yes"),
        ("server", "@test"),
    ] {
        config.apply_flag(flag, value).unwrap();
    }
    config
}

#[test]
fn every_setting_is_shown_as_it_is_read() {
    let config = changed();
    for setting in SETTINGS {
        let Some(show) = setting.show else { continue };
        let mut other = Config::default();
        (setting.read)(&mut other, &show(&config)).unwrap();
        assert_eq!(show(&other), show(&config), "{}", setting.name);
        assert!(setting.help.ends_with('.'), "{}", setting.name);
    }
}

fn named_value(one: &Variable) -> NamedValue<'_> {
    NamedValue { name: OsStr::new(&one.name), value: OsStr::new(&one.value) }
}

#[test]
fn the_environment_carries_the_whole_configuration() {
    let config = changed();
    let variables = config.to_env();
    let lookup = |name: &str| {
        let found = variables.iter().find(|variable| variable.name == name);
        found.map(|variable| OsString::from(&variable.value))
    };
    assert_eq!(Config::from_env(variables.iter().map(named_value)), config);
    assert_eq!(Config::from_env(variables.iter().rev().map(named_value)), config);
    assert!(Config::default().to_env().is_empty());
    let mut applied = Config::default();
    applied.apply_env(lookup).unwrap();
    assert_eq!(applied, config);
}

#[test]
fn a_general_setting_comes_before_special_ones_in_any_order() {
    let variables = [("SOJOURN_RING_BYTES_TCP", "4k"), ("SOJOURN_RING_BYTES", "8k")];
    let named = |(name, value)| NamedValue { name: OsStr::new(name), value: OsStr::new(value) };
    let config = Config::from_env(variables.map(named));
    assert_eq!((config.ring_bytes_tcp, config.ring_bytes_unix), (4 << 10, 8 << 10));
    assert_eq!(config.ring_bytes(KindT::Pipe), 8 << 10);
}

#[test]
fn what_the_environment_cannot_mean_is_left_out_and_told_to_who_asks() {
    use std::os::unix::ffi::OsStrExt;
    let variables = [
        ("SOJOURN_MOVE_AFTER_CALLS", OsStr::new("many")),
        ("SOJOURN_SERVER", OsStr::from_bytes(b"\xff")),
        ("SOJOURN_PIPE", OsStr::new("off")),
        ("SOJOURN_pipe", OsStr::new("on")),
        ("SOJOURN_", OsStr::new("")),
        ("PATH", OsStr::new("/bin")),
    ];
    let variable = |name: &str| {
        let found = variables.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| OsString::from(value))
    };
    let named = |(name, value)| NamedValue { name: OsStr::new(name), value };
    let config = Config::from_env(variables.map(named));
    assert_eq!(config, Config { pipe: false, ..Config::default() });
    let error = Config::default().apply_env(variable).unwrap_err();
    assert_eq!(
        error.to_string(),
        "SOJOURN_MOVE_AFTER_CALLS: `many` is not a number (such as 65536 or 64k)"
    );
}

#[test]
fn variables_that_are_nearly_settings_are_told() {
    let names = [
        "SOJOURN_MOVE_AFTER_CALL",
        "SOJOURN_pipe",
        "SOJOURN_CONFIG",
        "SOJOURN_PRELOAD",
        "SOJOURN_TCP",
        "PIPE",
    ];
    let errors: Vec<String> = misspelt(names).map(|error| error.to_string()).collect();
    assert_eq!(
        errors,
        [
            "SOJOURN_MOVE_AFTER_CALL: there is no such setting; did you mean SOJOURN_MOVE_AFTER_CALLS?",
            "SOJOURN_pipe: there is no such setting; did you mean SOJOURN_PIPE?",
        ]
    );
}

#[test]
fn lists_say_what_may_move() {
    let config = changed();
    assert!(config.ports.allow(80, 50000) && config.ports.allow(50000, 8099));
    assert!(!config.ports.allow(443, 50000) && !config.ports.allow(80, 8022));
    assert!(Ports::default().allow(1, 2));
    let allow = |text: &str| config.addresses.allow(text.parse().unwrap());
    assert!(allow("127.0.0.1") && allow("::ffff:127.0.0.1") && allow("::1"));
    assert!(!allow("127.0.0.2") && !allow("10.0.0.1") && !allow("::2"));
    assert!("0.0.0.0/0".parse::<Prefix>().unwrap().contains("9.9.9.9".parse().unwrap()));
    let allow = |name| config.programs.allow(&["/usr/bin/redis-check-rdb", name]);
    assert!(allow("/opt/redis-server") && !allow("sshd"));
    assert!(!allow("other") && Programs::default().allow(&["other"]));
}

#[test]
fn errors_of_flags_say_what_would_do() {
    let error = |flag, value| Config::default().apply_flag(flag, value).unwrap_err().to_string();
    assert_eq!(error("pipes", "on"), "--pipes: there is no such setting; did you mean `pipe`?");
    assert!(error("colour", "red").contains("there are: tcp, unix, pipe"));
    assert_eq!(error("ports", "80-8"), "--ports: `80-8` ends before it begins");
    assert_eq!(
        error("addresses", "10/8"),
        "--addresses: `10/8` is not an address or prefix (such as 10.0.0.0/8)"
    );
    assert!(error("addresses", "10.0.0.0/33").contains("at most 32 bits"));
    assert!(error("ring-bytes", "1").contains("at least 4096"));
    assert_eq!(error("tcp", "maybe"), "--tcp: `maybe` is neither on nor off");
}

#[cfg(feature = "file")]
mod with_file {
    use super::*;
    use std::ffi::OsString;
    use std::path::Path;

    #[test]
    fn a_file_says_the_same_with_types_of_its_own() {
        let text = "# comment\npipe = false\nports = [80, \"8000-8099\", \"!8022\"]\nmove_after_calls = 0\n\
            move_after_bytes = \"1M\"\nring_bytes_pipe = 4096\nring_bytes = 131072\naddresses = [\"127.0.0.0/8\", \"::1\", \"!127.0.0.2\"]\n\
            programs = [\"redis-server\", \"!sshd\"]\nhome = \"server\"\nspin = \"never\"\nspin_budget_us = 50\nload = \"off\"\nstrict = true\nserver = \"@test\"\n";
        let mut config = Config::default();
        config.apply_file(Path::new("x.toml"), text).unwrap();
        assert_eq!(config, changed());
    }

    #[test]
    fn errors_name_file_line_key_and_cause() {
        let error = |text: &str| {
            Config::default().apply_file(Path::new("x.toml"), text).unwrap_err().to_string()
        };
        assert_eq!(
            error("tcp = true\n\nmove_after_calls = \"often\"\n"),
            "x.toml:3: move_after_calls: `often` is not a number (such as 65536 or 64k)"
        );
        assert_eq!(
            error("tcp = true\nuinx = true\n"),
            "x.toml:2: uinx: there is no such setting; did you mean `unix`?"
        );
        assert_eq!(error("\nspin = 1.5"), "x.toml:2: spin: a float is no value for a setting");
        for wrong in ["3", "true", "[\"/a\", \"/b\"]"] {
            let said = error(&format!("server = {wrong}"));
            assert!(
                said.starts_with("x.toml:1: server: ") && said.contains("quotation marks"),
                "{said}"
            );
        }
        assert!(error("tcp = true\nunix = = 3\n").starts_with("x.toml:2: "));
        assert!(error("tcp = true\ntcp = false\n").starts_with("x.toml:2: "));
    }

    #[test]
    fn flags_win_over_variables_and_these_over_the_file() {
        let path = std::env::temp_dir().join(format!("sojourn-config-{}.toml", std::process::id()));
        std::fs::write(&path, "move_after_calls = 1\nspin = \"never\"\nstrict = true\n").unwrap();
        let variable = |name: &str| match name {
            "SOJOURN_CONFIG" => Some(path.clone().into_os_string()),
            "SOJOURN_MOVE_AFTER_CALLS" => Some(OsString::from("2")),
            "SOJOURN_SPIN" => Some(OsString::from("always")),
            _ => None,
        };
        let config = load([Flag { name: "move-after-calls", value: "3" }], variable);
        std::fs::remove_file(&path).unwrap();
        let config = config.unwrap();
        assert_eq!((config.move_after_calls, config.spin, config.strict), (3, Spin::Always, true));
        let error = load([], variable).unwrap_err().to_string();
        assert!(error.contains("cannot be read"), "a file that was named must be there: {error}");
    }

    #[test]
    fn the_file_is_looked_for_where_it_belongs() {
        let paths = |pairs: &'static [(&str, &str)]| {
            default_paths(|name| {
                pairs.iter().find(|(n, _)| *n == name).map(|(_, value)| OsString::from(value))
            })
        };
        assert_eq!(paths(&[("SOJOURN_CONFIG", "/x")]), [Path::new("/x")]);
        let etc = Path::new("/etc/sojourn.toml");
        assert_eq!(paths(&[("HOME", "/h")]), [Path::new("/h/.config/sojourn.toml"), etc]);
        assert_eq!(
            paths(&[("XDG_CONFIG_HOME", "/c"), ("HOME", "/h")]),
            [Path::new("/c/sojourn.toml"), etc]
        );
        assert_eq!(paths(&[("SOJOURN_CONFIG", "")]), [etc]);
    }

    /// As where root keeps another user's `HOME`.
    #[test]
    fn a_file_that_nobody_named_is_neither_waited_for_nor_read_without_end() {
        use rustix::fs::{CWD, FileType, Mode, mknodat};
        let home = std::env::temp_dir().join(format!("sojourn-config-{}", std::process::id()));
        let folder = home.join(".config");
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("sojourn.toml");
        mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let variable = home.clone();
        let (done, is_done) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let _ = done.send(load([], |name| (name == "HOME").then(|| variable.clone().into())));
        });
        let read = is_done.recv_timeout(std::time::Duration::from_secs(30)).unwrap();
        assert_eq!(read, Ok(Config::default()));
        std::fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("/dev/zero", &path).unwrap();
        let read = load([], |name| (name == "HOME").then(|| home.clone().into()));
        assert!(matches!(read, Err(ConfigError::Read { .. })), "{read:?}");
        std::fs::remove_dir_all(&home).unwrap();
    }
}
