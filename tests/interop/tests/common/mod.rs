//! What the tests share: C programs built once, processes that do not outlive a test, names.

#![allow(dead_code, unreachable_pub, reason = "each test file uses its part")]

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

const HERE: &str = env!("CARGO_MANIFEST_DIR");
const GENERATED: &str = concat!(env!("OUT_DIR"), "/c");

/// Ends the process, loudly, unless dropped in time.
#[must_use]
pub fn watchdog(seconds: u64) -> Sender<()> {
    let (alive, dropped) = channel();
    let test = std::thread::current().name().unwrap_or("test").to_owned();
    std::thread::spawn(move || {
        if dropped.recv_timeout(Duration::from_secs(seconds)) == Err(RecvTimeoutError::Timeout) {
            eprintln!("watchdog: {test} hung for {seconds} s");
            std::process::abort();
        }
    });
    alive
}

/// Differs for each call of each process.
fn unique() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// An abstract name: nothing can be left behind in the file system.
pub fn address() -> String {
    format!("@sojourn-interop-{}", unique())
}

/// Which generated code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    Rust,
    C,
}

/// A process that does not outlive the test.
pub struct Running {
    child: Child,
    what: String,
}

impl Running {
    pub fn start(mut command: Command) -> Self {
        let what = format!("{command:?}");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        Self { child: command.spawn().expect("started"), what }
    }

    /// A process whose complaints nobody reads.
    pub fn quiet(mut command: Command) -> Self {
        let what = format!("{command:?}");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Self { child: command.spawn().expect("started"), what }
    }

    /// Waits for the end.
    fn wait(&mut self) -> ExitStatus {
        let until = Instant::now() + Duration::from_secs(60);
        loop {
            if let Some(status) = self.child.try_wait().expect("waited") {
                return status;
            }
            assert!(Instant::now() < until, "{}: no end", self.what);
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Waits for the end and says whether all was well.
    pub fn ends_well(mut self) -> bool {
        self.wait().success()
    }

    /// Waits for a good end.
    pub fn finish(mut self) {
        let status = self.wait();
        let mut said = String::new();
        let mut stderr = self.child.stderr.take().expect("a pipe");
        stderr.read_to_string(&mut said).expect("read");
        assert!(status.success(), "{}: {status}\n{said}", self.what);
    }

    /// Not dead.
    pub fn is_there(&mut self) -> bool {
        self.child.try_wait().expect("waited").is_none()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _gone_already = self.child.kill();
        let _gone_already = self.child.wait();
    }
}

/// The static library that cargo built along with this test.
fn library() -> PathBuf {
    let here = std::env::current_exe().expect("a path");
    let library = here.parent().expect("a folder").join("libsojourn_ipc_c.a");
    assert!(library.exists(), "no {}", library.display());
    library
}

/// Compiles C sources of `file` to a program; a warning is a failure. More options, such as those
/// of sanitizers, come from `INTEROP_CFLAGS`.
fn compile(program: &str, file: &str, sources: &[PathBuf], define: Option<String>) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let target = folder.join(format!("{program}-{file}-{}", unique()));
    let mut cc = Command::new("cc");
    cc.args(["-Wall", "-Wextra", "-Werror", "-std=c11", "-O1", "-o"]).arg(&target);
    cc.args(std::env::var("INTEROP_CFLAGS").unwrap_or_default().split_whitespace());
    cc.args(define).arg("-I").arg(GENERATED).arg("-I");
    cc.arg(Path::new(HERE).join("../../crates/ipc-c/include")).args(sources).arg(library());
    cc.args(["-lgcc_s", "-lpthread", "-lm", "-ldl"]);
    let output = cc.output().expect("a C compiler");
    assert!(output.status.success(), "{cc:?}\n{}", String::from_utf8_lossy(&output.stderr));
    target
}

/// C programs, removed when dropped.
pub struct Programs(Mutex<Vec<PathBuf>>);

impl Programs {
    pub fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    fn keep(&self, program: PathBuf) -> PathBuf {
        self.0.lock().expect("unpoisoned").push(program.clone());
        program
    }

    /// The generated client of `file`: its arguments are address, seed and rounds.
    pub fn client(&self, file: &str) -> PathBuf {
        self.side("client", file)
    }

    /// The generated server of `file`: its arguments are address and seed; it serves one client.
    pub fn server(&self, file: &str) -> PathBuf {
        self.side("server", file)
    }

    fn side(&self, side: &str, file: &str) -> PathBuf {
        let source = |name: String| Path::new(GENERATED).join(name);
        let sources = [format!("{file}_test_{side}.c"), format!("{file}_{side}.c")].map(source);
        self.keep(compile(side, file, &sources, None))
    }

    /// The program `c/FILE.c` around the client stubs of `file`; its argument is the address.
    pub fn own(&self, file: &str) -> PathBuf {
        let stubs = Path::new(GENERATED).join(format!("{file}_client.c"));
        let sources = [Path::new(HERE).join(format!("c/{file}.c")), stubs];
        self.keep(compile("own", file, &sources, None))
    }

    /// The server of `file` that serves until it is killed.
    pub fn target(&self, file: &str) -> PathBuf {
        let define = format!("-DGENERATED=\"{file}_test_server.c\"");
        let stubs = Path::new(GENERATED).join(format!("{file}_server.c"));
        let sources = [Path::new(HERE).join("c/target.c"), stubs];
        self.keep(compile("target", file, &sources, Some(define)))
    }
}

impl Drop for Programs {
    fn drop(&mut self) {
        for program in self.0.lock().expect("unpoisoned").drain(..) {
            let _gone_already = std::fs::remove_file(program);
        }
    }
}
