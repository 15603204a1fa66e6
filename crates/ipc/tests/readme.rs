//! The call in the project's README does what it says, as it stands there.
//!
//! Not here: what calls do otherwise (`calls.rs`).
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use sojourn_ipc::{Address, Connection, Deadline, Endpoint, Event, ServerOptions};

type Outcome = Result<(), Box<dyn std::error::Error>>;

fn server(address: &str) -> Outcome {
    // README:
    // Server
    let endpoint = Endpoint::bind(Address::parse(address)?, ServerOptions::default())?;
    let mut server = endpoint.server();
    let mut reply = None;
    loop {
        if let Event::Call(request) = server.reply_wait(reply.take(), Deadline::NEVER)? {
            let sum: u8 = request.body().iter().sum();
            let mut draft = request.into_token().start(1);
            draft.encoder().put_bytes(&[sum])?;
            reply = Some(draft.finish());
        }
    }
    // :README
}

fn client(address: &str) -> Outcome {
    // README:
    // Client
    let mut connection = Connection::connect(Address::parse(address)?, &Default::default())?;
    let mut draft = connection.start(7, 3);
    draft.encoder().put_bytes(&[1, 2, 3])?;
    assert_eq!(draft.call(Deadline::NEVER)?.body(), [6]);
    // :README
    Ok(())
}

/// The parts of this file between the marks, as they are to stand in the README.
fn parts() -> Vec<String> {
    let mut parts = Vec::new();
    let mut open: Option<(usize, String)> = None;
    for line in include_str!("readme.rs").lines() {
        match (line.trim(), &mut open) {
            ("// README:", _) => open = Some((line.len() - line.trim_start().len(), String::new())),
            ("// :README", _) => parts.extend(open.take().map(|(_, part)| part)),
            (_, Some((margin, part))) => {
                part.push_str(line.get(*margin..).unwrap_or_default());
                part.push('\n');
            }
            _ => {}
        }
    }
    parts
}

#[test]
fn the_call_in_the_readme_is_this_one() {
    let readme = include_str!("../../../README.md");
    let parts = parts();
    assert_eq!(parts.len(), 2);
    for part in parts {
        let part = part.replace("parse(address)", "parse(\"/run/adder\")");
        assert!(readme.contains(&part), "not in README.md:\n{part}");
    }
}

#[test]
fn the_call_in_the_readme_is_answered() {
    let _watchdog = common::watchdog(60);
    let folder = std::env::temp_dir().join(format!("sojourn-readme-{}", std::process::id()));
    std::fs::create_dir(&folder).unwrap();
    let path = folder.join("adder");
    let address = path.to_str().unwrap().to_owned();
    let serving = address.clone();
    // Serves for ever: it ends with the process.
    std::thread::spawn(move || server(&serving).unwrap());
    common::until("an answer", || client(&address).is_ok());
    std::fs::remove_dir_all(&folder).unwrap();
}
