//! Open-MX messages: endpoints of `omx` that are opened through their authority, as by any program.

use std::{collections::VecDeque, thread};

use anyhow::{Context, bail, ensure};
use ether::MacAddr;
use omx::{Address, Endpoint, EndpointOptions, Request, Segment, Status, StatusCode, Waiting};

use super::turns::End;
use super::work::{
    IDLE, INCAST_LENGTH, INCAST_MESSAGES, PATIENCE, RATE_LENGTH, RATE_MESSAGES, Task, Work, be_woken, now_ns, wake_up,
};

const KEY: u32 = 0x5eed;
const MATCH_INFO: u64 = 0x6265_6e63_6800_0000;
/// Number of sends and receives posted at a time where messages follow each other.
const WINDOW: usize = 256;
/// Number of sends and receives of long messages posted at a time.
const WINDOW_LONG: usize = 16;

fn open(interface: &str, task: Task, number: Option<u8>) -> anyhow::Result<Endpoint> {
    let sleeping = match task {
        Task::PingPong { blocking, .. } => blocking,
        Task::Rate | Task::Bandwidth => false,
        Task::Incast { .. } | Task::WakeUp { .. } | Task::Idle { .. } => true,
    };
    let options = EndpointOptions {
        interface: Some(interface.to_owned()),
        endpoint: number,
        key: KEY,
        waiting: if sleeping { Waiting::Sleep } else { Waiting::Spin },
        ..EndpointOptions::default()
    };
    Endpoint::open(&options).context("cannot open an endpoint")
}

fn over(endpoint: &Endpoint, request: Request) -> anyhow::Result<Status> {
    let status = endpoint
        .wait(request, Some(PATIENCE))?
        .context("a message does not end")?;
    ensure!(status.code == StatusCode::Success, "a message failed: {}", status.code);
    Ok(status)
}

/// Receives `count` messages into buffers of `length` bytes, `window` of them posted, and returns the time between the
/// first and the last in nanoseconds.
fn collect(endpoint: &Endpoint, count: usize, length: usize, window: usize) -> anyhow::Result<u64> {
    let mut buffers: Vec<_> = (0..window).map(|_| vec![0_u8; length]).collect();
    let mut posted = VecDeque::new();
    let mut begin = 0;
    for message in 0..count + window {
        if message >= window {
            let request = posted.pop_front().context("nothing is posted")?;
            let status = over(endpoint, request)?;
            ensure!(status.transferred as usize == length, "a message was cut");
            if message == window {
                begin = now_ns();
            }
        }
        if message < count {
            let buffer = &mut buffers[message % window];
            // SAFETY: a buffer is posted again only when its last request is over, and lives as long as the requests
            // do.
            let request = unsafe { endpoint.irecv(&[Segment::of_mut(buffer)], MATCH_INFO, u64::MAX, 0) }?;
            posted.push_back(request);
        }
    }
    Ok(now_ns() - begin)
}

/// Sends `count` messages, `window` of them posted.
fn stream(endpoint: &Endpoint, to: Address, data: &[u8], count: usize, window: usize) -> anyhow::Result<()> {
    let mut posted = VecDeque::new();
    for message in 0..count + window {
        if message >= window {
            over(endpoint, posted.pop_front().context("nothing is posted")?)?;
        }
        if message < count {
            // SAFETY: `data` is borrowed until all requests are over, or the process ends.
            posted.push_back(unsafe { endpoint.isend(&[Segment::of(data)], to, MATCH_INFO, 0, false) }?);
        }
    }
    Ok(())
}

/// One end of messages there and back.
struct RoundTrips {
    endpoint: Endpoint,
    to: Address,
    there: Vec<u8>,
    back: Vec<u8>,
    work: Work,
    answers: bool,
}

impl End for RoundTrips {
    fn trip(&mut self) -> anyhow::Result<()> {
        if self.answers {
            self.endpoint.receive(&mut self.there, MATCH_INFO, u64::MAX)?;
            self.endpoint.send(&self.back, self.to, MATCH_INFO)?;
        } else {
            self.endpoint.send(&self.there, self.to, MATCH_INFO)?;
            self.endpoint.receive(&mut self.back, MATCH_INFO, u64::MAX)?;
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> anyhow::Result<()> {
        check_path(&self.endpoint, self.work)?;
        Ok(self.endpoint.close()?)
    }
}

impl RoundTrips {
    fn new(connected: (Endpoint, Address), work: Work, answers: bool) -> anyhow::Result<Self> {
        let trip = work.trip().context("no round trips")?;
        let (endpoint, to) = connected;
        Ok(Self {
            endpoint,
            to,
            there: vec![0x5a; trip.length],
            back: vec![0x5a; trip.answer],
            work,
            answers,
        })
    }
}

/// The end that answers, before the measuring side has connected.
pub struct Served {
    endpoint: Endpoint,
    work: Work,
}

/// Opens the end that answers.
pub fn open_end(interface: &str, work: Work) -> anyhow::Result<Served> {
    let endpoint = open(interface, work.task, Some(0))?;
    Ok(Served { endpoint, work })
}

impl Served {
    /// Waits until the side that measures has connected.
    pub fn await_peer(self) -> anyhow::Result<Box<dyn End>> {
        let to = receive_peer_address(&self.endpoint)?;
        self.endpoint.send(&[], to, MATCH_INFO)?;
        Ok(Box::new(RoundTrips::new((self.endpoint, to), self.work, true)?))
    }
}

/// Opens the end that measures.
pub fn connect_end(interface: &str, other: MacAddr, work: Work) -> anyhow::Result<Box<dyn End>> {
    let connected = reach(interface, other, work.task)?;
    Ok(Box::new(RoundTrips::new(connected, work, false)?))
}

/// Receives the address of the side that measures, which it sends before it begins.
fn receive_peer_address(endpoint: &Endpoint) -> anyhow::Result<Address> {
    let hello = endpoint.receive(&mut [], MATCH_INFO, u64::MAX)?;
    let source = hello.address.context("the other side is gone")?;
    Ok(endpoint.connect(source.mac(), source.endpoint(), KEY, Some(PATIENCE))?)
}

/// Opens an endpoint and waits until the other side's endpoint has answered it.
fn reach(interface: &str, other: MacAddr, task: Task) -> anyhow::Result<(Endpoint, Address)> {
    let endpoint = open(interface, task, None)?;
    let to = endpoint
        .connect(other, 0, KEY, Some(PATIENCE))
        .context("cannot connect")?;
    endpoint.send(&[], to, MATCH_INFO)?;
    endpoint.receive(&mut [], MATCH_INFO, u64::MAX)?;
    Ok((endpoint, to))
}

/// Serves a measurement in one direction on the answering side, and returns the figure; `opened` is called when the
/// side can be reached.
pub fn serve(interface: &str, work: Work, opened: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<f64> {
    let task = work.task;
    let endpoint = open(interface, task, Some(0))?;
    opened()?;
    if matches!(task, Task::Idle { .. }) {
        return idle(&endpoint);
    }
    let back = receive_peer_address(&endpoint)?;
    endpoint.send(&[], back, MATCH_INFO)?;
    let per_second = |count: usize, ns: u64| count as f64 * 1e9 / ns as f64;
    let figure = match task {
        Task::Rate => {
            let count = RATE_MESSAGES as usize;
            per_second(count - 1, collect(&endpoint, count, RATE_LENGTH, WINDOW)?)
        }
        Task::Incast { senders } => {
            let count = INCAST_MESSAGES / senders * senders;
            let ns = collect(&endpoint, count, INCAST_LENGTH, WINDOW_LONG)?;
            per_second((count - 1) * INCAST_LENGTH, ns)
        }
        Task::WakeUp { .. } => be_woken(|| {
            let mut stamp = [0; 8];
            endpoint.receive(&mut stamp, MATCH_INFO, u64::MAX)?;
            Ok(stamp)
        })?,
        other => bail!("{other:?} is measured in turns"),
    };
    check_path(&endpoint, work)?;
    endpoint.close()?;
    Ok(figure)
}

/// Checks by the endpoint's counters that messages took the path that is measured.
fn check_path(endpoint: &Endpoint, work: Work) -> anyhow::Result<()> {
    let counters = endpoint.counters();
    let shared = counters
        .nonzero()
        .any(|(counter, _)| counter.name().starts_with("SHARED_"));
    ensure!(
        shared == work.path.is_inside(),
        "the counters of shared memory do not fit: {:?}",
        counters.nonzero().collect::<Vec<_>>()
    );
    Ok(())
}

/// Returns the CPU nanoseconds of this process while it waits for a message that never comes.
fn idle(endpoint: &Endpoint) -> anyhow::Result<f64> {
    let cpu_ns = || {
        let used = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        used.tv_sec as f64 * 1e9 + used.tv_nsec as f64
    };
    let mut buffer = [0; 8];
    // SAFETY: the buffer outlives the endpoint's use of it: no message is sent, and the request is cancelled.
    let request = unsafe { endpoint.irecv(&[Segment::of_mut(&mut buffer)], MATCH_INFO, u64::MAX, 0) }?;
    let before = cpu_ns();
    ensure!(endpoint.wait(request, Some(IDLE))?.is_none(), "somebody sent");
    let used = cpu_ns() - before;
    ensure!(endpoint.cancel(request)?, "somebody sent");
    Ok(used)
}

/// Measures from the other side; `thread` is the one that answers.
pub fn measure(interface: &str, other: MacAddr, work: Work, thread: u32) -> anyhow::Result<()> {
    let task = work.task;
    if matches!(task, Task::Idle { .. }) {
        return Ok(());
    }
    let (endpoint, to) = reach(interface, other, task)?;
    match task {
        Task::Rate => stream(&endpoint, to, &[0x5a; RATE_LENGTH], RATE_MESSAGES as usize, WINDOW)?,
        Task::Incast { senders } => {
            let send = |endpoint: &Endpoint, to| {
                let data = vec![0x5a; INCAST_LENGTH];
                stream(endpoint, to, &data, INCAST_MESSAGES / senders, 2)
            };
            let mut others = Vec::new();
            for _ in 1..senders {
                let endpoint = open(interface, task, None)?;
                let to = endpoint
                    .connect(other, 0, KEY, Some(PATIENCE))
                    .context("cannot connect")?;
                others.push((endpoint, to));
            }
            thread::scope(|scope| {
                let threads: Vec<_> = others
                    .iter()
                    .map(|(own, to)| scope.spawn(move || send(own, *to)))
                    .collect();
                let first = send(&endpoint, to);
                let all = threads
                    .into_iter()
                    .map(|thread| thread.join().map_err(|_| anyhow::anyhow!("a sender died"))?);
                all.chain([first]).collect::<anyhow::Result<()>>()
            })?;
        }
        Task::WakeUp { .. } => wake_up(thread, |stamp| Ok(endpoint.send(stamp, to, MATCH_INFO).map(drop)?))?,
        other => bail!("{other:?} is measured in turns"),
    }
    check_path(&endpoint, work)?;
    Ok(endpoint.close()?)
}
