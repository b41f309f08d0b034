//! Which frames a measurement went over: counted where they come in at the host that measures. Whatever is sent by either protocol is
//! acknowledged by frames of the same one, so the frames of one direction tell.

use anyhow::{Result, ensure};
use ether::EtherType;
use netif::{FrameCounter, Instruction, Interface};

use crate::scenarios::openmx::HERE;

/// Ports that the programs use which are measured; what starts them uses others.
pub const PORTS: std::ops::Range<u16> = 20_000..21_000;

const IPV4: EtherType = EtherType(0x0800);
const TCP: u32 = 6;

/// Frames of the other rival at most: the end of its connection may come when the next turn has begun.
const LATE_MAX: u64 = 10;

/// What frames carry the bytes of stream sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// Frames of ESP.
    Esp,
    /// Segments of TCP.
    Tcp,
}

/// The kernel's counts of frames.
pub struct Frames {
    esp: FrameCounter,
    tcp: FrameCounter,
}

/// What came since an earlier time.
#[derive(Clone, Copy, Debug)]
pub struct Counts {
    esp: u64,
    tcp: u64,
}

/// Passes TCP segments from or to one of [`PORTS`]. Linux sends IP headers without options.
fn tcp_of_programs() -> [Instruction; 10] {
    let (first, end) = (u32::from(PORTS.start), u32::from(PORTS.end));
    [
        Instruction::load_byte(23),
        Instruction::if_equal(TCP, 0, 7),
        Instruction::load_half(34),
        Instruction::if_at_least(first, 0, 1),
        Instruction::if_at_least(end, 0, 3),
        Instruction::load_half(36),
        Instruction::if_at_least(first, 0, 2),
        Instruction::if_at_least(end, 1, 0),
        Instruction::pass(),
        Instruction::drop(),
    ]
}

impl Frames {
    /// Counts from now on.
    pub fn count() -> Result<Self> {
        let interface = Interface::find(HERE.0)?;
        Ok(Self {
            esp: FrameCounter::open(&interface, EtherType::ESP, &[Instruction::pass()])?,
            tcp: FrameCounter::open(&interface, IPV4, &tcp_of_programs())?,
        })
    }

    /// Returns what came so far.
    pub fn so_far(&mut self) -> Result<Counts> {
        Ok(Counts {
            esp: self.esp.frames()?,
            tcp: self.tcp.frames()?,
        })
    }

    /// Fails unless what came since `before` came by the protocol of the rival with this name, and was `least` frames at least.
    pub fn check(&mut self, before: Counts, protocol: Protocol, rival: &str, least: u64) -> Result<()> {
        let now = self.so_far()?;
        let (esp, tcp) = (now.esp - before.esp, now.tcp - before.tcp);
        let (right, wrong) = match protocol {
            Protocol::Esp => (esp, tcp),
            Protocol::Tcp => (tcp, esp),
        };
        ensure!(
            right >= least && wrong <= LATE_MAX,
            "{esp} frames of ESP and {tcp} segments of TCP came over the interface for {rival}, where {least} of its own belong: \
             something else was measured"
        );
        Ok(())
    }
}
