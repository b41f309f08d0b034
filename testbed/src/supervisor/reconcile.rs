//! Reconciles a running lab with a changed lab file: nodes, switches, trunks and settings are added, removed and
//! changed, and the rest keeps running. [`crate::lab::plan`] decides what has to happen; the owners of processes start
//! and end them.

use std::{path::Path, sync::Arc, time::Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Signal, pidfd_send_signal};

use super::{
    LabState, QUIT_TIMEOUT, Shared, cable_carrier, guest_process, guest_state::Guest, host_memory, reload, server,
    thread,
};
use crate::{
    lab::{
        Lab,
        plan::{self, Action, Plan},
    },
    lab_file, prepare,
    report::progress::Progress,
    settings_in_force::Settings,
    supervisor_client::protocol::{LabPhase, NodePhase},
    vnicd_client::{
        TrunkDirection,
        config::{Config, TrunkEntry},
        report::Direction,
    },
};

/// Carries out [`Request::Apply`](crate::supervisor_client::protocol::Request::Apply): returns the plan and, unless
/// only that is wanted, executes it.
///
/// # Errors
/// Fails with one sentence. Errors that are found before anything is changed (a mistake in the file, too little memory,
/// settings that `vnicd` refuses) leave the lab as it was.
pub(super) fn reconcile(shared: &Arc<Shared>, file: &Path, dry_run: bool, other_file: bool) -> Result<Plan> {
    let mut own = shared.file.lock();
    let before = shared.lab();
    if own.as_deref() != Some(file) && !(other_file && own.is_some()) {
        let from = own.as_ref().map_or("no file".into(), |own| own.to_string_lossy());
        bail!(
            "the lab {0} is running already, from {from}: `weft down --lab {0}` ends it{1}",
            before.name,
            if own.is_some() {
                ", and `weft up --reconcile` makes it what this file says"
            } else {
                ""
            }
        );
    }
    let after = lab_file::load_for(file, Some(&before))?;
    ensure!(
        after.name == before.name,
        "{} is the lab {}, and this one is {}",
        file.display(),
        after.name,
        before.name
    );
    let plan = plan::between(&shared.settings().in_force(&before), &after, &off(shared));
    if dry_run || plan.is_empty() {
        return Ok(plan);
    }
    let stopping = shared.inner().phase == LabPhase::Stopping;
    ensure!(!stopping, "the lab is being ended");
    Change {
        shared,
        before,
        after: Arc::new(after),
        plan: &plan,
    }
    .carry_out()?;
    *own = Some(file.to_owned());
    Ok(plan)
}

/// Returns the names of the nodes that have been switched off.
fn off(shared: &Shared) -> Vec<String> {
    let inner = shared.inner();
    let off = inner
        .nodes
        .values()
        .filter(|guest| guest.status.phase == NodePhase::Stopped);
    off.map(|guest| guest.status.name.clone()).collect()
}

/// A change of a lab in progress.
struct Change<'a> {
    shared: &'a Arc<Shared>,
    before: Arc<Lab>,
    after: Arc<Lab>,
    plan: &'a Plan,
}

impl Change<'_> {
    fn carry_out(&self) -> Result<()> {
        let shared = self.shared;
        self.check_room()?;
        // The client has had the images made, so that this only reads the cache.
        let means = prepare::means(&self.after, shared.means().accel.into(), &Progress::new(0))?;
        let in_force = shared.settings().clone();
        let settings = in_force.changed_to(&self.after);
        let restarts_vnicd = self.restarts_vnicd(&in_force, &settings)?;
        let config = settings.vnicd_config(&self.after, &shared.state)?;
        // Settings that the running vnicd accepts at run time are included: it may refuse them, and by then the lab
        // would be changed.
        if config != in_force.vnicd_config(&self.before, &shared.state)? {
            reload::trial_of_settings(shared, config)
                .context("nothing was changed, since vnicd refuses the settings")?;
        }
        self.end_nodes()?;
        let was_up = |port: &str| in_force.link_is_up(port);
        shared.replace(Arc::clone(&self.after), means);
        if restarts_vnicd {
            *shared.settings() = settings;
            reload::restart_vnicd(shared)?;
            for (port, (node, card)) in cards(&self.after) {
                let is_other = was_up(&port) != shared.settings().link_is_up(&port)
                    || self.before.far_end(&port) != self.after.far_end(&port);
                if is_other && guest_process::runs(shared, &node) {
                    cable_carrier::apply(shared, &node, card)?;
                }
            }
        } else {
            self.set_live(&in_force, &settings)?;
        }
        self.start_nodes()?;
        guest_process::tell_hosts(shared);
        Ok(())
    }

    /// Checks that there is room for additions, in memory and in the paths of sockets.
    fn check_room(&self) -> Result<()> {
        for name in guest_process::socket_names(&self.after) {
            self.shared.state.socket(&name)?;
        }
        let comes: Vec<_> = self
            .plan
            .nodes(Action::Add)
            .chain(self.plan.nodes(Action::Start))
            .collect();
        let nodes = self.after.nodes.iter().filter(|node| comes.contains(&&*node.name));
        host_memory::check_memory_for(&self.after.name, nodes)
    }

    /// Returns whether `vnicd` must be started again: it accepts settings of cables and coalescing at run time.
    fn restarts_vnicd(&self, in_force: &Settings, settings: &Settings) -> Result<bool> {
        let state = &self.shared.state;
        let mut before = in_force.vnicd_config(&self.before, state)?;
        let after = settings.vnicd_config(&self.after, state)?;
        for (old, new) in before.ports.iter_mut().zip(&after.ports) {
            old.link = new.link.clone();
            if old.coalescing.queues == new.coalescing.queues {
                old.coalescing = new.coalescing.clone();
            }
        }
        for (old, new) in before.trunks.iter_mut().zip(&after.trunks) {
            old.link = new.link.clone();
        }
        Ok(before != after)
    }

    /// Changes cables and coalescing of the running `vnicd`.
    fn set_live(&self, in_force: &Settings, settings: &Settings) -> Result<()> {
        let (shared, state) = (self.shared, &self.shared.state);
        let [before, after]: [Config; 2] = [
            in_force.vnicd_config(&self.before, state)?,
            settings.vnicd_config(&self.after, state)?,
        ];
        for (old, new) in before.ports.iter().zip(&after.ports) {
            let directions = [
                (Direction::ToGuest, &old.link.to_guest, &new.link.to_guest),
                (Direction::FromGuest, &old.link.from_guest, &new.link.from_guest),
            ];
            for (direction, old, link) in directions {
                if old != link {
                    server::link(shared, &new.name, direction, &link.into())?;
                }
            }
            if old.coalescing != new.coalescing {
                server::coalesce(shared, &new.name, &(&new.coalescing).into())?;
            }
        }
        for (index, (old, new)) in before.trunks.iter().zip(&after.trunks).enumerate() {
            let same = |other: &&TrunkEntry| [(&other.a, &other.b), (&other.b, &other.a)].contains(&(&new.a, &new.b));
            let number = after.trunks[..=index].iter().filter(same).count();
            let directions = [
                ((&*new.a, &*new.b), &old.link.a_to_b, &new.link.a_to_b),
                ((&*new.b, &*new.a), &old.link.b_to_a, &new.link.b_to_a),
            ];
            for (ends, old, link) in directions {
                if old != link {
                    server::trunk(shared, ends, Some(number), TrunkDirection::AToB, &link.into())?;
                }
            }
        }
        Ok(())
    }

    /// Ends the nodes that are removed or replaced, and forgets them.
    fn end_nodes(&self) -> Result<()> {
        let gone = [Action::Remove, Action::Restart, Action::Start];
        let names: Vec<_> = gone.into_iter().flat_map(|action| self.plan.nodes(action)).collect();
        for signal in [Signal::TERM, Signal::KILL] {
            for name in &names {
                if let Some(process) = self
                    .shared
                    .inner()
                    .nodes
                    .get(*name)
                    .and_then(|guest| guest.process.as_ref())
                {
                    // A process that has ended meanwhile needs no signal.
                    _ = pidfd_send_signal(process, signal);
                }
            }
            let ended = |inner: &mut LabState| {
                let runs = |name: &&str| inner.nodes.get(*name).is_some_and(|guest| guest.process.is_some());
                (!names.iter().any(runs)).then_some(())
            };
            if self
                .shared
                .wait_for(Some(Instant::now() + QUIT_TIMEOUT), ended)
                .is_some()
            {
                self.shared
                    .update(|inner| names.iter().for_each(|name| _ = inner.nodes.remove(*name)));
                return Ok(());
            }
        }
        bail!("a guest did not end: {}", names.join(", "))
    }

    /// Starts the nodes that are added.
    fn start_nodes(&self) -> Result<()> {
        let come = [Action::Add, Action::Restart, Action::Start];
        let names: Vec<_> = come.into_iter().flat_map(|action| self.plan.nodes(action)).collect();
        for new in self.after.nodes.iter().filter(|node| names.contains(&&*node.name)) {
            self.shared
                .update(|inner| inner.nodes.insert(new.name.clone(), Guest::of(new)));
            let (shared, new) = (Arc::clone(self.shared), new.clone());
            thread("node", move || guest_process::keep(&shared, &new))?;
        }
        Ok(())
    }
}

/// Returns every port with its node and the number of its card.
fn cards(lab: &Lab) -> impl Iterator<Item = (String, (String, usize))> {
    lab.nodes
        .iter()
        .flat_map(|node| (0..node.nics.len()).map(|card| (node.port(card), (node.name.clone(), card))))
}
