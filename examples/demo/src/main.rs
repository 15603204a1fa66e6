//! Server of the demonstration: a calculator that can be reached in four ways.
//!
//! `sojourn-demo adaptive|park @NAME` serves the generated interface over Sojourn IPC.
//! `sojourn-demo blocking|spinning PATH` serves two of its operations over a Unix socket, with
//! hand-written framing, as such programs usually have. The client is `client.c`, and `cargo xtask
//! demo` starts both.

#[allow(missing_docs, unreachable_pub, reason = "generated from idl/examples/calc.idl")]
mod calc {
    include!(concat!(env!("OUT_DIR"), "/calc.rs"));
}
mod socket;
mod sum;

use anyhow::{Result, bail};
use calc::{CalcApplyOut, CalcRecallDeferredReply, CalcServer, CalcService, OperatorT};
use sojourn_ipc::{Address, Deadline, Endpoint, ServerOptions, Wait, rt};
use std::sync::{Arc, Mutex, PoisonError};
use sum::sum;

/// Calculator with a memory for one number.
#[derive(Debug, Default)]
struct Calculator {
    memory: Mutex<f64>,
}

impl CalcServer for Calculator {
    fn add(&self, _caller: &rt::Caller, a: i32, b: i32) -> Result<i32, rt::Fault> {
        Ok(a.wrapping_add(b))
    }

    fn apply(
        &self,
        _caller: &rt::Caller,
        op: OperatorT,
        a: i32,
        b: i32,
    ) -> Result<CalcApplyOut, rt::Fault> {
        let result = match op {
            OperatorT::Add => a.checked_add(b),
            OperatorT::Subtract => a.checked_sub(b),
            OperatorT::Multiply => a.checked_mul(b),
            OperatorT::Divide if b == 0 => {
                return Ok(CalcApplyOut { result: 0, ret: calc::CALC_DIVISION_BY_ZERO });
            }
            OperatorT::Divide => a.checked_div(b),
        };
        Ok(match result {
            Some(result) => CalcApplyOut { result, ret: calc::CALC_OK },
            None => CalcApplyOut { result: 0, ret: calc::CALC_OVERFLOW },
        })
    }

    fn sum(&self, _caller: &rt::Caller, terms: &[i32]) -> Result<i64, rt::Fault> {
        Ok(sum(terms))
    }

    fn store(&self, _caller: &rt::Caller, value: f64) {
        *self.memory.lock().unwrap_or_else(PoisonError::into_inner) = value;
    }

    fn recall(&self, _caller: &rt::Caller, reply: CalcRecallDeferredReply) {
        let value = *self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        // `send` fails if the client has gone meanwhile; nobody needs the answer then.
        let _ = reply.send(value);
    }
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["adaptive", address] => serve(Wait::Adaptive, address),
        ["park", address] => serve(Wait::Park, address),
        ["blocking", path] => socket::serve(path, false),
        ["spinning", path] => socket::serve(path, true),
        _ => bail!("usage: sojourn-demo adaptive|park @NAME, or blocking|spinning PATH"),
    }
}

fn serve(wait: Wait, address: &str) -> Result<()> {
    let options = ServerOptions { wait, ..Default::default() };
    let endpoint = Endpoint::bind(Address::parse(address)?, options)?;
    let mut server = endpoint.server();
    println!("ready");
    let mut service = CalcService::<Calculator>::new(Arc::new(Calculator::default()));
    service.serve(&mut server, Deadline::NEVER)?;
    Ok(())
}
