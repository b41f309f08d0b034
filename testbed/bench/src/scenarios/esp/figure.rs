//! The rivals, and the figures that are measured of them.

use testbed::{harness::Unit, mpi::imb::length_text};

use crate::scenarios::mpi::frames::Protocol;

/// A rival is what carries the bytes of stream sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rival {
    /// ESP, by a program under `esp-run`.
    Esp,
    /// The kernel's TCP with all that the interface offers.
    Tcp,
    /// The kernel's TCP without segmentation and receive offloads of the interface.
    TcpPlain,
}

impl Rival {
    /// Returns the name used in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Esp => "ESP",
            Self::Tcp => "TCP",
            Self::TcpPlain => "TCP, no offloads",
        }
    }

    /// Returns what frames its bytes are in.
    pub const fn frames_of(self) -> Protocol {
        match self {
            Self::Esp => Protocol::Esp,
            Self::Tcp | Self::TcpPlain => Protocol::Tcp,
        }
    }

    /// Returns whether the interfaces' offloads may be on. ESP has no use for them.
    pub const fn has_offloads(self) -> bool {
        !matches!(self, Self::TcpPlain)
    }
}

/// A kernel of a computation, which communicates as a well-known program does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kernel {
    /// A wavefront as in the NAS kernel LU: many small messages.
    Lu,
    /// A multi-partition as in the NAS kernel SP: faces.
    Sp,
    /// Electrons in plane waves as in Abinit: sums of 16 bytes, and transpositions.
    PlaneWave,
}

impl Kernel {
    /// Returns the name of the program and its class.
    pub const fn program(self) -> [&'static str; 2] {
        match self {
            Self::Lu => ["lu", "W"],
            Self::Sp => ["sp", "W"],
            Self::PlaneWave => ["planewave", "S"],
        }
    }
}

/// The kinds of figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Half a round trip of a message, in nanoseconds.
    Latency { bytes: u32 },
    /// The time that a call takes that sends a message, in nanoseconds.
    Send { bytes: u32 },
    /// Half a round trip whose receivers sleep when the message comes, in nanoseconds.
    Asleep { bytes: u32 },
    /// Bytes per second of a stream.
    Stream,
    /// Time of an operation of MPI, in nanoseconds.
    Operation { benchmark: &'static str, bytes: usize },
    /// Operations per second of a computation.
    Kernel(Kernel),
    /// Bytes of memory that a connection takes which has nothing to send or receive.
    IdleConnection,
}

impl Kind {
    /// Returns whether a program of MPI measures it.
    pub const fn is_of_mpi(self) -> bool {
        matches!(self, Self::Operation { .. } | Self::Kernel(_))
    }
}

/// A figure at one MTU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Figure {
    pub kind: Kind,
    pub mtu: usize,
}

impl Figure {
    /// Names the figure without the rival.
    pub fn name(self) -> String {
        match self.kind {
            Kind::Latency { bytes } => format!("half round trip, {bytes} B"),
            Kind::Send { bytes } => format!("call that sends, {bytes} B"),
            Kind::Asleep { bytes } => format!("half round trip asleep, {bytes} B"),
            Kind::Stream => format!("stream, MTU {}", self.mtu),
            Kind::Operation { benchmark, bytes } => format!("{benchmark} {}", length_text(bytes)),
            Kind::Kernel(kernel) => {
                let [program, class] = kernel.program();
                format!("{program} {class}")
            }
            Kind::IdleConnection => "idle connection of 10,000".to_owned(),
        }
    }

    /// Returns the unit of the figure.
    pub const fn unit(self) -> Unit {
        let (name, show): (_, fn(f64) -> String) = match self.kind {
            Kind::Latency { .. } | Kind::Send { .. } | Kind::Asleep { .. } | Kind::Operation { .. } => {
                ("ns", |value| format!("{:.2} µs", value / 1e3))
            }
            Kind::Stream => ("bytes/s", |value| format!("{:.2} Gbit/s", value * 8e-9)),
            Kind::Kernel(_) => ("operations/s", |value| format!("{:.0} Mop/s", value / 1e6)),
            Kind::IdleConnection => ("bytes", |value| format!("{value:.0} B")),
        };
        Unit { name, show }
    }
}
