//! Shows guests the state of their cables: `vnicd` cannot report it to them, QEMU can. The module `settings_in_force`
//! knows the state of a cable; no other module sets a carrier. Access to QEMU's monitors is serialised here, so power
//! buttons are pressed here, too.

use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use parking_lot::{Mutex, MutexGuard};

use super::{
    Shared,
    guest_process::{QEMU_POLL_INTERVAL, QEMU_START_TIMEOUT, runs},
    thread,
};
use crate::{
    lab::Lab,
    qemu::{Nic, Qmp},
    vnicd_client::report::PortInfo,
};

/// Interval at which `vnicd` and the QEMUs are polled for their connections: as often as `vnicd` searches for QEMUs
/// itself.
const RECONNECT_POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The pending changes of carriers.
#[derive(Debug, Default)]
pub(super) struct Carriers {
    /// Lock while a guest is told of its cable: the last caller reports the last state, since it is read under this
    /// lock.
    turn: Mutex<()>,
    waiting: Mutex<Waiting>,
}

/// Pulled cables that QEMU is going to plug in, as it does with every card whose backend comes back.
#[derive(Debug, Default)]
struct Waiting {
    /// Names of nodes and numbers of their cards; no more than the lab has.
    cards: BTreeSet<(String, usize)>,
    /// Whether a thread takes care of them.
    served: bool,
}

/// Takes the turn at the monitors of all QEMUs, for an operation that needs them for long.
pub(super) fn turn(shared: &Shared) -> MutexGuard<'_, ()> {
    shared.carriers.turn.lock()
}

/// Returns whether the guest's end of its cable is to have a carrier: both directions of the cable are up, and where it leads to
/// another card, that one's machine runs.
pub(super) fn has_carrier(shared: &Shared, node: &str, card: usize) -> bool {
    let port = port(shared, node, card);
    let lab = shared.lab();
    let far = lab.far_end(&port).and_then(|far| place_of(&lab, far));
    let is_up = shared.settings().link_is_up(&port);
    is_up && far.is_none_or(|(far, _)| runs(shared, &far))
}

/// Returns the node of a port, and the number of the card there.
fn place_of(lab: &Lab, port: &str) -> Option<(String, usize)> {
    lab.nodes.iter().find_map(|node| {
        let card = (0..node.nics.len()).find(|card| node.port(*card) == port)?;
        Some((node.name.clone(), card))
    })
}

/// Shows the guest of this port the current state of its cable, as [`apply`] does.
pub(super) fn apply_to(shared: &Arc<Shared>, port: &str) -> Result<()> {
    let place = place_of(&shared.lab(), port);
    let (node, card) = place.with_context(|| format!("there is no NIC {port}"))?;
    apply(shared, &node, card)
}

/// Shows the guests at the other ends of a node's cables, if cards are there, that its machine came or went.
pub(super) fn apply_to_far_ends(shared: &Arc<Shared>, node: &str) {
    let lab = shared.lab();
    for card in 0..lab.node(node).map_or(0, |node| node.nics.len()) {
        if let Some(far) = lab.far_end(&port(shared, node, card))
            && let Err(error) = apply_to(shared, far)
        {
            let error = format!("{error:#}");
            tracing::warn!(port = far, %error, "the guest may not see that the other end of its cable changed");
        }
    }
}

/// Shows the guest the current state of its cable. A node that is off needs nothing: its start does this again.
pub(super) fn apply(shared: &Arc<Shared>, node: &str, card: usize) -> Result<()> {
    let _turn = turn(shared);
    let Some(mut qmp) = monitor(shared, node)? else {
        return Ok(());
    };
    let up = has_carrier(shared, node, card);
    qmp.set_link(&Nic::link_name(card), up)?;
    if !up {
        // QEMU may be about to notice that a former `vnicd` has ended.
        pull_when_connected(shared, [(node.to_owned(), card)])?;
    }
    Ok(())
}

/// Has to be called when a new `vnicd` answers: the cables that are pulled now are pulled again when QEMU has found it.
pub(super) fn keep_pulled(shared: &Arc<Shared>) -> Result<()> {
    let mut pulled = Vec::new();
    for node in &shared.lab().nodes {
        let cards = (0..node.nics.len()).filter(|card| !has_carrier(shared, &node.name, *card));
        pulled.extend(cards.map(|card| (node.name.clone(), card)));
    }
    pull_when_connected(shared, pulled)
}

fn pull_when_connected(shared: &Arc<Shared>, cards: impl IntoIterator<Item = (String, usize)>) -> Result<()> {
    let mut waiting = shared.carriers.waiting.lock();
    waiting.cards.extend(cards);
    if !waiting.cards.is_empty() && !waiting.served {
        let server = Arc::clone(shared);
        thread("carriers", move || serve(&server))?;
        waiting.served = true;
    }
    Ok(())
}

/// Runs the thread that takes care of pulled cables, until none is left.
fn serve(shared: &Shared) {
    while !shared.pause(RECONNECT_POLL_INTERVAL) {
        let lock = || shared.carriers.waiting.lock();
        // They are taken out before `vnicd` is asked: what is added from now on is about this `vnicd` or a later one.
        let cards = std::mem::take(&mut lock().cards);
        let info = shared.vnicd().and_then(|mut vnicd| Ok(vnicd.info()?));
        for (node, card) in cards {
            let name = port(shared, &node, card);
            // A `vnicd` that does not answer has ended: the next one will.
            let is_connected = |port: &PortInfo| port.name == name && port.connected;
            let connected = info.as_ref().is_ok_and(|info| info.ports.iter().any(is_connected));
            let done = pull_again(shared, &node, card, connected).unwrap_or_else(|error| {
                let error = format!("{error:#}");
                tracing::warn!(port = %name, %error, "the guest may see a carrier on a cable that is pulled");
                true
            });
            if !done {
                lock().cards.insert((node, card));
            }
        }
        let mut waiting = lock();
        if waiting.cards.is_empty() {
            waiting.served = false;
            return;
        }
    }
}

/// Pulls a cable again; returns `false` when that is too early. A QEMU that is `connected` according to `vnicd` may
/// have yet to notice it, and would plug the cable in then.
fn pull_again(shared: &Shared, node: &str, card: usize, connected: bool) -> Result<bool> {
    if !runs(shared, node) || has_carrier(shared, node, card) {
        return Ok(true);
    }
    if !connected {
        return Ok(false);
    }
    let _turn = turn(shared);
    let Some(mut qmp) = monitor(shared, node)? else {
        return Ok(true);
    };
    if !qmp.socket_is_connected(&Nic::socket_name(card))? {
        return Ok(false);
    }
    let up = has_carrier(shared, node, card);
    qmp.set_link(&Nic::link_name(card), up)?;
    Ok(true)
}

/// Returns the name of a card; an empty one when its node is gone meanwhile.
fn port(shared: &Shared, node: &str, card: usize) -> String {
    shared.lab().node(node).map_or_else(String::new, |node| node.port(card))
}

/// Presses the power button of a running node, or pulls its plug; its QEMU ends when the guest has switched itself off.
pub(super) fn power_off(shared: &Shared, node: &str, force: bool) -> Result<()> {
    // A monitor serves one client at a time.
    let _turn = turn(shared);
    match monitor(shared, node)? {
        Some(mut qmp) if force => qmp.quit()?,
        Some(mut qmp) => qmp.system_powerdown()?,
        None => {}
    }
    Ok(())
}

/// Connects to the monitor of a node's QEMU, which may just be starting; `None` when the node is off.
fn monitor(shared: &Shared, node: &str) -> Result<Option<Qmp>> {
    let socket = shared.state.socket(&format!("{node}.qmp"))?;
    let deadline = Instant::now() + QEMU_START_TIMEOUT;
    while runs(shared, node) {
        match Qmp::connect(&socket, QEMU_POLL_INTERVAL) {
            Ok(qmp) => return Ok(Some(qmp)),
            Err(error) if Instant::now() >= deadline => return Err(error.into()),
            Err(_) => {}
        }
    }
    Ok(None)
}
