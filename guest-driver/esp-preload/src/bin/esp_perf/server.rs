//! The side that answers.

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    thread,
};

use anyhow::{Context, Result, ensure};

use super::{Head, Kind, SIZE_MAX};

pub(crate) fn run(listen: SocketAddr) -> Result<()> {
    let listener = TcpListener::bind(listen).with_context(|| format!("cannot listen at {listen}"))?;
    // Who started it waits for this line.
    writeln!(io::stdout(), "listening at {}", listener.local_addr()?)?;
    for stream in listener.incoming() {
        let stream = stream.context("cannot accept")?;
        thread::spawn(move || {
            // A client that goes away early has its own error.
            if let Err(error) = serve(stream) {
                eprintln!("esp_perf: {error:#}");
            }
        });
    }
    Ok(())
}

fn serve(mut stream: TcpStream) -> Result<()> {
    stream.set_nodelay(true)?;
    let mut head = [0; Head::LEN];
    stream.read_exact(&mut head)?;
    let head = Head::from_bytes(head).context("a client asks for what this version does not know")?;
    ensure!(
        head.size > 0 && head.size <= SIZE_MAX,
        "a client asks for messages of {} bytes",
        head.size
    );
    let mut bytes = vec![0; head.size as usize];
    match head.kind {
        Kind::Latency | Kind::Asleep | Kind::Send => {
            for _ in 0..head.count {
                stream.read_exact(&mut bytes)?;
                stream.write_all(&bytes)?;
            }
        }
        Kind::Stream => {
            let mut left = u64::from(head.size) * u64::from(head.count);
            while left > 0 {
                let len = bytes.len().min(usize::try_from(left)?);
                let got = stream.read(&mut bytes[..len])?;
                ensure!(got > 0, "a client ended early");
                left -= got as u64;
            }
            stream.write_all(&[1])?;
        }
    }
    Ok(())
}
