//! `lab-bench`: an ordinary program of blocking calls that measures itself. It has no code that
//! depends on Sojourn.
//!
//! The measuring side prints one line of JSON. Not here: any part of the project, and any check of
//! the transferred bytes (`lab-peer` has that). Read `sojourn_lab::measuring::flow` first; `many`
//! is the program with epoll(7).

#![allow(unsafe_code, reason = "an ordinary program makes ordinary C calls")]

mod datagrams;
mod ends;
mod events;
mod life;
mod many;
mod patterns;
mod rate;
mod spinning;

use patterns::{grpc, puma, zeromq};
use serde_json::Value;
use sojourn_lab::measuring::{End, Options, flow, pin};
use std::io::{Error, Result};
use std::process::ExitCode;

const USAGE: &str = "\
usage: lab-bench serve tcp|udp|unix ADDRESS      echo server for ping, bulk and pull
       lab-bench ping tcp|udp|unix ADDRESS       its clients: question and answer,
       lab-bench bulk|pull tcp|unix ADDRESS      bytes to the server, bytes from it
       lab-bench pair-ping|pair-bulk             the same over two pipes, with a child
       lab-bench many-serve|many ADDRESS         many connections, epoll
       lab-bench first ADDRESS                   clients of many-serve: the longest call from the first one on
       lab-bench ends-serve|ends ADDRESS         from the last question to the end of the connection
       lab-bench rate-serve|rate ADDRESS         connect, one question, close
       lab-bench puma-serve epoll|select ADDRESS a server as Puma is one; its clients are many's
       lab-bench zeromq-serve|zeromq PATH        question and answer as ZeroMQ makes them,
       lab-bench grpc-serve|grpc PATH            and as gRPC does, --sessions calls at once
       lab-bench start PROGRAM                   start and wait for its end
each with --time-ms N --warm-ms N --size N --pin N --child-pin N --sessions N --warm-calls N --ready FILE
--pace CALLS_A_SECOND --offset N --cold 0|1 --spin 0|1 --watch PID --congestion NAME --mark FILE";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match run(&words) {
        Ok(Some(line)) => println!("{line}"),
        Ok(None) => {}
        Err(error) => {
            eprintln!("lab-bench {}: {error}", words.join(" "));
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

fn run(words: &[String]) -> Result<Option<Value>> {
    let first_option = words.iter().position(|word| word.starts_with("--"));
    let (plain, options) = words.split_at(first_option.unwrap_or(words.len()));
    let options = Options::parse(options)?;
    pin(options.pin)?;
    let plain: Vec<&str> = plain.iter().map(String::as_str).collect();
    match plain.as_slice() {
        ["serve", kind, address] => {
            ends::listen(kind, address, &options, flow::serve).map(|()| None)
        }
        ["ping", kind, address] => {
            flow::ping(ends::connect(kind, address, &options)?, &options).map(Some)
        }
        ["bulk", kind, address] => {
            flow::bulk(ends::connect(kind, address, &options)?, &options).map(Some)
        }
        ["pull", kind, address] => {
            flow::pull(ends::connect(kind, address, &options)?, &options).map(Some)
        }
        ["pair-ping"] => pair(&options, flow::ping).map(Some),
        ["pair-bulk"] => pair(&options, flow::bulk).map(Some),
        ["inherit"] => {
            flow::serve(ends::inherited());
            Ok(None)
        }
        ["many-serve", address] => many::serve(address).map(|()| None),
        ["many", address] => many::call(address, &options).map(Some),
        ["first", address] => life::first(address, &options).map(Some),
        ["ends-serve", address] => life::serve(address).map(|()| None),
        ["ends", address] => life::ends(address, &options).map(Some),
        ["rate-serve", address] => rate::serve(address).map(|()| None),
        ["rate", address] => rate::connect(address, &options).map(Some),
        ["puma-serve", "select", address] => {
            puma::serve(address, puma::Selector::Select).map(|()| None)
        }
        ["puma-serve", "epoll", address] => {
            puma::serve(address, puma::Selector::Epoll).map(|()| None)
        }
        ["zeromq-serve", path] => zeromq::serve(path).map(|()| None),
        ["zeromq", path] => zeromq::call(path, &options).map(Some),
        ["grpc-serve", path] => grpc::serve(path).map(|()| None),
        ["grpc", path] => grpc::call(path, &options).map(Some),
        ["start", ..] => rate::start(&words[1..plain.len()], &options).map(Some),
        _ => Err(Error::other(USAGE)),
    }
}

/// Measures a connection to a child that is the server.
fn pair(options: &Options, measure: fn(End, &Options) -> Result<Value>) -> Result<Value> {
    let mut words = vec!["inherit".to_owned()];
    if let Some(processor) = options.child_pin {
        words.extend(["--pin".to_owned(), processor.to_string()]);
    }
    let mut end = ends::spawn(&words)?;
    let child = end.child.take();
    // The measurement drops its end, which closes the pipes and so ends the child.
    let measured = measure(end, options)?;
    if let Some(mut child) = child {
        child.wait()?;
    }
    Ok(measured)
}
