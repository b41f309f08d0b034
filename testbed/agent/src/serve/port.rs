//! The virtio-serial port: finding it, frames in, frames out, and waiting for a host end. It knows no commands.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::mpsc;

use anyhow::{Context, Result};
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, netlink};
use weft_agent::frame::{DELIMITER, Decoder, Frame};

/// Bytes taken from the port at once.
const READ_LEN: usize = 64 * 1024;

/// The multicast group of the kernel's own device events.
const KERNEL_EVENTS: u32 = 1;

/// The device of the virtio port called `name`; waits until the kernel has it.
pub fn find(name: &str) -> Result<PathBuf> {
    // Listening starts before the first look, so that no event is missed between a look and the next wait.
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
            // An overrun means events were lost: looking again is the answer to that too.
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

/// The open port.
pub struct Port {
    file: File,
    decoder: Decoder,
    ready: VecDeque<Frame>,
    buffer: Vec<u8>,
    sender: Sender,
}

enum Item {
    Bytes(Vec<u8>),
    /// Answered when everything before it was taken by the host.
    Flush(mpsc::Sender<()>),
}

/// Sends frames, from any thread, in order. Never waits: what is queued is bounded by the credit of the streams.
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

    /// Waits until all that was queued has been taken.
    pub fn flush(&self) {
        let (done, wait) = mpsc::channel();
        if self.items.send(Item::Flush(done)).is_ok() {
            let _ = wait.recv();
        }
    }
}

impl Port {
    /// Opens the port.
    pub fn open(device: &Path) -> Result<Self> {
        let file = File::options().read(true).write(true).open(device);
        let file = file.with_context(|| format!("opening {}", device.display()))?;
        let mut out = file.try_clone()?;
        let (items, queue) = mpsc::channel();
        std::thread::Builder::new().name("port-writer".into()).spawn(move || {
            for item in queue {
                match item {
                    // A write waits until a host end is there and takes it.
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

    /// A way to send.
    pub fn sender(&self) -> Sender {
        self.sender.clone()
    }

    /// The next frame; `None` when there is no host end.
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
            // Bytes that are no frame come from a host end that left in the middle of one.
            self.decoder
                .feed(&self.buffer[..len], |frame| self.ready.extend(frame.ok()));
        }
    }

    /// Waits for a host end. Reading does not wait for one, but writing does: one end mark between two frames says
    /// nothing and is taken when somebody is there.
    pub fn wait_host(&mut self) -> Result<()> {
        let _ = self.sender.items.send(Item::Bytes(vec![DELIMITER]));
        self.sender.flush();
        Ok(())
    }
}
