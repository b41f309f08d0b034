//! Frames there and back between two cards that programs drive themselves: `bypass echo CARD` in one guest, and
//! `bypass ping CARD MAC [COUNT]` in another, with a card as in `0000:00:04.0`. Prints the round trips' distribution.

use std::{
    error::Error,
    io::IoSlice,
    time::{Duration, Instant},
};

use ether::{EtherType, MacAddr};
use netif::{
    Interest, Netif, VirtioPort,
    virtio::{Card, CardAddress},
};

/// Local experimental EtherType 1 is the card's own.
const KIND: EtherType = EtherType::MXOE;
const LIMIT: Duration = Duration::from_secs(5);

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let card: CardAddress = arguments.get(1).ok_or("which card?")?.parse()?;
    let card = Card::open(card, 1, &[])?;
    let mut port = VirtioPort::from_prepared(card.prepare(0)?, KIND)?;
    println!("{} at {}, MTU {}", port.mac(), port.facts().address, port.mtu());
    match arguments[0].as_str() {
        "echo" => echo(&mut port),
        _ => {
            let to: MacAddr = arguments.get(2).ok_or("to whom?")?.parse().map_err(|_| "no address")?;
            let count = arguments.get(3).map_or(Ok(10_000), |count| count.parse())?;
            ping(&mut port, to, count)
        }
    }
}

fn echo(port: &mut VirtioPort) -> Result<(), Box<dyn Error>> {
    let mut answer = [0; 9018];
    let mut last = Instant::now();
    let mut count = 0u32;
    while count == 0 || last.elapsed() < LIMIT {
        let Some(frame) = port.poll_receive()? else { continue };
        let len = frame.len();
        answer[..6].copy_from_slice(&frame[6..12]);
        answer[6..12].copy_from_slice(&frame[..6]);
        answer[12..len].copy_from_slice(&frame[12..]);
        port.send(&[IoSlice::new(&answer[..len])])?;
        last = Instant::now();
        count += 1;
    }
    println!("{count} echoes; {:?}, {:?}", port.counters(), port.faults());
    Ok(())
}

fn ping(port: &mut VirtioPort, to: MacAddr, count: usize) -> Result<(), Box<dyn Error>> {
    let mut frame = [0; 60];
    frame[..6].copy_from_slice(&to.0);
    frame[6..12].copy_from_slice(&port.mac().0);
    frame[12..14].copy_from_slice(&KIND.0.to_be_bytes());
    let mut times = Vec::with_capacity(count);
    let mut lost = 0;
    for number in 0..count as u64 {
        frame[14..22].copy_from_slice(&number.to_be_bytes());
        let begin = Instant::now();
        port.send(&[IoSlice::new(&frame)])?;
        loop {
            if let Some(answer) = port.poll_receive()?
                && answer.get(14..22) == Some(&number.to_be_bytes())
            {
                times.push(begin.elapsed());
                break;
            }
            if begin.elapsed() > LIMIT {
                lost += 1;
                break;
            }
        }
    }
    times.sort_unstable();
    let at = |part: usize| times.get(times.len() * part / 100).copied().unwrap_or_default();
    println!(
        "{} round trips, {lost} lost: min {:?}, median {:?}, p99 {:?}; {:?}, {:?}",
        times.len(),
        at(0),
        at(50),
        at(99),
        port.counters(),
        port.faults()
    );
    // There is nothing to wait for any more.
    port.wait(Interest::Receive, Instant::now() + Duration::from_millis(20), None)?;
    Ok(())
}
