//! The virtio-serial port: finding it, frames in, frames out, and waiting for a host end. This module knows no
//! commands.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::mpsc;

use anyhow::{Context, Result};
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, netlink};
use weft_agent::frame::{DELIMITER, Decoder, Frame};

/// Bytes to read from the port at a time.
const READ_LEN: usize = 64 * 1024;

/// Multicast group of the kernel's device events.
const KERNEL_EVENTS: u32 = 1;

/// Returns the device of the virtio port called `name`; waits until the kernel has it.
pub fn find(name: &str) -> Result<PathBuf> {
    // Listening starts before the first check, so that no event is missed between a check and the next wait.
    let events = device_events().context("listening for devices")?;
    loop {
        for entry in fs::read_dir("/sys/class/virtio-ports").into_iter().flatten().flatten() {
            let device = Path::new("/dev").join(entry.file_name());
            if fs::read_to_string(entry.path().join("name")).is_ok_and(|text| text.trim() == name) && device.exists() {
                return Ok(device);
            }
        }
        let mut event = [0; 4096];
        match rustix::net::recv(&events, &mut event, RecvFlags::empty()) {
            // An overrun means that events were lost, and checking again is the right response to that too.
            Ok(_) | Err(rustix::io::Errno::NOBUFS | rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error).context("waiting for the port"),
        }
    }
}

fn device_events() -> rustix::io::Result<OwnedFd> {
    let (family, kind) = (AddressFamily::NETLINK, SocketType::RAW);
    let socket = rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, Some(netlink::KOBJECT_UEVENT))?;
    rustix::net::bind(&socket, &netlink::SocketAddrNetlink::new(0, KERNEL_EVENTS))?;
    Ok(socket)
}

/// The open port of the agent.
pub struct Port {
    file: File,
    decoder: Decoder,
    ready: VecDeque<Frame>,
    buffer: Vec<u8>,
    sender: Sender,
}

enum Item {
    Bytes(Vec<u8>),
    /// A request to report when everything queued before it was taken by the host.
    Flush(mpsc::Sender<()>),
}

/// A sender queues frames in order, from any thread. It never waits: the credit of the streams bounds the queue.
#[derive(Clone)]
pub struct Sender {
    items: mpsc::Sender<Item>,
}

impl Sender {
    /// Queues a frame.
    pub fn send(&self, frame: &Frame) {
        // The writer ends only when the port is broken, which the reader reports.
        let _ = self.items.send(Item::Bytes(frame.encode()));
    }

    /// Waits until everything in the queue has been taken.
    pub fn flush(&self) {
        let (done, wait) = mpsc::channel();
        if self.items.send(Item::Flush(done)).is_ok() {
            let _ = wait.recv();
        }
    }
}

impl Port {
    /// Opens the port and starts its writer.
    pub fn open(device: &Path) -> Result<Self> {
        let file = File::options().read(true).write(true).open(device);
        let file = file.with_context(|| format!("opening {}", device.display()))?;
        let mut out = file.try_clone()?;
        let (items, queue) = mpsc::channel();
        std::thread::Builder::new().name("port-writer".into()).spawn(move || {
            for item in queue {
                match item {
                    // A write waits until a host end is there and takes the bytes.
                    Item::Bytes(bytes) => {
                        if let Err(error) = out.write_all(&bytes) {
                            eprintln!("weft-agent: the port cannot be written: {error}");
                            return;
                        }
                    }
                    Item::Flush(done) => drop(done.send(())),
                }
            }
        })?;
        Ok(Self {
            file,
            decoder: Decoder::default(),
            ready: VecDeque::new(),
            buffer: vec![0; READ_LEN],
            sender: Sender { items },
        })
    }

    /// Returns a sender for the port.
    pub fn sender(&self) -> Sender {
        self.sender.clone()
    }

    /// Returns the next frame; `None` when there is no host end.
    pub fn receive(&mut self) -> Result<Option<Frame>> {
        loop {
            if let Some(frame) = self.ready.pop_front() {
                return Ok(Some(frame));
            }
            let len = match self.file.read(&mut self.buffer) {
                Ok(0) => return Ok(None),
                Ok(len) => len,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error).context("reading the port"),
            };
            // Bytes that are not a frame come from a host end that left in the middle of one.
            self.decoder
                .feed(&self.buffer[..len], |frame| self.ready.extend(frame.ok()));
        }
    }

    /// Waits for a host end. Reading does not wait for one, but writing does: an end mark between two frames has no
    /// meaning and is taken when a host end is there.
    pub fn wait_host(&mut self) -> Result<()> {
        let _ = self.sender.items.send(Item::Bytes(vec![DELIMITER]));
        self.sender.flush();
        Ok(())
    }
}
