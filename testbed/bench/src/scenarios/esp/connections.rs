//! The memory that idle connections take in an engine, without sockets: two engines that exchange their frames in memory.

use anyhow::{Context, Result, ensure};
use esp::{Address, Config, ConnectionId, Engine, ListenOptions, Options, State};
use ether::{MacAddr, Time};

const CONNECTIONS: u16 = 10_000;
const SERVER_PORT: u16 = 80;
const CLIENT_PORT_FIRST: u16 = 20_000;
/// Time in which acknowledgements that wait are sent.
const PAUSE_NS: u64 = 50_000_000;
const PAUSES: u32 = 20;
const MTU: u16 = 1500;
const MACS: [MacAddr; 2] = [MacAddr([2, 0, 0, 0, 0, 1]), MacAddr([2, 0, 0, 0, 0, 2])];

/// A client's engine, and a server's.
struct Pair {
    engines: [Engine; 2],
    now: Time,
}

impl Pair {
    fn new() -> Result<Self> {
        let engine = |mac, seed| Engine::new(Config::new(mac, MTU), seed);
        let mut server = engine(MACS[1], 2)?;
        let options = ListenOptions {
            backlog: 16,
            hold: false,
        };
        server.listen(SERVER_PORT, options)?;
        Ok(Self {
            engines: [engine(MACS[0], 1)?, server],
            now: Time::from_nanos(1_000_000),
        })
    }

    /// Carries frames until there are no more.
    fn exchange(&mut self) {
        let mut frame = [0; 2048];
        let mut moves = true;
        while moves {
            moves = false;
            for from in 0..2 {
                while let Some(len) = self.engines[from].poll_transmit(self.now, &mut frame) {
                    self.engines[1 - from].handle(&frame[..len], self.now);
                    moves = true;
                }
                while self.engines[from].poll_event().is_some() {}
            }
        }
    }

    fn connect(&mut self, number: u16) -> Result<[ConnectionId; 2]> {
        let peer = Address {
            mac: MACS[1],
            port: SERVER_PORT,
        };
        let port = CLIENT_PORT_FIRST + number;
        let client = self.engines[0].connect(port, peer, Options::default(), self.now)?;
        self.exchange();
        let server = self.engines[1]
            .accept(SERVER_PORT)
            .context("a connection was not accepted")?;
        Ok([client, server])
    }

    /// Sends a message each way, so that connections have been used before they are idle.
    fn use_once(&mut self, ends: [ConnectionId; 2]) -> Result<()> {
        let mut message = [7; 100];
        for (engine, end) in ends.into_iter().enumerate() {
            self.engines[engine].send(end, &message, true, self.now)?;
            self.exchange();
            let received = self.engines[1 - engine].receive(ends[1 - engine], &mut message, self.now)?;
            ensure!(received == message.len(), "a message arrived in parts");
        }
        Ok(())
    }

    fn rest(&mut self) {
        for _ in 0..PAUSES {
            self.now = self.now.plus_nanos(PAUSE_NS);
            for engine in &mut self.engines {
                engine.handle_timeout(self.now);
            }
            self.exchange();
        }
    }
}

/// Returns the bytes that one end of an idle connection takes, as the allocator counts them.
pub fn bytes_of_one() -> Result<f64> {
    let mut pair = Pair::new()?;
    let before = allocated_bytes();
    // The list of the ends lives on the stack of the loop: only the engines keep anything.
    let mut last = None;
    for number in 0..CONNECTIONS {
        let ends = pair.connect(number)?;
        pair.use_once(ends)?;
        last = Some(ends);
    }
    pair.rest();
    let bytes = allocated_bytes().saturating_sub(before);
    let [client, server] = last.context("no connections")?;
    for (engine, end) in pair.engines.iter().zip([client, server]) {
        ensure!(engine.connections() == usize::from(CONNECTIONS), "connections are gone");
        ensure!(
            engine.info(end)?.state == State::Established,
            "a connection is not established"
        );
    }
    Ok(bytes as f64 / (2.0 * f64::from(CONNECTIONS)))
}

/// Returns the bytes that the allocator has given out.
fn allocated_bytes() -> usize {
    // SAFETY: a plain call that reads the allocator's statistics.
    let info = unsafe { libc::mallinfo2() };
    info.uordblks + info.hblkhd
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn m_hr2_an_idle_connection_takes_two_kib_at_most() {
        let bytes = bytes_of_one().unwrap();
        assert!((100.0..=2048.0).contains(&bytes), "{bytes}");
    }
}
