//! Measured processes: each side of each row runs in a process of its own, forked from the
//! coordinator, pinned, and asleep in a read except while it carries out an order.
//!
//! # Theory of operation
//! The coordinator sends an order (task, size, count) over a socket pair, to the server first, then
//! to the client. Both carry it out and answer with times. A server serves exactly the number of
//! messages of its order and goes back to sleep, so that a spinning server never disturbs another
//! row. A worker that does not answer in time is killed with its partner, and the measurement goes
//! on without their row.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};

use super::row::{Client, Make, Server, Sides};
use crate::os;

/// The kind of work of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Task {
    /// Server: accepts as many clients as the order's `count` says.
    Admit,
    /// Both sides: calls with short replies.
    Call,
    /// Both sides: one-way messages.
    Stream,
}

/// An order to a worker: a task with its extent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Order {
    /// The task.
    pub(crate) task: Task,
    /// Bytes of each message.
    pub(crate) size: usize,
    /// Messages to time. The client sends [`warm_up`] more messages before them.
    pub(crate) count: u64,
    /// Messages between two readings of the clock.
    pub(crate) group: u64,
    /// Number of clients that carry this order out at the same time: the server has to expect the
    /// messages of all of them.
    pub(crate) clients: u64,
}

impl Order {
    const BYTES: usize = 40;

    fn encode(&self) -> [u8; Self::BYTES] {
        let words = [self.task as u64, self.size as u64, self.count, self.group, self.clients];
        let mut bytes = [0; Self::BYTES];
        for (to, word) in bytes.chunks_exact_mut(8).zip(words) {
            to.copy_from_slice(&word.to_ne_bytes());
        }
        bytes
    }

    fn decode(bytes: &[u8; Self::BYTES]) -> Result<Self> {
        let word = |i: usize| {
            let chunk = bytes.as_chunks::<8>().0[i];
            u64::from_ne_bytes(chunk)
        };
        let task = match word(0) {
            0 => Task::Admit,
            1 => Task::Call,
            2 => Task::Stream,
            other => bail!("unknown task {other}"),
        };
        let (size, count, group, clients) = (word(1) as usize, word(2), word(3), word(4));
        Ok(Self { task, size, count, group, clients })
    }
}

/// Returns the number of messages that are sent before the clock starts.
pub(crate) fn warm_up(count: u64) -> u64 {
    count / 8 + 2
}

/// A worker's answer to an order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Answer {
    /// Processor time of this side, nanoseconds per operation.
    pub(crate) cpu_ns: f64,
    /// Time of the whole order, nanoseconds.
    pub(crate) wall_ns: f64,
    /// Nanoseconds per operation, one sample per group. Servers send none.
    pub(crate) samples: Vec<f64>,
}

/// A measured process.
pub(crate) struct Worker {
    pid: libc::pid_t,
    control: UnixStream,
}

impl Drop for Worker {
    /// Closes the control socket, at which the worker ends by itself and removes its files; kills
    /// the worker if it still runs after half a second.
    fn drop(&mut self) {
        let _ = self.control.shutdown(std::net::Shutdown::Both);
        os::reap(self.pid, Duration::from_millis(500));
    }
}

impl Worker {
    /// Forks a server that runs on `cpu`.
    pub(crate) fn server(cpu: usize, make: Make<Box<dyn Server>>) -> Result<Self> {
        Self::start(cpu, move |control| {
            let mut server = make()?;
            serve_orders(control, |order| obey_as_server(server.as_mut(), order))
        })
    }

    /// Forks a client that runs on `cpu`.
    pub(crate) fn client(cpu: usize, make: Make<Box<dyn Client>>) -> Result<Self> {
        Self::start(cpu, move |control| {
            let mut client = make()?;
            serve_orders(control, |order| obey_as_client(client.as_mut(), order))
        })
    }

    fn start(cpu: usize, body: impl FnOnce(&mut UnixStream) -> Result<()>) -> Result<Self> {
        let (control, mut far) = UnixStream::pair()?;
        let pid = os::fork(|| {
            let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                os::pin(cpu)?;
                body(&mut far)
            }));
            match outcome {
                Ok(Ok(())) => 0,
                Ok(Err(error)) => {
                    let _ = far.write_all(&encode_answer(&Err(error)));
                    1
                }
                Err(_) => 101,
            }
        })?;
        Ok(Self { pid, control })
    }

    /// Sends an order.
    pub(crate) fn order(&mut self, order: Order) -> Result<()> {
        self.control.write_all(&order.encode()).context("the worker is gone")
    }

    /// Waits for an answer: to an order, or, first of all, to the making of the side.
    pub(crate) fn answer(&mut self, patience: Duration) -> Result<Answer> {
        self.control.set_read_timeout(Some(patience))?;
        let mut head = [0; 32];
        self.control.read_exact(&mut head).context("no answer in time, or the worker died")?;
        let [status, cpu, wall, len] = *head.as_chunks::<8>().0 else { bail!("short answer") };
        let mut rest = vec![0; u64::from_ne_bytes(len) as usize];
        self.control.read_exact(&mut rest).context("half an answer")?;
        if u64::from_ne_bytes(status) != 0 {
            bail!("{}", String::from_utf8_lossy(&rest));
        }
        let samples = rest.as_chunks::<8>().0.iter().map(|b| f64::from_ne_bytes(*b)).collect();
        Ok(Answer { cpu_ns: f64::from_ne_bytes(cpu), wall_ns: f64::from_ne_bytes(wall), samples })
    }
}

fn encode_answer(answer: &Result<Answer>) -> Vec<u8> {
    let mut bytes = Vec::new();
    match answer {
        Ok(answer) => {
            bytes.extend(0_u64.to_ne_bytes());
            bytes.extend(answer.cpu_ns.to_ne_bytes());
            bytes.extend(answer.wall_ns.to_ne_bytes());
            bytes.extend((answer.samples.len() as u64 * 8).to_ne_bytes());
            bytes.extend(answer.samples.iter().flat_map(|s| s.to_ne_bytes()));
        }
        Err(error) => {
            let text = format!("{error:#}");
            bytes.extend(1_u64.to_ne_bytes());
            bytes.extend([0; 16]);
            bytes.extend((text.len() as u64).to_ne_bytes());
            bytes.extend(text.as_bytes());
        }
    }
    bytes
}

fn serve_orders(
    control: &mut UnixStream,
    mut obey: impl FnMut(Order) -> Result<Answer>,
) -> Result<()> {
    control.write_all(&encode_answer(&Ok(Answer::default())))?;
    loop {
        let mut bytes = [0; Order::BYTES];
        if control.read_exact(&mut bytes).is_err() {
            return Ok(());
        }
        control.write_all(&encode_answer(&obey(Order::decode(&bytes)?)))?;
    }
}

fn obey_as_server(server: &mut dyn Server, order: Order) -> Result<Answer> {
    let total = (order.count + warm_up(order.count)) * order.clients;
    let (start, cpu) = (os::now_ns(), os::cpu_ns());
    match order.task {
        Task::Admit => server.admit(order.count as usize)?,
        Task::Call => server.serve(order.size, total)?,
        Task::Stream => {
            server.absorb(order.size, warm_up(order.count))?;
            server.absorb(order.size, order.count)?;
        }
    }
    let (wall_ns, cpu_ns) = ((os::now_ns() - start) as f64, (os::cpu_ns() - cpu) as f64);
    Ok(Answer { cpu_ns: cpu_ns / total as f64, wall_ns, samples: Vec::new() })
}

fn obey_as_client(client: &mut dyn Client, order: Order) -> Result<Answer> {
    ensure!(order.group > 0 && order.count > 0, "empty order");
    match order.task {
        Task::Admit => bail!("a client admits nobody"),
        Task::Call => {
            client.call(order.size, warm_up(order.count))?;
            timed(order, |count| client.call(order.size, count))
        }
        Task::Stream => {
            client.stream(order.size, warm_up(order.count))?;
            let whole = Order { group: order.count, ..order };
            timed(whole, |count| client.stream(order.size, count))
        }
    }
}

fn timed(order: Order, mut run: impl FnMut(u64) -> Result<()>) -> Result<Answer> {
    let mut samples = Vec::with_capacity((order.count / order.group + 1) as usize);
    let (begin, cpu) = (os::now_ns(), os::cpu_ns());
    let (mut left, mut start) = (order.count, os::now_ns());
    while left > 0 {
        let group = order.group.min(left);
        run(group)?;
        let end = os::now_ns();
        samples.push((end - start) as f64 / group as f64);
        (left, start) = (left - group, end);
    }
    let cpu_ns = (os::cpu_ns() - cpu) as f64 / order.count as f64;
    Ok(Answer { cpu_ns, wall_ns: (os::now_ns() - begin) as f64, samples })
}

/// The answers to an order.
pub(crate) struct Answers {
    pub(crate) server: Answer,
    pub(crate) clients: Vec<Answer>,
}

/// The processes of a row: a server with its clients.
pub(crate) struct RowProcesses {
    server: Worker,
    clients: Vec<Worker>,
}

/// Longest time that any answer may take; after it the row is given up.
pub(crate) const PATIENCE: Duration = Duration::from_secs(8);

impl RowProcesses {
    /// Starts one server on `server_cpu` and one client on `client_cpu`.
    pub(crate) fn pair(link: Sides, server_cpu: usize, client_cpu: usize) -> Result<Self> {
        Self::new(link.server, vec![link.client], server_cpu, client_cpu)
    }

    /// Starts one server and several clients.
    pub(crate) fn new(
        server: Make<Box<dyn Server>>,
        clients: Vec<Make<Box<dyn Client>>>,
        server_cpu: usize,
        client_cpu: usize,
    ) -> Result<Self> {
        let mut server = Worker::server(server_cpu, server)?;
        server.answer(PATIENCE).context("making the server")?;
        let count = clients.len() as u64;
        server.order(Order { task: Task::Admit, size: 0, count, group: 1, clients: 1 })?;
        let mut workers = Vec::new();
        for make in clients {
            let mut client = Worker::client(client_cpu, make)?;
            client.answer(PATIENCE).context("making a client")?;
            workers.push(client);
        }
        server.answer(PATIENCE).context("letting clients in")?;
        Ok(Self { server, clients: workers })
    }

    /// Has all workers carry out `order`.
    pub(crate) fn run(&mut self, order: Order) -> Result<Answers> {
        let order = Order { clients: self.clients.len() as u64, ..order };
        self.server.order(order)?;
        for client in &mut self.clients {
            client.order(order)?;
        }
        let mut answers = Vec::with_capacity(self.clients.len());
        for client in &mut self.clients {
            answers.push(client.answer(PATIENCE).context("client")?);
        }
        Ok(Answers { server: self.server.answer(PATIENCE).context("server")?, clients: answers })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Nothing;

    impl Server for Nothing {
        fn serve(&mut self, size: usize, _: u64) -> Result<()> {
            ensure!(size != 13, "unlucky");
            Ok(())
        }
    }

    impl Client for Nothing {
        fn call(&mut self, _: usize, _: u64) -> Result<()> {
            Ok(())
        }
    }

    #[test]
    fn orders_survive_encoding() {
        let order = Order { task: Task::Stream, size: 65_536, count: 9, group: 3, clients: 2 };
        let back = Order::decode(&order.encode()).unwrap();
        assert_eq!(format!("{order:?}"), format!("{back:?}"));
        assert!(Order::decode(&[9; Order::BYTES]).is_err());
    }

    #[test]
    fn samples_cover_every_group_and_the_rest() {
        let order = Order { task: Task::Call, size: 0, count: 10, group: 4, clients: 1 };
        let answer = obey_as_client(&mut Nothing, order).unwrap();
        assert_eq!(answer.samples.len(), 3);
    }

    #[test]
    fn a_failing_server_says_why() {
        let order = Order { task: Task::Call, size: 13, count: 1, group: 1, clients: 1 };
        let error = obey_as_server(&mut Nothing, order).unwrap_err();
        assert_eq!(error.to_string(), "unlucky");
    }
}
