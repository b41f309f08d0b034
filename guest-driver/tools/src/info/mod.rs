//! `omx_info`: what boards there are, what they are called, and which peers their authorities know.

use std::{fmt::Write as _, process::ExitCode};

use anyhow::Context;
use clap::Parser;
use omx::{Board, BoardPeer};
use omxd::BoardStatus;
use serde_json::{Value, json};

use crate::{
    board::title,
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
    /// Only how many boards there are and what they are called
    #[arg(short = 'q', conflicts_with = "verbose")]
    quiet: bool,
    /// Everything (default)
    #[arg(short = 'v')]
    verbose: bool,
    /// Print one line of JSON
    #[arg(long)]
    pub json: bool,
}

/// The tool.
///
/// # Errors
/// No board, or an authority that cannot be asked.
pub fn main(arguments: &Arguments) -> anyhow::Result<ExitCode> {
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
    writeln!(
        text,
        "Found {} boards (32 max) supporting {} endpoints each:",
        boards.len(),
        omxd::ENDPOINTS
    )?;
    for board in &boards {
        let asked = board.status();
        let name = asked.as_ref().map_or("<unknown>", |(status, _)| status.name.as_str());
        let interface = board.interface();
        writeln!(text, " {}", title(board, name))?;
        if !interface.up {
            let name = &interface.name;
            say(
                "omx_info",
                &format!("{name} is down (`ip link set {name} up` switches it on)"),
            );
        } else if interface.mtu < MTU_ADVISED {
            let sentence = format!(
                "the MTU of {} is {}; large messages are faster with {MTU_ADVISED}",
                interface.name, interface.mtu
            );
            say("omx_info", &sentence);
        }
        match asked {
            Ok((status, peers)) if !arguments.quiet => describe(&mut text, &status, &peers)?,
            Ok(_) => {}
            Err(error) => say("omx_info", &format!("{}: {error}", interface.name)),
        }
    }
    print_line(text.trim_end()).context("cannot show the boards")?;
    Ok(ExitCode::SUCCESS)
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
    writeln!(text, "   card: {}", status.card)?;
    for endpoint in &status.endpoints {
        writeln!(
            text,
            "   endpoint {} open by pid {} ({})",
            endpoint.endpoint, endpoint.pid, endpoint.command
        )?;
    }
    writeln!(
        text,
        "   peer table of {} entries, {} full:",
        peers.len(),
        if peers.len() >= omxd::PEERS as usize {
            "and"
        } else {
            "not"
        }
    )?;
    for peer in peers {
        let name = peer.name.as_deref().unwrap_or("<unknown>");
        writeln!(text, "  {}) {} {name}", peer.index, peer.mac)?;
    }
    Ok(())
}

fn to_json(board: &Board) -> Value {
    let interface = board.interface();
    let mut value = json!({
        "board": board.board_number(),
        "interface": interface.name,
        "mac": interface.mac.to_string(),
        "mtu": interface.mtu,
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
        }
        Err(error) => value["error"] = error.to_string().into(),
    }
    value
}
