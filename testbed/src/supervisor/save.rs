//! Saves a running lab: stops all guests simultaneously, lets each QEMU write its guest's state, and lets the guests
//! continue. On any failure they continue, and no partial save is left. [`crate::save`] writes the folder.

use std::{
    io::{self, PipeReader, Read},
    os::fd::AsFd,
    os::unix::net::UnixStream,
    path::Path,
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use anyhow::{Context, Result, bail, ensure};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::{Settings, Shared, cable_carrier, server::answer};
use crate::{
    accel::Accel,
    lab::{Boot, Lab, Node},
    qemu::{Qmp, Transfer},
    save::{Manifest, SavedDisk, SavedFile, SavedNode, Writer, cpu_flags, why_not},
    supervisor_client::protocol::{LabPhase, NodePhase, SaveNews, SaveReport, SavedGuest},
    vnicd_client::{Drained, VnicdClient},
};

/// Time that a monitor may be busy with another client.
const MONITOR_TIMEOUT: Duration = Duration::from_secs(30);

/// Interval at which the client is told the progress, and at which its absence is noticed.
const TELL_INTERVAL: Duration = Duration::from_millis(100);

/// Number of bytes of a guest's state in the pipe from QEMU to us; fewer need more turns.
const PIPE_LEN: usize = 1 << 20;

/// What is to be done in a save.
#[derive(Clone, Copy, Debug)]
pub(super) struct Order<'a> {
    /// Folder to write.
    pub(super) target: &'a Path,
    /// Whether an existing save is replaced.
    pub(super) replace: bool,
    /// Whether the lab ends, so that the guests do not continue.
    pub(super) stop: bool,
}

/// Carries out [`Request::Save`](crate::supervisor_client::protocol::Request::Save), and tells the client the progress.
/// Returns whether the lab is to be ended now.
pub(super) fn serve(shared: &Arc<Shared>, order: Order<'_>, stream: &UnixStream) -> Result<bool> {
    let mut teller = Teller {
        shared,
        stream,
        last: None,
    };
    // The end of the lab waits for this lock, so that no partial save is left.
    let _saving = shared.saving.lock();
    // This lock keeps the lab unchanged, so that an intermediate state is not saved.
    let file = shared.file.lock();
    let mut frozen = None;
    match save(shared, order, file.as_deref(), &mut frozen, &mut teller) {
        Err(error) => {
            drop(frozen);
            answer::<SaveNews>(stream, Err(error))?;
            Ok(false)
        }
        Ok(report) => {
            if order.stop {
                // The last state of the lab is the saved one, even if the client is gone.
                frozen.as_mut().into_iter().for_each(Frozen::forget);
            }
            drop(frozen);
            let told = answer(stream, Ok(SaveNews::Done(report)));
            if !order.stop {
                told?;
            }
            Ok(order.stop)
        }
    }
}

fn save(
    shared: &Arc<Shared>,
    order: Order<'_>,
    file: Option<&Path>,
    frozen: &mut Option<Frozen>,
    teller: &mut Teller<'_>,
) -> Result<SaveReport> {
    let (lab, means) = (shared.lab(), shared.means());
    crate::save::check_lab(&lab)?;
    // A monitor serves one client at a time: other operations that use the monitors wait until the guests continue.
    let turn = cable_carrier::turn(shared);
    let mut monitors = check(shared, &lab)?;
    let mut writer = Writer::begin(order.target, order.replace)?;
    let mut nodes = Vec::new();
    for node in &lab.nodes {
        nodes.push(boot_files(shared, node, &mut writer, teller)?);
    }
    let frozen = frozen.insert(Frozen::freeze(shared, &mut monitors)?);
    let saved_unix_ms = SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_millis());
    let mut states = Vec::new();
    for (name, monitor) in &mut frozen.monitors {
        states.push(state(name, monitor, &mut writer, teller)?);
    }
    let settings = frozen.settings(&shared.settings());
    if !order.stop {
        frozen.thaw()?;
    }
    drop(turn);
    let (paused, drained) = (frozen.paused(), frozen.drained.clone());
    teller.say("waiting for the disk", 0)?;
    let manifest = Manifest {
        weft: env!("CARGO_PKG_VERSION").to_owned(),
        saved_unix_ms: u64::try_from(saved_unix_ms).unwrap_or(u64::MAX),
        qemu: means.qemu.version().to_string(),
        accel: means.accel,
        cpu_flags: match means.accel {
            Accel::Kvm => cpu_flags(),
            Accel::Tcg => Vec::new(),
        },
        file: file.map(Path::to_owned),
        lab: Lab::clone(&lab),
        settings,
        nodes: nodes.into_iter().zip(states).map(|(node, state)| node(state)).collect(),
    };
    let guests = manifest.nodes.iter().map(|node| SavedGuest {
        name: node.name.clone(),
        bytes: node.state.bytes,
    });
    let guests = guests.collect();
    let bytes = writer.finish(&manifest, &mut || teller.check())?;
    Ok(SaveReport {
        lab: lab.name.clone(),
        folder: order.target.to_owned(),
        nodes: guests,
        bytes,
        paused_ms: u64::try_from(paused.as_millis()).unwrap_or(u64::MAX),
        lost_frames: drained.on_links + drained.in_dma,
        ended: order.stop,
    })
}

/// Checks whether the lab can be saved; returns the monitors of all nodes, in their order. Nothing is stopped yet.
fn check(shared: &Shared, lab: &Lab) -> Result<Vec<(String, Qmp)>> {
    let inner = shared.inner();
    match inner.phase {
        LabPhase::Up => {}
        LabPhase::Starting => bail!("the lab {} is still starting", lab.name),
        LabPhase::Stopping => bail!("the lab is being ended"),
    }
    ensure!(!inner.reload.is_in_progress(), "a reload is in progress");
    let mut reasons: Vec<String> = lab.nodes.iter().filter_map(why_not).collect();
    let is_off = |node: &Node| match inner.nodes.get(&node.name) {
        Some(guest) if guest.status.phase == NodePhase::Starting => Some(format!("{} is being started", node.name)),
        Some(guest) if guest.process.is_some() => None,
        _ => Some(format!("{} is stopped: `weft start {0}` switches it on", node.name)),
    };
    reasons.extend(lab.nodes.iter().filter_map(is_off));
    drop(inner);
    ensure!(!lab.nodes.is_empty(), "the lab {} has no nodes", lab.name);
    let mut monitors = Vec::new();
    // A node that is off has no monitor to ask.
    let asked = if reasons.is_empty() { lab.nodes.as_slice() } else { &[] };
    for node in asked {
        let socket = shared.state.socket(&format!("{}.qmp", node.name))?;
        let mut monitor = Qmp::connect(&socket, MONITOR_TIMEOUT).with_context(|| node.name.clone())?;
        let blocked = monitor.why_not_savable().with_context(|| node.name.clone())?;
        monitors.push((node.name.clone(), monitor));
        if let Some(why) = blocked.first() {
            reasons.push(format!("QEMU cannot save {}: {why}", node.name));
        }
    }
    ensure!(
        reasons.is_empty(),
        "the lab {} cannot be saved: {}",
        lab.name,
        reasons.join("; ")
    );
    Ok(monitors)
}

/// Copies what the node's QEMU was started with. Returns a function that makes a saved node from its state.
fn boot_files(
    shared: &Shared,
    node: &Node,
    writer: &mut Writer,
    teller: &mut Teller<'_>,
) -> Result<impl FnOnce(SavedFile) -> SavedNode + use<>> {
    let boot = shared
        .restore
        .boot(&node.name)
        .with_context(|| format!("{} has not started", node.name))?;
    let mut copy = |path: &Path| {
        writer.copy(path, &mut |bytes| {
            teller.say(&format!("copying {}", path.display()), bytes)
        })
    };
    let kernel = copy(boot.kernel.as_deref().context("a guest without a kernel")?)?;
    let initramfs = boot.initramfs.as_deref().map(&mut copy).transpose()?;
    let mut disks = Vec::new();
    for disk in &boot.shared_disks {
        disks.push(SavedDisk {
            serial: disk.serial.to_owned(),
            contents: copy(&disk.path)?,
        });
    }
    let image = match &node.boot {
        Boot::Recipe { image, .. } => shared.means().images.get(image).cloned(),
        Boot::Kernel { .. } | Boot::Disk { .. } => None,
    };
    let name = node.name.clone();
    Ok(move |state| SavedNode {
        name,
        state,
        kernel,
        initramfs,
        disks,
        image: image.map(|image| (image.kernel_release, image.hash)),
    })
}

/// Lets a QEMU write its guest's state.
fn state(node: &str, monitor: &mut Qmp, writer: &mut Writer, teller: &mut Teller<'_>) -> Result<SavedFile> {
    let (reads, writes) = io::pipe().context("cannot make a pipe")?;
    // A smaller pipe is only slower.
    _ = rustix::pipe::fcntl_setpipe_size(&writes, PIPE_LEN);
    monitor.begin_save(writes.as_fd()).with_context(|| node.to_owned())?;
    drop(writes);
    let saving = format!("saving {node}");
    let pipe = Watched {
        pipe: reads,
        client: teller.stream,
    };
    let written = writer.write(&format!("{node}.state"), pipe, &mut |bytes| teller.say(&saving, bytes));
    // Whatever stopped the writing has closed the pipe by now, and so ends QEMU's part.
    let end = monitor.wait_for_transfer().with_context(|| node.to_owned());
    match (written, end) {
        (Err(error), _) | (Ok(_), Err(error)) => Err(error),
        (Ok(file), Ok(Transfer::Completed)) => Ok(file),
        (Ok(_), Ok(Transfer::Failed(why))) => bail!("QEMU could not save {node}: {why}"),
    }
}

/// A reader of a guest's state that fails when the client is gone.
struct Watched<'a> {
    pipe: PipeReader,
    client: &'a UnixStream,
}

impl Read for Watched<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        // The client is silent while it waits: anything to read is its end.
        let mut fds = [
            PollFd::new(&self.pipe, PollFlags::IN),
            PollFd::new(self.client, PollFlags::IN),
        ];
        poll(&mut fds, None::<&Timespec>)?;
        if !fds[1].revents().is_empty() {
            return Err(io::Error::other("the client is gone"));
        }
        self.pipe.read(bytes)
    }
}

/// All guests of a lab, stopped. They continue when this is dropped.
struct Frozen {
    monitors: Vec<(String, Qmp)>,
    /// Connection during whose life no frames are taken from guests.
    drain: Option<VnicdClient>,
    drained: Drained,
    began: Instant,
    /// Time that the guests were stopped, once they continue.
    paused: Option<Duration>,
}

impl Frozen {
    /// Lets frames in flight arrive, while guests send no more, and stops the guests.
    fn freeze(shared: &Shared, monitors: &mut Vec<(String, Qmp)>) -> Result<Self> {
        let mut vnicd = shared.vnicd()?;
        let drained = vnicd.drain()?;
        let mut frozen = Self {
            monitors: std::mem::take(monitors),
            drain: Some(vnicd),
            drained,
            began: Instant::now(),
            paused: None,
        };
        for (node, monitor) in &mut frozen.monitors {
            monitor.stop().with_context(|| node.clone())?;
        }
        Ok(frozen)
    }

    /// Returns the settings in force, with what the drained `vnicd` hands over.
    fn settings(&self, in_force: &Settings) -> Settings {
        let mut settings = in_force.clone();
        settings.hand_over(&self.drained);
        settings
    }

    /// Lets all guests continue, and then take part in traffic again.
    fn thaw(&mut self) -> Result<()> {
        let mut outcome = Ok(());
        for (node, monitor) in &mut self.monitors {
            let gone_on = monitor.cont().with_context(|| format!("{node} does not continue"));
            outcome = outcome.and(gone_on);
        }
        self.monitors.clear();
        self.drain = None;
        self.paused.get_or_insert(self.began.elapsed());
        outcome
    }

    fn paused(&self) -> Duration {
        self.paused.unwrap_or_else(|| self.began.elapsed())
    }

    /// Leaves the guests stopped.
    fn forget(&mut self) {
        self.monitors.clear();
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        if let Err(error) = self.thaw() {
            let error = format!("{error:#}");
            tracing::error!(%error, "a guest that was stopped to be saved");
        }
    }
}

/// Tells the client the progress from time to time.
struct Teller<'a> {
    shared: &'a Shared,
    stream: &'a UnixStream,
    /// Time and text of the last message.
    last: Option<(Instant, String)>,
}

impl Teller<'_> {
    /// Fails when the client is gone, or the lab is being ended.
    fn check(&self) -> Result<()> {
        let stopping = self.shared.inner().phase == LabPhase::Stopping;
        ensure!(!stopping, "the lab is being ended");
        // The client is silent while it waits: anything to read is its end.
        let mut client = [PollFd::new(self.stream, PollFlags::IN)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let is_gone = poll(&mut client, Some(&now)).is_ok_and(|ready| ready > 0);
        ensure!(!is_gone, "the client is gone");
        Ok(())
    }

    /// Tells the client the progress; fails as [`check`](Self::check) does.
    fn say(&mut self, what: &str, bytes: u64) -> Result<()> {
        self.check()?;
        if self
            .last
            .as_ref()
            .is_some_and(|(last, before)| before == what && last.elapsed() < TELL_INTERVAL)
        {
            return Ok(());
        }
        self.last = Some((Instant::now(), what.to_owned()));
        let what = what.to_owned();
        answer(self.stream, Ok(SaveNews::Step { what, bytes })).context("the client is gone")
    }
}
