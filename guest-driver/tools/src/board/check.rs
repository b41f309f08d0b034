//! `omx_check`: checks whether this installation works. Every board is opened twice; messages go from an endpoint to
//! itself and to the other one. `omx_perf` shows whether other hosts are reached.

use std::{process::ExitCode, time::Duration};

use anyhow::{Context, ensure};
use clap::Parser;
use omx::{Address, Board, Counter, Counters, Endpoint, EndpointOptions, Segment, StatusCode};
use serde_json::json;

use super::chosen;
use crate::run::print_line;

/// No step takes longer than this.
const LIMIT: Duration = Duration::from_secs(10);
/// The lengths that are tested: the first ones go through the ring, the last one is announced.
const LENGTHS: [usize; 4] = [0, 100, 4000, 1 << 20];

/// Tests the installation: on every board, messages of an endpoint to itself and to another one.
#[derive(Debug, Parser)]
#[command(name = "omx_check", version)]
pub struct Arguments {
    /// Only this board
    #[arg(short = 'b', value_name = "NUMBER")]
    board: Option<u32>,
    /// Print one line of JSON per board
    #[arg(long)]
    pub json: bool,
}

/// Runs `omx_check`.
///
/// # Errors
/// What fails, on the first board on which a test fails.
pub fn main(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let boards = chosen(arguments.board)?;
    ensure!(
        !boards.is_empty(),
        "there is no board: no Ethernet interface is up and has the MTU (`omx_info` says which are left out)"
    );
    for board in &boards {
        let name = &board.interface().name;
        let shared = check(board).with_context(|| format!("board {} ({name})", board.board_number()))?;
        print_line(&if arguments.json {
            json!({ "board": board.board_number(), "interface": name, "ok": true, "shared_messages": shared })
                .to_string()
        } else {
            format!("board {} ({name}): self ok, shared memory ok", board.board_number())
        })?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Checks a board, and returns how many messages went through shared memory.
fn check(board: &Board) -> anyhow::Result<u32> {
    let options = EndpointOptions {
        interface: Some(board.interface().name.clone()),
        ..EndpointOptions::default()
    };
    let [a, b] = [Endpoint::open(&options)?, Endpoint::open(&options)?];
    let all = LENGTHS.len() as u32;
    let mut before = Sent::from(&a.counters());
    for (what, from, to, expected) in [
        ("itself", &a, &a, Sent { shared: 0, wire: 0 }),
        ("another endpoint", &a, &b, Sent { shared: all, wire: 0 }),
    ] {
        let address = to.address();
        let address = from
            .connect(address.mac(), address.endpoint(), 0, Some(LIMIT))
            .with_context(|| format!("connecting to {what}"))?;
        for length in LENGTHS {
            exchange(from, to, address, length).with_context(|| format!("{length} bytes to {what}"))?;
        }
        let after = Sent::from(&from.counters());
        judge(after.since(before), expected).with_context(|| format!("messages to {what}"))?;
        before = after;
    }
    Ok(all)
}

/// The messages that an endpoint sent on each path that leaves it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sent {
    shared: u32,
    /// Frames of messages, to other hosts.
    wire: u32,
}

impl From<&Counters> for Sent {
    fn from(counters: &Counters) -> Self {
        let sum = |of: &[Counter]| of.iter().map(|counter| counters.get(*counter)).sum();
        Self {
            shared: sum(&[
                Counter::SharedTiny,
                Counter::SharedSmall,
                Counter::SharedMediumsqFrag,
                Counter::SharedRndv,
            ]),
            wire: sum(&[
                Counter::SendTiny,
                Counter::SendSmall,
                Counter::SendMediumsqFrag,
                Counter::SendMediumvaFrag,
                Counter::SendRndv,
            ]),
        }
    }
}

impl Sent {
    const fn since(self, before: Self) -> Self {
        Self {
            shared: self.shared - before.shared,
            wire: self.wire - before.wire,
        }
    }
}

/// Checks that messages took the path that they were to take: what arrived may have taken another one.
fn judge(sent: Sent, expected: Sent) -> anyhow::Result<()> {
    ensure!(
        sent == expected,
        "they took another path: {} through shared memory and {} frames, in place of {} and {}",
        sent.shared,
        sent.wire,
        expected.shared,
        expected.wire
    );
    Ok(())
}

fn exchange(from: &Endpoint, to: &Endpoint, address: Address, length: usize) -> anyhow::Result<()> {
    let data: Vec<u8> = (0..length).map(|at| (at * 31 + at / 251) as u8).collect();
    let mut buffer = vec![0; length];
    // SAFETY: both buffers live until both requests are over, or the endpoints are closed with an error.
    let (receive, send) = unsafe {
        let receive = to.irecv(&[Segment::of_mut(&mut buffer)], 7, u64::MAX, 0)?;
        (receive, from.isend(&[Segment::of(&data)], address, 7, 0, false)?)
    };
    for (endpoint, request) in [(to, receive), (from, send)] {
        let over = endpoint.wait(request, Some(LIMIT))?.context("nothing arrived");
        if over.is_err() {
            // The buffers go; nothing may write to them any more.
            let _ = (from.clone().close(), to.clone().close());
        }
        let status = over?;
        ensure!(status.code == StatusCode::Success, "{}", status.code);
    }
    ensure!(buffer == data, "other bytes arrived than were sent");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_that_arrive_by_another_way_are_not_ok() {
        let counted = |counts: &[(Counter, u32)]| {
            let mut counters = Counters::default();
            for (counter, count) in counts {
                counters.add_to(*counter, *count);
            }
            Sent::from(&counters)
        };
        let before = counted(&[(Counter::SharedTiny, 2), (Counter::SendRndv, 1)]);
        let expected = Sent { shared: 4, wire: 0 };
        let after = |counts: &[(Counter, u32)]| judge(counted(counts).since(before), expected);
        let shared = [
            (Counter::SharedTiny, 3),
            (Counter::SharedSmall, 1),
            (Counter::SharedMediumsqFrag, 1),
            (Counter::SharedRndv, 1),
            (Counter::SendRndv, 1),
        ];
        after(&shared).unwrap();
        // Not all of them, and some over the wire.
        assert!(after(&shared[1..]).is_err());
        let error = after(&[&shared[..], &[(Counter::SendTiny, 1)]].concat()).unwrap_err();
        assert!(
            error.to_string().contains("4 through shared memory and 1 frames"),
            "{error}"
        );
    }
}
