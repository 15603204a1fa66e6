# Builds `smol-echo`, server and clients of lines on smol, a run-time whose epoll and timer calls are rustix's own.
#: deb=gcc
set -eu
mkdir -p src
cat >Cargo.toml <<'END'
[package]
name = "smol-echo"
version = "0.0.0"
edition = "2021"
[dependencies]
smol = "2"
[workspace]
END
cat >src/main.rs <<'END'
use smol::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use smol::net::{TcpListener, TcpStream};

async fn serve(stream: TcpStream) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream.clone());
    let mut out = stream;
    let mut line = Vec::new();
    while lines.read_until(b'\n', &mut line).await? > 0 {
        line.reverse();
        line.push(b'\n');
        out.write_all(&line).await?;
        line.clear();
    }
    Ok(())
}

async fn call(port: u16, number: u32) -> std::io::Result<u64> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
    let mut sum = 0u64;
    for i in 0..1000u32 {
        let mut line = vec![b'a' + (i + number) as u8 % 26; (i * 37 % 900) as usize + 1];
        line.push(b'\n');
        stream.write_all(&line).await?;
        line.pop();
        let mut answer = vec![0; line.len() + 2];
        stream.read_exact(&mut answer).await?;
        assert_eq!(&answer[1..=line.len()], &line[..]);
        sum += answer.iter().map(|byte| u64::from(*byte)).sum::<u64>();
    }
    Ok(sum)
}

fn main() {
    let words: Vec<String> = std::env::args().collect();
    let port: u16 = words[2].parse().expect("a port");
    if words[1] == "serve" {
        smol::block_on(async {
            let listener = TcpListener::bind(("127.0.0.1", port)).await.expect("bind");
            loop {
                let (stream, _) = listener.accept().await.expect("accept");
                smol::spawn(async { serve(stream).await.ok() }).detach();
            }
        });
    }
    let total = smol::block_on(async {
        let all: Vec<_> = (0..20).map(|number| smol::spawn(call(port, number))).collect();
        let mut total = 0;
        for one in all {
            total += one.await.expect("a call");
        }
        total
    });
    println!("{total}");
}
END
cargo build --release --quiet --target-dir target
cp target/release/smol-echo "$MADE/smol-echo"
