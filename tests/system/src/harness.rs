//! A server for requests of programs under test: that their sessions be recalled, or that the
//! session server die or come back. The programs send a datagram to `harness` in the sandbox's
//! folder and wait for the answer.
//!
//! Not here: the programs' side (`c/conform/conform.c`, `c/sequences/process.c`).

use crate::Admin;
use anyhow::Result;
use sojourn_lab::Sandbox;
use std::collections::BTreeSet;
use std::os::unix::net::UnixDatagram;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Time without another move after which no more are expected.
const SETTLED_AFTER: Duration = Duration::from_millis(120);

/// The sandbox of the programs, and the socket on which they ask.
#[derive(Debug)]
pub struct Harness {
    sandbox: Mutex<Sandbox>,
    socket: UnixDatagram,
    is_over: AtomicBool,
}

impl Harness {
    /// Starts to serve the programs of this sandbox.
    ///
    /// # Errors
    /// If the socket cannot be made.
    pub fn start(sandbox: Sandbox) -> Result<Serving> {
        // The programs' own names are those of their host's network.
        let path = sandbox.folder().join("harness");
        let socket = match sandbox.host() {
            Some(host) => host.enter(|| UnixDatagram::bind(path))??,
            None => UnixDatagram::bind(path)?,
        };
        socket.set_read_timeout(Some(Duration::from_millis(50)))?;
        let harness =
            Self { sandbox: Mutex::new(sandbox), socket, is_over: AtomicBool::new(false) };
        let harness = Arc::new(harness);
        // Several threads, because a recall waits.
        let threads = std::iter::repeat_with(|| Arc::clone(&harness)).take(4);
        let threads = threads.map(|harness| std::thread::spawn(move || harness.serve())).collect();
        Ok(Serving { harness, threads })
    }

    fn sandbox(&self) -> MutexGuard<'_, Sandbox> {
        self.sandbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self) {
        let mut admin = Admin::new(&self.sandbox()).ok();
        let mut text = [0; 200];
        while !self.is_over.load(Ordering::Relaxed) {
            let Ok((len, from)) = self.socket.recv_from(&mut text) else { continue };
            let words = String::from_utf8_lossy(&text[..len]).into_owned();
            let words: Vec<&str> = words.split(' ').collect();
            let answer = match words[0] {
                "recall" => self.recall(&mut admin, &words[1..]),
                "settle" => self.settle(&mut admin, &words[1..]),
                "kill" => {
                    self.sandbox().kill_server();
                    true
                }
                "start" => self.sandbox().start_server().is_ok(),
                _ => false,
            };
            let answer: &[u8] = if answer { b"ok" } else { b"no" };
            // Fails if the program has ended meanwhile.
            let _ = self.socket.send_to_addr(answer, &from);
        }
    }

    /// Recalls the sessions of these processes. With `strict`, waits until they are home.
    fn recall(&self, admin: &mut Option<Admin>, words: &[&str]) -> bool {
        let pids: Vec<u32> = words.iter().filter_map(|word| word.parse().ok()).collect();
        let is_strict = words.contains(&"strict");
        let wait = if is_strict { Duration::from_secs(5) } else { Duration::from_millis(100) };
        let deadline = Instant::now() + wait;
        let Some(streams) = self.asked(admin, |admin| admin.recall_of(&pids)) else { return false };
        loop {
            let left = self.asked(admin, |admin| admin.streams_of(&pids)).unwrap_or_default();
            if !streams.iter().any(|stream| left.contains(stream)) {
                return true;
            }
            if Instant::now() > deadline {
                return false;
            }
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    /// Waits until as many streams as the first word says have an end in these processes, or no
    /// other stream has come for some time.
    fn settle(&self, admin: &mut Option<Admin>, words: &[&str]) -> bool {
        let wanted = words.first().and_then(|word| word.parse().ok()).unwrap_or(0);
        let pids: Vec<u32> = words.iter().skip(1).filter_map(|word| word.parse().ok()).collect();
        let mut known = 0;
        let mut deadline = Instant::now() + SETTLED_AFTER;
        loop {
            let streams = self.asked(admin, |admin| admin.streams_of(&pids)).unwrap_or_default();
            let streams = streams.into_iter().collect::<BTreeSet<u64>>().len();
            if streams >= wanted {
                return true;
            }
            if streams != known {
                known = streams;
                deadline = Instant::now() + SETTLED_AFTER;
            }
            if Instant::now() > deadline {
                return false;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Asks the session server; connects again if the connection's server is gone.
    fn asked<T>(
        &self,
        admin: &mut Option<Admin>,
        ask: impl Fn(&mut Admin) -> anyhow::Result<T>,
    ) -> Option<T> {
        for _ in 0..2 {
            if admin.is_none() {
                *admin = Admin::new(&self.sandbox()).ok();
            }
            match ask(admin.as_mut()?) {
                Ok(answer) => return Some(answer),
                Err(_) => *admin = None,
            }
        }
        None
    }
}

/// A harness with its threads. Drop ends the threads, then the sandbox with its server.
#[derive(Debug)]
pub struct Serving {
    harness: Arc<Harness>,
    threads: Vec<JoinHandle<()>>,
}

impl Serving {
    /// Ends the server as an administrator would, if it runs: cases may have killed it.
    ///
    /// # Errors
    /// If the server does not end in the ordinary way.
    pub fn end(self) -> Result<()> {
        let mut sandbox = self.harness.sandbox();
        if sandbox.server_pid().is_some() {
            sandbox.stop_server()?.success("the server's end")?;
        }
        Ok(())
    }

    /// Returns the sandbox. Requests wait while the caller has it.
    pub fn sandbox(&self) -> MutexGuard<'_, Sandbox> {
        self.harness.sandbox()
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.harness.is_over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // The message of a panic has been printed already.
            let _ = thread.join();
        }
    }
}
