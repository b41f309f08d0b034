//! `omx_info`: shows the boards of this host, their names, and the peers that their authorities know.

use std::{fmt::Write as _, process::ExitCode};

use anyhow::Context;
use clap::Parser;
use ether::EtherType;
use netif::Interface;
use omx::{Board, BoardPeer};
use serde_json::{Value, json};
use weft_authority::{BoardStatus, Session, esp::EspStatus};

use crate::{
    board::{
        BOARDS_MAX, title,
        tune::{late_interrupts, too_small},
    },
    run::{print_line, say},
};

/// MTU below which large messages are slow.
const MTU_ADVISED: usize = 9000;

/// Shows the boards of this host, the endpoints that are open and the peers that are known.
#[derive(Debug, Parser)]
#[command(name = "omx_info", version)]
pub struct Arguments {
    /// Only this board
    #[arg(short = 'b', value_name = "NUMBER")]
    board: Option<u32>,
    /// Print only the number of boards and their names
    #[arg(short = 'q', conflicts_with = "verbose")]
    quiet: bool,
    /// Everything (default)
    #[arg(short = 'v')]
    verbose: bool,
    /// Print one line of JSON
    #[arg(long)]
    pub json: bool,
}

/// Runs `omx_info`.
///
/// # Errors
/// No board, or an authority that cannot be asked.
pub fn main(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let every = Board::numbered()?;
    let count = every.iter().filter(|board| board.left_out().is_none()).count();
    let boards = match arguments.board {
        Some(number) => vec![Board::number(number)?],
        None => Board::all()?,
    };
    if arguments.json {
        let list: Vec<Value> = boards.iter().map(to_json).collect();
        print_line(&json!({ "boards": list }).to_string())?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut text = String::new();
    if !arguments.quiet {
        writeln!(text, "Open-MX driver of Weft {}", env!("CARGO_PKG_VERSION"))?;
    }
    let asked: Vec<_> = boards.iter().map(Board::status).collect();
    // As each of those says that are shown.
    let most = asked
        .iter()
        .flatten()
        .map(|(status, _)| status.endpoints_max)
        .max()
        .unwrap_or(weft_authority::ENDPOINTS);
    writeln!(
        text,
        "Found {count} boards ({BOARDS_MAX} max) supporting {most} endpoints each:"
    )?;
    for (board, asked) in boards.iter().zip(asked) {
        describe_board(&mut text, board, asked, arguments.quiet)?;
    }
    print_line(text.trim_end()).context("cannot show the boards")?;
    if arguments.board.is_none() && !arguments.quiet {
        for board in &every {
            if let Some(why) = board.left_out() {
                let name = &board.interface().name;
                warn(&format!("{name} is no board: {why}"));
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Describes a board with the answer of its authority, and warns of what is wrong with it.
fn describe_board(
    text: &mut String,
    board: &Board,
    asked: Result<(BoardStatus, Vec<BoardPeer>), omx::Error>,
    quiet: bool,
) -> anyhow::Result<()> {
    let name = asked.as_ref().map_or("<unknown>", |(status, _)| status.name.as_str());
    let interface = board.interface();
    writeln!(text, " {}", title(board, name))?;
    if !quiet {
        let node = interface
            .numa_node()
            .map_or_else(|| "unknown".to_owned(), |node| node.to_string());
        let driver = interface.driver();
        let driver = driver.as_deref().unwrap_or("unknown");
        writeln!(text, "   driver {driver}, NUMA node {node}")?;
        if interface.card().is_some() {
            writeln!(
                text,
                "   endpoints drive the card themselves and poll it: it has no interrupts for them"
            )?;
        }
    }
    let preset = asked.as_ref().ok().map(|(status, _)| &*status.preset);
    for warning in warnings(interface, preset, late_interrupts(&interface.name)) {
        warn(&warning);
    }
    match asked {
        Ok((status, peers)) => {
            if is_full(&status, &peers) {
                warn(&format!(
                    "the peer table of {} is full; hosts that are not in it cannot be reached",
                    interface.name
                ));
            }
            if !quiet {
                describe(text, &status, &peers)?;
                if let Some(esp) = esp_status(board) {
                    describe_esp(text, &esp)?;
                }
            }
        }
        Err(error) => warn(&format!("{}: {error}", interface.name)),
    }
    Ok(())
}

fn warn(sentence: &str) {
    say("omx_info", sentence);
}

/// Lists what makes messages slow or impossible on this interface.
fn warnings(interface: &Interface, preset: Option<&str>, late_interrupts: Option<String>) -> Vec<String> {
    let Interface { name, mtu, up, .. } = interface;
    let mut warnings = Vec::new();
    if !up {
        warnings.push(format!("{name} is down (`ip link set {name} up` switches it on)"));
    } else if let Some(needed) = too_small(interface, preset) {
        warnings.push(format!("the MTU of {name} is {mtu}, which is too small: {needed}"));
    } else if *mtu < MTU_ADVISED {
        warnings.push(format!(
            "the MTU of {name} is {mtu}; large messages are faster with {MTU_ADVISED}"
        ));
    }
    if let Some(late) = late_interrupts {
        warnings.push(format!(
            "interrupts of {name} come late ({late}), and so does every message; `omx_tune --check` says what changes that"
        ));
    }
    warnings
}

const fn is_full(status: &BoardStatus, peers: &[BoardPeer]) -> bool {
    peers.len() >= status.peers_max as usize
}

/// Says where the peers of a table come from: the reference's daemon, a mapper, is part of `omxd` here.
fn table_state(status: &BoardStatus, peers: &[BoardPeer]) -> String {
    match (status.static_peers, peers.len()) {
        (false, _) => format!("is ready, mapper {} (omxd itself, by discovery)", status.mac),
        // The board itself is in it.
        (true, 0 | 1) => "is not configured: there is no discovery, and `omx_init_peers` has added no peer".to_owned(),
        (true, _) => format!("is ready, mapper {} (omxd itself, peers are static)", status.mac),
    }
}

fn describe(text: &mut String, status: &BoardStatus, peers: &[BoardPeer]) -> std::fmt::Result {
    writeln!(
        text,
        "   omxd is process {}, {} sizes on the wire, {} of {} endpoints open",
        status.pid,
        status.preset,
        status.endpoints.len(),
        status.endpoints_max
    )?;
    if status.ether_type != EtherType::MXOE.0 {
        writeln!(text, "   frames under EtherType {}", EtherType(status.ether_type))?;
    }
    writeln!(text, "   card: {}", status.card)?;
    for endpoint in &status.endpoints {
        writeln!(
            text,
            "   endpoint {} open by pid {} ({})",
            endpoint.endpoint, endpoint.pid, endpoint.command
        )?;
    }
    writeln!(text, "   peer table {}", table_state(status, peers))?;
    writeln!(
        text,
        "   peer table of {} entries, {} full:",
        peers.len(),
        if is_full(status, peers) { "and" } else { "not" }
    )?;
    for peer in peers {
        let name = peer.name.as_deref().unwrap_or("<unknown>");
        writeln!(text, "  {}) {} {name}", peer.index, peer.mac)?;
    }
    Ok(())
}

/// Asks what there is of ESP on a board whose authority runs.
fn esp_status(board: &Board) -> Option<EspStatus> {
    Session::connect_to_running(board.interface()).ok()??.esp_status().ok()
}

/// Describes ESP on an interface.
fn describe_esp(text: &mut String, status: &EspStatus) -> std::fmt::Result {
    if let Some(why) = &status.off {
        return writeln!(text, "   no ESP: {why}");
    }
    writeln!(
        text,
        "   ESP under EtherType {}: {} programs, {} listeners, {} connections to be claimed",
        EtherType(status.ether_type),
        status.programs,
        status.listeners,
        status.unclaimed
    )
}

fn to_json(board: &Board) -> Value {
    let interface = board.interface();
    let mut value = json!({
        "board": board.board_number(),
        "interface": interface.name,
        "mac": interface.mac.to_string(),
        "mtu": interface.mtu,
        "driver": interface.driver(),
        "numa_node": interface.numa_node(),
        "up": interface.up,
    });
    match board.status() {
        Ok((status, peers)) => {
            let peers: Vec<Value> = peers
                .iter()
                .map(|peer| json!({ "index": peer.index, "mac": peer.mac.to_string(), "name": peer.name }))
                .collect();
            value["status"] = serde_json::to_value(status).unwrap_or_default();
            value["peers"] = peers.into();
            value["esp"] = serde_json::to_value(esp_status(board)).unwrap_or_default();
        }
        Err(error) => value["error"] = error.to_string().into(),
    }
    value
}
