//! A small server of the Redis protocol, an example of `sojourn-buffers`.
//!
//! `sojourn-redis ADDRESS [--copy]`, for instance `sojourn run -- sojourn-redis 127.0.0.1:6380`.
//! With `--copy` it uses `read` and `write`, for comparison. One thread serves one connection. Not
//! here: the two ways to use a connection (`connection`), and requests (`request`). Keys do not
//! expire, and nothing is written to disk.

mod connection;
mod request;

use anyhow::{Context as _, Result, bail};
use connection::{Connection, Copying, InPlace};
use std::collections::HashMap;
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};

type Value = Arc<[u8]>;

/// What all connections share.
#[derive(Debug, Default)]
struct Store {
    values: Mutex<HashMap<Vec<u8>, Value>>,
}

/// An answer.
#[derive(Debug, PartialEq)]
enum Reply {
    Simple(&'static str),
    Error(&'static str),
    Integer(i64),
    Bulk(Option<Value>),
    Empty,
}

impl Store {
    fn answer(&self, words: &[Vec<u8>]) -> Reply {
        let mut values = self.values.lock().unwrap_or_else(PoisonError::into_inner);
        let name = words.first().map(|word| word.to_ascii_uppercase()).unwrap_or_default();
        match (name.as_slice(), words) {
            (b"PING", [_]) => Reply::Simple("PONG"),
            (b"PING" | b"ECHO", [_, word]) => Reply::Bulk(Some(word.as_slice().into())),
            (b"SET", [_, key, value]) => {
                values.insert(key.clone(), value.as_slice().into());
                Reply::Simple("OK")
            }
            (b"GET", [_, key]) => Reply::Bulk(values.get(key).map(Arc::clone)),
            (b"DEL", [_, keys @ ..]) => {
                let gone = keys.iter().filter(|key| values.remove(*key).is_some()).count();
                Reply::Integer(gone as i64)
            }
            (b"EXISTS", [_, keys @ ..]) => {
                let there = keys.iter().filter(|key| values.contains_key(*key)).count();
                Reply::Integer(there as i64)
            }
            (b"INCR", [_, key]) => match number(values.get(key)) {
                Some(number) => {
                    values.insert(key.clone(), number.to_string().as_bytes().into());
                    Reply::Integer(number)
                }
                None => Reply::Error("ERR value is not an integer or out of range"),
            },
            (b"DBSIZE", [_]) => Reply::Integer(values.len() as i64),
            (b"FLUSHALL", _) => {
                values.clear();
                Reply::Simple("OK")
            }
            // What clients ask for when they begin.
            (b"COMMAND" | b"CONFIG", _) => Reply::Empty,
            _ => Reply::Error("ERR unknown command or wrong number of arguments"),
        }
    }
}

/// Returns the number that follows the value.
fn number(value: Option<&Value>) -> Option<i64> {
    let text = value.map_or("0", |value| std::str::from_utf8(value).unwrap_or_default());
    text.parse::<i64>().ok()?.checked_add(1)
}

fn serve(store: &Store, mut connection: impl Connection) -> Result<()> {
    while let Some(words) = connection.request()? {
        match store.answer(&words) {
            Reply::Simple(text) => connection.reply(&[b"+", text.as_bytes(), b"\r\n"])?,
            Reply::Error(text) => connection.reply(&[b"-", text.as_bytes(), b"\r\n"])?,
            Reply::Integer(number) => connection.reply(&[format!(":{number}\r\n").as_bytes()])?,
            Reply::Bulk(Some(value)) => {
                let head = format!("${}\r\n", value.len());
                connection.reply(&[head.as_bytes(), &value, b"\r\n"])?;
            }
            Reply::Bulk(None) => connection.reply(&[b"$-1\r\n"])?,
            Reply::Empty => connection.reply(&[b"*0\r\n"])?,
        }
    }
    Ok(())
}

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let (address, copies) = match words.as_slice() {
        [address] => (address, false),
        [address, way] if way == "--copy" => (address, true),
        _ => bail!("sojourn-redis ADDRESS [--copy]"),
    };
    let listener = TcpListener::bind(address.as_str()).with_context(|| address.clone())?;
    println!("{}", listener.local_addr()?);
    let store = Arc::new(Store::default());
    for stream in listener.incoming() {
        let (stream, store) = (stream?, Arc::clone(&store));
        std::thread::spawn(move || {
            if let Err(error) = converse(&store, &stream, copies) {
                eprintln!("{error:#}");
            }
        });
    }
    Ok(())
}

fn converse(store: &Store, stream: &TcpStream, copies: bool) -> Result<()> {
    stream.set_nodelay(true)?;
    match copies {
        true => serve(store, Copying::new(stream)),
        false => serve(store, InPlace::new(stream)?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};

    fn conversation(copies: bool) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, _) = listener.accept().unwrap();
        let server = std::thread::spawn(move || {
            converse(&Store::default(), &stream, copies).unwrap();
        });
        let value = vec![b'v'; 300_000];
        let mut text = b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$300000\r\n".to_vec();
        text.extend_from_slice(&value);
        text.extend_from_slice(
            b"\r\n*2\r\n$3\r\nget\r\n$1\r\nk\r\n*2\r\n$4\r\nINCR\r\n$1\r\nn\r\n",
        );
        text.extend_from_slice(b"*2\r\n$3\r\nGET\r\n$1\r\nx\r\n*1\r\n$4\r\nWHAT\r\n");
        let mut writing = client.try_clone().unwrap();
        let writer = std::thread::spawn(move || {
            // In parts that end anywhere.
            text.chunks(77_777).for_each(|part| writing.write_all(part).unwrap());
            writing.shutdown(std::net::Shutdown::Write).unwrap();
        });
        let mut said = Vec::new();
        client.read_to_end(&mut said).unwrap();
        writer.join().unwrap();
        server.join().unwrap();
        let mut wanted = b"+OK\r\n$300000\r\n".to_vec();
        wanted.extend_from_slice(&value);
        wanted.extend_from_slice(b"\r\n:1\r\n$-1\r\n-ERR unknown command");
        assert!(said.starts_with(&wanted), "{}", said.len());
    }

    #[test]
    fn it_answers_in_place() {
        conversation(false);
    }

    #[test]
    fn it_answers_by_copies() {
        conversation(true);
    }
}
