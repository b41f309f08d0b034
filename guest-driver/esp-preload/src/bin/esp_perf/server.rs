//! The side that answers.

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    thread,
};

use anyhow::{Context, Result, anyhow, ensure};

use super::{Head, Kind, SIZE_MAX, print_line, say};

pub(crate) fn run(listen: SocketAddr) -> Result<()> {
    let listener = TcpListener::bind(listen).with_context(|| format!("cannot listen at {listen}"))?;
    // Who started it waits for this line.
    print_line(&format!("listening at {}", listener.local_addr()?))?;
    for stream in listener.incoming() {
        let started = match stream {
            // The client has gone before its turn came: that is no matter of the next one's.
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
            Err(error) => return Err(error).context("cannot accept"),
            Ok(stream) => thread::Builder::new().spawn(move || {
                let client = stream.peer_addr();
                let client = client.map_or_else(|_| "a client".to_owned(), |address| format!("the client {address}"));
                if let Err(error) = serve(stream) {
                    say(&error.context(format!("{client} was not served to the end")), false);
                }
            }),
        };
        if let Err(error) = started {
            say(&anyhow!(error).context("a client is not served"), false);
        }
    }
    Ok(())
}

fn serve(mut stream: TcpStream) -> Result<()> {
    stream.set_nodelay(true)?;
    let mut head = [0; Head::LEN];
    stream.read_exact(&mut head)?;
    let head = Head::from_bytes(head).context("it asks for what this version does not know")?;
    ensure!(
        (1..=SIZE_MAX).contains(&i64::from(head.size)),
        "it asks for messages of {} bytes",
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
                ensure!(got > 0, "it ended early");
                left -= got as u64;
            }
            stream.write_all(&[1])?;
        }
    }
    Ok(())
}
