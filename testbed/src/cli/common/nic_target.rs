//! The cards that an argument names, and rows about one of them.

use anyhow::{Result, bail};
use serde::Serialize;

use super::failure::did_you_mean;
use crate::{
    supervisor_client::client::Client,
    vnicd_client::report::{PortInfo, PortStats},
};

/// Returns the cards that the argument names: `n1.eth0` names one, `n1` all of a node, and no argument all of the lab.
pub(in crate::cli) fn ports(client: &Client, target: Option<&str>) -> Result<Vec<PortInfo>> {
    let all = client.vnicd()?.info()?.ports;
    let Some(target) = target else { return Ok(all) };
    let names: Vec<_> = all.iter().map(|port| port.name.clone()).collect();
    let found: Vec<_> = all
        .into_iter()
        .filter(|port| port.name == target || port.name.rsplit_once('.').is_some_and(|(node, _)| node == target))
        .collect();
    if found.is_empty() {
        let hint = did_you_mean(target, &names);
        bail!(
            "there is no NIC {target} in the lab {}{hint} (its NICs: {})",
            client.state().lab(),
            names.join(", ")
        );
    }
    Ok(found)
}

/// Reads the counters of the cards that the argument names.
pub(in crate::cli) fn stats(client: &Client, target: Option<&str>) -> Result<Vec<PortStats>> {
    let mut all = Vec::new();
    for port in ports(client, target)? {
        all.extend(client.vnicd()?.stats(Some(&port.name))?);
    }
    Ok(all)
}

/// Keeps the cards that have a cable; a single card without one is answered with the reason.
pub(in crate::cli) fn with_cable(mut ports: Vec<PortInfo>) -> Vec<PortInfo> {
    if ports.len() > 1 {
        ports.retain(|port| !port.is_loopback());
    }
    ports
}

/// Settings with the name of their card, which is flat in JSON.
#[derive(Serialize)]
pub(in crate::cli) struct Named<T> {
    pub(in crate::cli) nic: String,
    #[serde(flatten)]
    pub(in crate::cli) settings: T,
}
