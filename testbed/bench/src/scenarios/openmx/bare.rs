//! The baseline of what the interface can do: frames over a packet socket with a TPACKET_V2 ring. The only protocol is
//! a count of frames that the receiver allows to be in flight, so that none is lost.

use std::{io::IoSlice, time::Instant};

use anyhow::{Context, bail, ensure};
use ether::{ETHERNET_HEADER_LEN, EtherType, MacAddr};
use netif::{AfPacket, AfPacketOptions, BURST_MAX, Interest, Netif, Wake};

use super::{
    turns::End,
    work::{PATIENCE, Path, RATE_LENGTH, RATE_MESSAGES, Task, Work, be_woken, now_ns, wake_up},
};

/// Local experimental EtherType 1, which no other program uses on this pair; LCI uses 2.
const ETHER_TYPE: EtherType = EtherType::CARD_CONTROL;
/// Length of the ring, as for an endpoint of `omx`.
const RING_LEN: usize = 4 << 20;
/// Bytes and frames in flight at most; the receiver allows more in quarters of that.
const BYTES_AHEAD_MAX: usize = 2 << 20;
const FRAMES_AHEAD_MAX: usize = 1024;
/// Number of polls between two readings of the clock.
const POLLS_PER_CLOCK_READ: u32 = 1 << 16;
/// Back-off of a receiver that found nothing, in nanoseconds, as for an endpoint of `omx`.
const BACK_OFF_NS: u64 = 2000;

struct Port {
    port: AfPacket,
    /// Whether a receiver that finds nothing backs off once before it polls again.
    backs_off: bool,
    header: [u8; ETHERNET_HEADER_LEN],
}

/// How a message is sent: frames of `chunk` bytes, `ahead` of them in flight.
#[derive(Clone, Copy)]
struct Shape {
    length: usize,
    chunk: usize,
    ahead: usize,
}

impl Shape {
    /// Many short messages.
    const RATE: Self = Self {
        length: RATE_LENGTH * RATE_MESSAGES as usize,
        chunk: RATE_LENGTH,
        ahead: FRAMES_AHEAD_MAX,
    };

    /// Makes the shape of a long message.
    fn long(length: usize, mtu: usize) -> Self {
        Self {
            length,
            chunk: mtu,
            ahead: (BYTES_AHEAD_MAX / mtu).min(FRAMES_AHEAD_MAX),
        }
    }

    const fn frames(self) -> usize {
        self.length.div_ceil(self.chunk)
    }

    /// Returns the number of frames after which the receiver allows as many more.
    const fn credit(self) -> usize {
        self.ahead / 4
    }
}

impl Port {
    fn open(interface: &str, other: MacAddr) -> anyhow::Result<Self> {
        let options = AfPacketOptions {
            ring_len: RING_LEN,
            ..AfPacketOptions::default()
        };
        let port = AfPacket::open(interface, ETHER_TYPE, &options)?;
        let mut header = [0; ETHERNET_HEADER_LEN];
        header[..6].copy_from_slice(&other.0);
        header[6..12].copy_from_slice(&port.mac().0);
        header[12..].copy_from_slice(&ETHER_TYPE.0.to_be_bytes());
        Ok(Self {
            port,
            backs_off: false,
            header,
        })
    }

    fn send(&mut self, payload: &[u8]) -> anyhow::Result<()> {
        while !self.port.send(&[IoSlice::new(&self.header), IoSlice::new(payload)])? {}
        Ok(())
    }

    /// Polls until a frame is there.
    fn receive<T>(&mut self, with: impl FnOnce(&[u8]) -> T) -> anyhow::Result<T> {
        let mut deadline = None;
        for poll in 1_u32.. {
            if let Some(frame) = self.port.poll_receive()? {
                return Ok(with(&frame[ETHERNET_HEADER_LEN..]));
            }
            if self.backs_off && poll == 1 {
                let until_ns = now_ns() + BACK_OFF_NS;
                while now_ns() < until_ns {
                    std::hint::spin_loop();
                }
            }
            if poll % POLLS_PER_CLOCK_READ == 0 {
                let until = *deadline.get_or_insert_with(|| Instant::now() + PATIENCE);
                ensure!(Instant::now() < until, "no frame came");
            }
        }
        bail!("no frame came")
    }

    /// Sleeps until a frame is there.
    fn sleep<T>(&mut self, with: impl FnOnce(&[u8]) -> T) -> anyhow::Result<T> {
        let until = Instant::now() + PATIENCE;
        while self.port.wait(Interest::Receive, until, None)? == Wake::Ready {
            if let Some(frame) = self.port.poll_receive()? {
                return Ok(with(&frame[ETHERNET_HEADER_LEN..]));
            }
        }
        bail!("no frame came")
    }

    /// Sends a message; returns when all of it is in flight.
    fn stream(&mut self, data: &[u8], shape: Shape) -> anyhow::Result<()> {
        let (mut sent, mut allowed) = (0, shape.ahead);
        let frames = shape.frames();
        while sent < frames {
            while self.port.poll_receive()?.is_some() {
                allowed += shape.credit();
            }
            let burst = (allowed - sent).min(frames - sent).min(BURST_MAX);
            if burst == 0 {
                self.receive(|_| ())?;
                allowed += shape.credit();
                continue;
            }
            let part = |frame: usize| {
                let at = (sent + frame) * shape.chunk % data.len();
                let end = (at + shape.chunk).min(data.len());
                [IoSlice::new(&self.header), IoSlice::new(&data[at..end])]
            };
            let parts: [_; BURST_MAX] = std::array::from_fn(part);
            let slices: [&[IoSlice<'_>]; BURST_MAX] = std::array::from_fn(|frame| &parts[frame][..]);
            sent += self.port.send_burst(&slices[..burst])?;
        }
        Ok(())
    }

    /// Receives a message, and returns the time between its first and its last frame in nanoseconds.
    fn collect(&mut self, data: &mut [u8], shape: Shape) -> anyhow::Result<u64> {
        let frames = shape.frames();
        let mut begin = 0;
        for frame in 0..frames {
            let at = frame * shape.chunk % data.len();
            self.receive(|payload| {
                // Short frames are padded.
                let length = payload.len().min(shape.chunk).min(data.len() - at);
                data[at..at + length].copy_from_slice(&payload[..length]);
            })?;
            if frame == 0 {
                begin = now_ns();
            }
            if (frame + 1) % shape.credit() == 0 && frame + shape.ahead < frames + shape.credit() {
                self.send(&[])?;
            }
        }
        Ok(now_ns() - begin)
    }

    fn wait_for_peer(&mut self) -> anyhow::Result<()> {
        // The other side's socket is open before this one's, so nothing is lost.
        self.send(&[1])
    }

    fn assert_nothing_dropped(&mut self) -> anyhow::Result<()> {
        let counters = self.port.counters();
        ensure!(
            counters.dropped_no_buffer + counters.dropped_too_long == 0,
            "bare frames were dropped: {counters:?}"
        );
        Ok(())
    }
}

/// One end of messages there and back, either in a single frame or in as many as they need.
pub struct RoundTrips {
    port: Port,
    data: Vec<u8>,
    /// The shape of long messages.
    shape: Option<Shape>,
    answers: bool,
}

/// Opens an end; with `answers` it is the one that replies.
pub fn open_end(interface: &str, other: MacAddr, work: Work, answers: bool) -> anyhow::Result<RoundTrips> {
    let length = work.trip().context("no round trips")?.length;
    Ok(RoundTrips {
        port: Port::open(interface, other)?,
        data: vec![0x5a; length],
        shape: (length > work.mtu).then(|| Shape::long(length, work.mtu)),
        answers,
    })
}

impl RoundTrips {
    /// Waits until the other end is there too.
    pub fn await_peer(mut self) -> anyhow::Result<Box<dyn End>> {
        if self.answers {
            self.port.receive(|_| ()).context("the other side did not begin")?;
        } else {
            self.port.wait_for_peer()?;
        }
        Ok(Box::new(self))
    }
}

impl End for RoundTrips {
    fn trip(&mut self) -> anyhow::Result<()> {
        match (self.shape, self.answers) {
            (None, false) => {
                self.port.send(&self.data)?;
                self.port.receive(|_| ())
            }
            (None, true) => {
                self.port.receive(|_| ())?;
                self.port.send(&self.data)
            }
            (Some(shape), false) => {
                self.port.stream(&self.data, shape)?;
                // Allowances that are left over come first.
                while !self.port.receive(|payload| payload.first() == Some(&2))? {}
                Ok(())
            }
            (Some(shape), true) => {
                self.port.collect(&mut self.data, shape)?;
                self.port.send(&[2])
            }
        }
    }

    fn finish(mut self: Box<Self>) -> anyhow::Result<()> {
        self.port.assert_nothing_dropped()
    }
}

/// Serves a measurement in one direction on the answering side, and returns the figure; `opened` is called when the
/// side can be reached.
pub fn serve(
    interface: &str,
    other: MacAddr,
    work: Work,
    opened: impl FnOnce() -> anyhow::Result<()>,
) -> anyhow::Result<f64> {
    let mut port = Port::open(interface, other)?;
    opened()?;
    port.receive(|_| ()).context("the other side did not begin")?;
    port.backs_off = work.path == Path::BareBackOff;
    let figure = match work.task {
        Task::Rate => {
            let ns = port.collect(&mut vec![0; RATE_LENGTH * FRAMES_AHEAD_MAX], Shape::RATE)?;
            (Shape::RATE.frames() - 1) as f64 * 1e9 / ns as f64
        }
        Task::WakeUp { .. } => {
            let stamp = |payload: &[u8]| payload.first_chunk().copied();
            be_woken(|| port.sleep(stamp)?.context("a frame is too short"))?
        }
        other => bail!("{other:?} is not measured with bare frames alone"),
    };
    port.assert_nothing_dropped()?;
    Ok(figure)
}

/// Measures from the other side; `thread` is the one that answers.
pub fn measure(interface: &str, other: MacAddr, task: Task, thread: u32) -> anyhow::Result<()> {
    let mut port = Port::open(interface, other)?;
    port.wait_for_peer()?;
    match task {
        Task::Rate => port.stream(&vec![0x5a; RATE_LENGTH * FRAMES_AHEAD_MAX], Shape::RATE)?,
        Task::WakeUp { .. } => wake_up(thread, |stamp| port.send(stamp))?,
        other => bail!("{other:?} is not measured with bare frames alone"),
    }
    port.assert_nothing_dropped()
}
