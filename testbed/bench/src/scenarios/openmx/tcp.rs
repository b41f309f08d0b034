//! The rival TCP: a connection with TCP_NODELAY.

use std::{
    io::{ErrorKind, Read, Write},
    net::{TcpListener, TcpStream},
};

use anyhow::{Context, bail};

use super::{turns::End, work::Trip};

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

pub fn listen(address: &str) -> anyhow::Result<TcpListener> {
    TcpListener::bind((address, 0)).with_context(|| format!("cannot listen on {address}"))
}

/// One end of transfers there and back, each of at least one byte.
struct RoundTrips {
    stream: Stream,
    there: Vec<u8>,
    back: Vec<u8>,
    answers: bool,
}

impl RoundTrips {
    fn over(tcp: TcpStream, trip: Trip, answers: bool) -> anyhow::Result<Box<dyn End>> {
        Ok(Box::new(Self {
            stream: Stream::new(tcp, trip.blocking)?,
            there: vec![0x5a; trip.length.max(1)],
            back: vec![0x5a; trip.answer.max(1)],
            answers,
        }))
    }
}

impl End for RoundTrips {
    fn trip(&mut self) -> anyhow::Result<()> {
        if self.answers {
            self.stream.read(&mut self.there)?;
            self.stream.write(&self.back)
        } else {
            self.stream.write(&self.there)?;
            self.stream.read(&mut self.back)
        }
    }
}

/// Accepts the connection of the end that answers.
pub fn accept_end(listener: &TcpListener, trip: Trip) -> anyhow::Result<Box<dyn End>> {
    RoundTrips::over(listener.accept()?.0, trip, true)
}

/// Opens the end that measures.
pub fn connect_end(address: &str, port: u16, trip: Trip) -> anyhow::Result<Box<dyn End>> {
    let tcp = TcpStream::connect((address, port)).context("cannot connect")?;
    RoundTrips::over(tcp, trip, false)
}
