//! A ping-pong between two endpoints over ports that are joined in memory: no network, no daemon, no privileges.
//!
//! `cargo run -p weft-omx --example ping_pong`

use std::{
    error::Error,
    thread,
    time::{Duration, Instant},
};

use ether::MacAddr;
use mxoe::wire::Preset;
use netif::memory_pair;
use omx::{Endpoint, EndpointOptions};

/// The key that a peer must present to connect.
const KEY: u32 = 7;
/// Match information of the messages there and back.
const PING: u64 = 1;
const PONG: u64 = 2;
/// Every bit of the match information counts.
const EXACT: u64 = u64::MAX;
/// A connect takes no longer than this, even on a busy machine.
const CONNECT_LIMIT: Duration = Duration::from_secs(20);

/// Sends a message of `len` bytes there and back `rounds` times; returns the mean time of a round.
///
/// # Errors
/// When an endpoint cannot be opened or a call fails.
pub fn ping_pong(len: usize, rounds: u32) -> Result<Duration, Box<dyn Error>> {
    let macs = [MacAddr([2, 0, 0, 0, 0, 1]), MacAddr([2, 0, 0, 0, 0, 2])];
    let (port_a, port_b) = memory_pair(macs, 1500, 256)?;
    let options = EndpointOptions {
        key: KEY,
        ..EndpointOptions::default()
    };
    let a = Endpoint::open_on(&options, Box::new(port_a), Preset::Native1500)?;
    let b = Endpoint::open_on(&options, Box::new(port_b), Preset::Native1500)?;

    let server = thread::spawn(move || -> Result<Endpoint, omx::Error> {
        let mut buffer = vec![0; len];
        for _ in 0..rounds {
            let status = b.receive(&mut buffer, PING, EXACT)?;
            let client = status.address.expect("a message has a sender");
            b.send(&buffer, client, PONG)?;
        }
        // Closing the endpoint would drop what is not acknowledged yet.
        Ok(b)
    });

    let peer = a.connect(macs[1], 0, KEY, Some(CONNECT_LIMIT))?;
    let message: Vec<u8> = (0..len).map(|i| (i % 251) as u8).collect();
    let mut answer = vec![0; len];
    let start = Instant::now();
    for _ in 0..rounds {
        a.send(&message, peer, PING)?;
        a.receive(&mut answer, PONG, EXACT)?;
        if answer != message {
            return Err("the answer differs from the message".into());
        }
    }
    let mean = start.elapsed() / rounds.max(1);
    server.join().expect("the server does not panic")?.close()?;
    Ok(mean)
}

/// Prints the mean time of a round for three lengths.
///
/// # Errors
/// Those of [`ping_pong`].
pub fn main() -> Result<(), Box<dyn Error>> {
    for len in [8, 1024, 65_536] {
        println!("{len:>6} bytes there and back: {:?}", ping_pong(len, 20)?);
    }
    Ok(())
}
