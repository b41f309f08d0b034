//! `weft ps`: shows the running labs and their nodes; also the table of a lab that has just come up.

use anyhow::Result;
use serde::Serialize;

use crate::{
    cli::common::{CommonOptions, NoArgs, client},
    report::{
        say,
        table::{self, Columns},
    },
    state::{self, StateDir},
    supervisor_client::{
        client::Client,
        protocol::{LabStatus, NodeStatus},
    },
};

/// A node with the values that it shares with the others of its lab.
#[derive(Serialize)]
struct PsRow {
    lab: String,
    #[serde(flatten)]
    node: NodeStatus,
    accel: crate::accel::Accel,
    qemu: String,
    supervisor_pid: u32,
    vnicd_pid: Option<u32>,
    vnicd_restarts: u32,
}

fn ps_rows(status: LabStatus) -> impl Iterator<Item = PsRow> {
    status.nodes.into_iter().map(move |node| PsRow {
        lab: status.lab.clone(),
        node,
        accel: status.accel,
        qemu: status.qemu.clone(),
        supervisor_pid: status.pid,
        vnicd_pid: status.vnicd_pid,
        vnicd_restarts: status.vnicd_restarts,
    })
}

/// Shows a lab that has just come up, and how it is stopped: a table for people, or the JSON of `weft ps --json`.
pub(super) fn show_up(options: &CommonOptions, status: LabStatus, what_ends_it: &str) -> Result<()> {
    if !options.json {
        say(nodes_text(&status).trim_end());
    }
    say(format_args!(
        "lab {} is up ({}, QEMU {}); {what_ends_it} ends it",
        status.lab, status.accel, status.qemu
    ));
    if options.json {
        table::print_json(&ps_rows(status).collect::<Vec<_>>())?;
    }
    Ok(())
}

fn nodes_text(status: &LabStatus) -> String {
    let columns = Columns::<NodeStatus>::default()
        .words("NODE", |row| row.name.clone())
        .words("STATE", |row| row.phase.name().to_owned())
        .words("ADDRESS", |row| table::or_dash(row.address.as_ref()))
        .numbers("BOOT", |row| {
            table::or_dash(row.boot_ms.map(|ms| format!("{:.1} s", ms as f64 / 1e3)))
        })
        .words("NOTE", |row| row.note.clone().unwrap_or_default());
    table::text(&status.nodes, &columns)
}

pub(in crate::cli) fn run(options: &CommonOptions, _: &NoArgs) -> Result<()> {
    let mut rows = Vec::new();
    let labs = match &options.lab {
        Some(_) => vec![client(options)?.state().lab().to_owned()],
        None => state::running_labs()?,
    };
    for lab in labs {
        // A lab that is ending is not listed any more.
        let Ok(status) = Client::new(StateDir::of(&lab)).status() else {
            continue;
        };
        rows.extend(ps_rows(status));
    }
    if rows.is_empty() && !options.json {
        say(format_args!("no lab is running{}", state::ended_labs()));
        return Ok(());
    }
    let columns = Columns::<PsRow>::default()
        .words("LAB", |row| row.lab.clone())
        .words("NODE", |row| row.node.name.clone())
        .words("STATE", |row| row.node.phase.name().to_owned())
        .words("ADDRESS", |row| table::or_dash(row.node.address.as_ref()))
        .numbers("CPUS", |row| row.node.cpus.to_string())
        .numbers("MEMORY", |row| format!("{}M", row.node.memory_mib))
        .words("ACCEL", |row| row.accel.to_string())
        .numbers("PID", |row| table::or_dash(row.node.pid))
        .numbers("VNICD", |row| table::or_dash(row.vnicd_pid))
        .words("NOTE", |row| row.node.note.clone().unwrap_or_default());
    table::print(options.json, &rows, &columns)
}
