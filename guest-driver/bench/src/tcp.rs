//! The rival: a TCP connection with TCP_NODELAY.

use std::{
    io::{ErrorKind, Read, Write},
    net::{TcpListener, TcpStream},
};

use anyhow::{Context, bail};

use crate::work::{BANDWIDTH_LENGTH, Task, bandwidth, half_round_trip, trips};

/// A connection, read and written by polling or by blocking calls.
struct Stream {
    tcp: TcpStream,
}

impl Stream {
    fn new(tcp: TcpStream, blocking: bool) -> anyhow::Result<Self> {
        tcp.set_nodelay(true)?;
        tcp.set_nonblocking(!blocking)?;
        Ok(Self { tcp })
    }

    fn read(&mut self, mut buffer: &mut [u8]) -> anyhow::Result<()> {
        while !buffer.is_empty() {
            match self.tcp.read(buffer) {
                Ok(0) => bail!("the other side went away"),
                Ok(length) => buffer = &mut buffer[length..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn write(&mut self, mut data: &[u8]) -> anyhow::Result<()> {
        while !data.is_empty() {
            match self.tcp.write(data) {
                Ok(length) => data = &data[length..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

const fn blocking(task: Task) -> bool {
    matches!(task, Task::PingPong { blocking: true, .. })
}

pub fn listen(address: &str) -> anyhow::Result<TcpListener> {
    TcpListener::bind((address, 0)).with_context(|| format!("cannot listen on {address}"))
}

/// The side that answers.
pub fn serve(listener: &TcpListener, task: Task) -> anyhow::Result<()> {
    let mut stream = Stream::new(listener.accept()?.0, blocking(task))?;
    let (length, reply) = match task {
        Task::PingPong { length, .. } => (length.max(1), length.max(1)),
        Task::Bandwidth => (BANDWIDTH_LENGTH, 1),
        other => bail!("{other:?} is not measured over TCP"),
    };
    let mut buffer = vec![0; length];
    // Until the other side has measured enough and goes away.
    while stream.read(&mut buffer).is_ok() {
        stream.write(&buffer[..reply])?;
    }
    Ok(())
}

/// The side that measures.
pub fn measure(address: &str, port: u16, task: Task) -> anyhow::Result<f64> {
    let tcp = TcpStream::connect((address, port)).context("cannot connect")?;
    let mut stream = Stream::new(tcp, blocking(task))?;
    match task {
        Task::PingPong { length, blocking } => {
            let mut buffer = vec![0; length.max(1)];
            half_round_trip(trips(blocking), || {
                stream.write(&buffer)?;
                stream.read(&mut buffer)
            })
        }
        Task::Bandwidth => {
            let (data, mut reply) = (vec![0x5a; BANDWIDTH_LENGTH], [0]);
            bandwidth(|| {
                stream.write(&data)?;
                stream.read(&mut reply)
            })
        }
        other => bail!("{other:?} is not measured over TCP"),
    }
}
