//! The ports of switches as table rows.

use anyhow::Result;
use serde::Serialize;

use crate::{
    cli::common::{CommonOptions, client},
    vnicd_client::report::SwitchPortInfo,
};

/// A port with the name of its switch, which is flat in JSON.
#[derive(Serialize)]
pub(super) struct PortRow {
    pub(super) switch: String,
    #[serde(flatten)]
    pub(super) port: SwitchPortInfo,
}

pub(super) fn port_rows(options: &CommonOptions, switch: Option<&str>) -> Result<Vec<PortRow>> {
    let switches = client(options)?.vnicd()?.switches(switch)?;
    let rows = switches.into_iter().flat_map(|info| {
        info.ports.into_iter().map(move |port| PortRow {
            switch: info.switch.clone(),
            port,
        })
    });
    Ok(rows.collect())
}
