//! Lets guests see their cables pulled out and plugged in: `vnicd` has no way to tell them, QEMU has. What a cable's state
//! shall be is `settings`' business; nothing else sets a carrier.

use std::{
    sync::PoisonError,
    time::{Duration, Instant},
};

use anyhow::Result;

use super::{
    Inner, Shared,
    node::{QEMU_LOOK_INTERVAL, QEMU_START_TIMEOUT},
    protocol::LabPhase,
};
use crate::{
    lab::port_name,
    qemu::{Nic, Qmp},
};

/// How often a new `vnicd` and the QEMUs are asked who has found whom. QEMU itself looks for it every 500 ms or more.
const RECONNECT_LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// Lets the guest see the state that its cable has now. A node that is off needs nothing: its start does this again.
pub(super) fn apply(shared: &Shared, node: &str, card: usize) -> Result<()> {
    // Whoever comes last applies the last state, since it is read under this lock.
    let _turn = shared.carriers.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(mut qmp) = monitor(shared, node)? else {
        return Ok(());
    };
    let up = shared.settings().link_is_up(&port_name(node, card));
    Ok(qmp.set_link(&Nic::link_name(card), up)?)
}

/// The thread beside a `vnicd` that was started again: QEMU plugs every card in when its backend is back, so pulled cables
/// are pulled again once it has. Ends with that `vnicd`, or when every QEMU has found it.
pub(super) fn keep_pulled(shared: &Shared, vnicd_pid: u32) {
    let cards = |node: &crate::lab::Node| {
        let name = node.name.clone();
        (0..node.nics.len()).map(move |card| (name.clone(), card))
    };
    let mut waiting: Vec<(String, usize)> = shared.lab.nodes.iter().flat_map(cards).collect();
    let over =
        |inner: &mut Inner| (inner.phase == LabPhase::Stopping || inner.vnicd_pid != Some(vnicd_pid)).then_some(());
    // One that does not answer has ended, and the next one has a thread of its own.
    let Ok(mut vnicd) = shared.vnicd() else { return };
    loop {
        let Ok(info) = vnicd.info() else { return };
        waiting.retain(|(node, card)| {
            let name = port_name(node, *card);
            if !info.ports.iter().any(|port| port.name == name && port.connected) {
                return true;
            }
            match pull_again(shared, node, *card) {
                Ok(done) => !done,
                Err(error) => {
                    tracing::warn!(port = %name, error = %format!("{error:#}"), "the guest may see a carrier that is not there");
                    false
                }
            }
        });
        if waiting.is_empty() {
            return;
        }
        let pause = Instant::now() + RECONNECT_LOOK_INTERVAL;
        if shared.wait_for(Some(pause), over).is_some() {
            return;
        }
    }
}

/// Pulls a cable that is pulled; `false` when QEMU has yet to learn that its backend is back, and would plug it in then.
fn pull_again(shared: &Shared, node: &str, card: usize) -> Result<bool> {
    let _turn = shared.carriers.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(mut qmp) = monitor(shared, node)? else {
        return Ok(true);
    };
    if !qmp.socket_is_connected(&Nic::socket_name(card))? {
        return Ok(false);
    }
    if !shared.settings().link_is_up(&port_name(node, card)) {
        qmp.set_link(&Nic::link_name(card), false)?;
    }
    Ok(true)
}

/// The monitor of a node's QEMU, which may just be starting; `None` when the node is off.
fn monitor(shared: &Shared, node: &str) -> Result<Option<Qmp>> {
    let socket = shared.state.socket(&format!("{node}.qmp"))?;
    let deadline = Instant::now() + QEMU_START_TIMEOUT;
    loop {
        let runs = shared
            .inner()
            .nodes
            .get(node)
            .is_some_and(|guest| guest.process.is_some());
        if !runs {
            return Ok(None);
        }
        match Qmp::connect(&socket, QEMU_LOOK_INTERVAL) {
            Ok(qmp) => return Ok(Some(qmp)),
            Err(error) if Instant::now() >= deadline => return Err(error.into()),
            Err(_) => {}
        }
    }
}
