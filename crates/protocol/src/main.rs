//! `sojourn-protocol`: the process in which sessions of home `server` have their engine. The
//! session server starts it; see `sojourn_protocol::process`.

use std::process::ExitCode;

fn main() -> ExitCode {
    // Standard input must be the session server's control socket.
    let Err(error) = sojourn_protocol::process::run() else { return ExitCode::SUCCESS };
    eprintln!(
        "sojourn-protocol: {error}. The session server (sojournd --network) starts this program"
    );
    ExitCode::FAILURE
}
