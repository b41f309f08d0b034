//! Starts a lab from a save: each guest's QEMU reads the guest's state instead of booting, and when all have read, all
//! continue together. The format of a save, and its checks, are in [`crate::save`].

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io::{self, BufReader, Read},
    os::fd::AsFd,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use anyhow::{Context, Result, bail};
use parking_lot::{Mutex, MutexGuard};
use weft_agent::config::ROOT_DISK;

use super::{
    LabState, Shared,
    guest_process::{QEMU_POLL_INTERVAL, QEMU_START_TIMEOUT},
    guest_state::Guest,
    thread,
};
use crate::{
    image::Image,
    lab::{Boot, Node},
    prepare::Means,
    qemu::{self, Qemu, QemuProcess, Qmp, Transfer},
    save::Saved,
    settings_in_force::Settings,
    supervisor_client::protocol::{LabPhase, NodePhase},
};

/// Number of bytes of a state that are read at a time.
const PIECE_LEN: usize = 1 << 20;

/// Interval at which guests count as alive while states are read.
const TELL_INTERVAL: Duration = Duration::from_secs(1);

/// What each node's QEMU was started with, and which of them are to read a saved state.
#[derive(Debug, Default)]
pub(super) struct Restore(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// What the QEMU of each node booted, which a restored one needs again.
    boots: BTreeMap<String, qemu::Boot>,
    /// Contents of the save that the lab was restored from: how each node boots, and with what.
    saved: BTreeMap<String, (Boot, qemu::Boot)>,
    /// Nodes whose QEMU has not been started since the lab was restored.
    to_start: BTreeMap<String, Incoming>,
    /// Nodes whose QEMU has not read its state to the end.
    to_load: BTreeSet<String>,
}

/// What a guest continues with.
#[derive(Clone, Debug)]
pub(super) struct Incoming {
    /// What its QEMU is started with.
    pub(super) boot: qemu::Boot,
    /// Path of the saved state.
    state: PathBuf,
}

impl Restore {
    /// Makes all nodes of that saved lab read their states.
    pub(super) fn of(saved: &Saved) -> Self {
        let nodes = saved.manifest().nodes.iter().filter_map(|node| {
            let incoming = Incoming {
                boot: saved.boot(&node.name)?,
                state: saved.path(&node.state),
            };
            Some((node.name.clone(), incoming))
        });
        let to_start: BTreeMap<_, _> = nodes.collect();
        let lab = &saved.manifest().lab;
        let kept = lab.nodes.iter().filter_map(|node| {
            let boot = saved.boot(&node.name)?;
            Some((node.name.clone(), (node.boot.clone(), boot)))
        });
        Self(Mutex::new(State {
            boots: BTreeMap::new(),
            saved: kept.collect(),
            to_load: to_start.keys().cloned().collect(),
            to_start,
        }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock()
    }

    /// Returns what the node is to continue with, at each start of its QEMU: only the first one after a restore has
    /// something.
    pub(super) fn take(&self, node: &str) -> Option<Incoming> {
        self.state().to_start.remove(node)
    }

    /// Returns whether the next start of the node's QEMU continues a saved state.
    pub(super) fn is_to_start(&self, node: &str) -> bool {
        self.state().to_start.contains_key(node)
    }

    /// Returns what the node was booted with when it was saved, if it still boots in that manner: the files that the
    /// lab file names may be gone.
    pub(super) fn saved(&self, node: &Node) -> Option<qemu::Boot> {
        let state = self.state();
        let (boot, saved) = state.saved.get(&node.name)?;
        (*boot == node.boot).then(|| saved.clone())
    }

    /// Notes what the node's QEMU is started with.
    pub(super) fn note_boot(&self, node: &str, boot: &qemu::Boot) {
        self.state().boots.insert(node.to_owned(), boot.clone());
    }

    /// Returns what the node's QEMU was started with last.
    pub(super) fn boot(&self, node: &str) -> Option<qemu::Boot> {
        self.state().boots.get(node).cloned()
    }

    /// Notes that the node's state is read, and it can be told to continue.
    pub(super) fn note_loaded(&self, node: &str) {
        self.state().to_load.remove(node);
    }

    /// Forgets nodes that are gone, so that they are not waited for.
    fn forget_others<'a>(&self, nodes: impl Iterator<Item = &'a String>) {
        let nodes: BTreeSet<&String> = nodes.collect();
        self.state().to_load.retain(|name| nodes.contains(name));
    }

    /// Returns whether some node has not read its state.
    fn is_loading(&self) -> bool {
        !self.state().to_load.is_empty()
    }
}

/// Returns what the guests of a saved lab run with: images are taken from the save, also when a node is restarted
/// later.
pub fn means(saved: &Saved, qemu: Qemu) -> Means {
    let manifest = saved.manifest();
    let images = manifest
        .lab
        .nodes
        .iter()
        .zip(&manifest.nodes)
        .filter_map(|(node, kept)| {
            let (Boot::Recipe { image, .. }, Some((kernel_release, hash))) = (&node.boot, &kept.image) else {
                return None;
            };
            let root = kept.disks.iter().find(|disk| disk.serial == ROOT_DISK);
            let image_files = Image {
                kernel: saved.path(&kept.kernel),
                initramfs: saved.path(kept.initramfs.as_ref()?),
                root: root.map(|disk| saved.path(&disk.contents)),
                kernel_release: kernel_release.clone(),
                hash: hash.clone(),
            };
            Some((image.clone(), image_files))
        });
    Means {
        qemu,
        accel: manifest.accel,
        images: images.collect(),
        agent: None,
    }
}

/// Returns the settings that were in force. Timers continue as if no time had passed until now; the cards get them when
/// they start, and the guests continue when their states are read.
pub(super) fn settings(saved: &Saved) -> Settings {
    let manifest = saved.manifest();
    let mut settings = manifest.settings.clone();
    let now_ms = SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_millis());
    let gone_ms = u64::try_from(now_ms)
        .unwrap_or(u64::MAX)
        .saturating_sub(manifest.saved_unix_ms);
    settings.shift_timers(gone_ms.saturating_mul(1_000_000));
    settings
}

/// Lets a QEMU that was just started read its guest's state.
pub(super) fn load(shared: &Shared, node: &str, incoming: &Incoming, process: &mut QemuProcess) -> Result<()> {
    let state = File::open(&incoming.state).with_context(|| format!("cannot read {}", incoming.state.display()))?;
    let mut qmp = monitor(shared, node, process)?;
    let (reads, mut writes) = io::pipe().context("cannot make a pipe")?;
    let outcome = std::thread::scope(|scope| {
        // QEMU closes its end when it has read all, or fails: it reports the result itself.
        let told = StateReader {
            shared,
            state: &state,
            last: Instant::now(),
        };
        let mut told = BufReader::with_capacity(PIECE_LEN, told);
        scope.spawn(move || io::copy(&mut told, &mut writes));
        let begun = qmp.begin_restore(reads.as_fd());
        drop(reads);
        begun.and_then(|()| qmp.wait_for_transfer())
    });
    match outcome {
        Ok(Transfer::Completed) => Ok(()),
        Ok(Transfer::Failed(why)) => bail!("QEMU cannot read its saved state: {why}"),
        // QEMU ends with a message on its own output.
        Err(error) => match process.last_words().lines().last() {
            Some(why) if process.try_wait()?.is_some() => bail!("QEMU cannot read its saved state: {why}"),
            _ => Err(error).context("QEMU cannot read its saved state"),
        },
    }
}

/// A reader of a state whose progress counts as a sign of life of all guests: those whose states were read wait for the
/// others.
struct StateReader<'a> {
    shared: &'a Shared,
    state: &'a File,
    /// Time of the last sign of life.
    last: Instant,
}

impl Read for StateReader<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        if self.last.elapsed() >= TELL_INTERVAL {
            self.last = Instant::now();
            // No thread waits for this alone to change.
            self.shared.inner().nodes.values_mut().for_each(Guest::waits_for_others);
        }
        self.state.read(bytes)
    }
}

/// Connects to the monitor of a QEMU that was just started; gives up as soon as QEMU has ended.
fn monitor(shared: &Shared, node: &str, process: &mut QemuProcess) -> Result<Qmp> {
    let socket = shared.state.socket(&format!("{node}.qmp"))?;
    let deadline = Instant::now() + QEMU_START_TIMEOUT;
    loop {
        match Qmp::connect(&socket, QEMU_POLL_INTERVAL) {
            Ok(qmp) => return Ok(qmp),
            Err(_) if process.try_wait()?.is_some() => bail!("QEMU ended immediately: {}", process.last_words()),
            Err(error) if Instant::now() >= deadline => return Err(error.into()),
            Err(_) => {}
        }
    }
}

/// Starts the thread that lets all guests continue when all have read their states.
pub(super) fn start(shared: &Arc<Shared>) -> Result<()> {
    if !shared.restore.is_loading() {
        return Ok(());
    }
    let shared = Arc::clone(shared);
    thread("restore", move || {
        let all_loaded = |inner: &mut LabState| {
            shared.restore.forget_others(inner.nodes.keys());
            let off = inner
                .nodes
                .values()
                .any(|guest| guest.status.phase == NodePhase::Stopped);
            if off || inner.phase == LabPhase::Stopping {
                // The thread that waits for the lab reports the reason.
                return Some(false);
            }
            (!shared.restore.is_loading()).then_some(true)
        };
        if shared.wait_for(None, all_loaded) != Some(true) {
            return;
        }
        if let Err(error) = go_on(&shared) {
            shared.fail(error.context("the guests cannot continue"));
        }
    })
}

/// Lets all guests continue. Until all do, frames are taken from none of them, so that no frame reaches a guest that is
/// not there yet.
fn go_on(shared: &Shared) -> Result<()> {
    let mut vnicd = shared.vnicd()?;
    vnicd.drain()?;
    // The cards have the timers now.
    shared.settings().handed_over();
    let mut monitors = Vec::new();
    for node in &shared.lab().nodes {
        let socket = shared.state.socket(&format!("{}.qmp", node.name))?;
        monitors.push(Qmp::connect(&socket, Duration::from_secs(30))?);
    }
    for monitor in &mut monitors {
        monitor.cont()?;
    }
    Ok(())
}
