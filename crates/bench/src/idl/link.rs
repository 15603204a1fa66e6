//! Endpoint and connection of the rows that do whole calls.

use anyhow::Result;
use sojourn_ipc::{Address, ConnectOptions, Connection, Endpoint, ServerOptions, Wait};

use crate::ipc::row::Mode;

pub(super) fn waiting(mode: Mode) -> Wait {
    if mode.spins() { Wait::Spin(None) } else { Wait::Park }
}

pub(super) fn bind(name: &str, wait: Wait) -> Result<Endpoint> {
    let options = ServerOptions { wait, ..ServerOptions::default() };
    Ok(Endpoint::bind(Address::abstract_name(name), options)?)
}

pub(super) fn connect(name: &str, wait: Wait) -> Result<Connection> {
    let options = ConnectOptions { wait, ..ConnectOptions::default() };
    Ok(Connection::connect(Address::abstract_name(name), &options)?)
}
