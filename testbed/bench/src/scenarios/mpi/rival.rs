//! The rivals: transports of Open MPI, and the one program without MPI.

use super::frames::Protocol;

/// A rival is what carries the messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rival {
    /// The provider `mx` under Open MPI.
    Mx,
    /// The provider without its helper thread.
    MxWithoutHelper,
    /// Open MPI's own TCP.
    Tcp,
    /// Open MPI's own TCP, without segmentation and receive offloads of the interface.
    TcpPlain,
    /// The provider `tcp` of libfabric under Open MPI.
    LibfabricTcp,
    /// The provider `tcp` without segmentation and receive offloads of the interface.
    LibfabricTcpPlain,
    /// Open MPI's own TCP between hosts, its shared memory within them.
    TcpAndMemory,
    /// Open MPI's own TCP under `esp-run`, so that it is ESP that carries it.
    Esp,
    /// ESP between hosts, Open MPI's shared memory within them.
    EspAndMemory,
    /// Open MPI's own shared memory.
    Memory,
    /// Two endpoints of `omx` without MPI.
    OmxPerf,
}

/// Arguments of `mpirun` for a provider of libfabric.
const LIBFABRIC: [&str; 7] = ["--mca", "pml", "cm", "--mca", "mtl", "ofi", "--mca"];
/// Arguments of `mpirun` for Open MPI's own transports.
const OWN: [&str; 5] = ["--mca", "pml", "ob1", "--mca", "btl"];

impl Rival {
    /// Returns the name used in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mx => "mx",
            Self::MxWithoutHelper => "mx, OMX_PROGRESS=0",
            Self::Tcp => "TCP",
            Self::TcpPlain => "TCP, no offloads",
            Self::LibfabricTcp => "libfabric's tcp",
            Self::LibfabricTcpPlain => "libfabric's tcp, no offloads",
            Self::TcpAndMemory => "TCP and shared memory",
            Self::Esp => "ESP",
            Self::EspAndMemory => "ESP and shared memory",
            Self::Memory => "shared memory",
            Self::OmxPerf => "omx_perf",
        }
    }

    /// Returns whether messages go through the provider.
    pub const fn is_mx(self) -> bool {
        matches!(self, Self::Mx | Self::MxWithoutHelper)
    }

    /// Returns what frames of Open MPI's own TCP transport are between the hosts, where messages go over it.
    pub const fn frames_of(self) -> Option<Protocol> {
        match self {
            Self::Tcp | Self::TcpPlain | Self::TcpAndMemory => Some(Protocol::Tcp),
            Self::Esp | Self::EspAndMemory => Some(Protocol::Esp),
            _ => None,
        }
    }

    /// Returns whether the interfaces' offloads are on.
    pub const fn has_offloads(self) -> bool {
        !matches!(self, Self::TcpPlain | Self::LibfabricTcpPlain)
    }

    /// Returns the arguments with which `mpirun` chooses the transport.
    pub fn transport(self) -> Vec<&'static str> {
        let provider = |name| [&LIBFABRIC[..], &["mtl_ofi_provider_include", name]].concat();
        let own = |names| [&OWN[..], &[names]].concat();
        match self {
            Self::Mx | Self::MxWithoutHelper => provider("mx"),
            Self::LibfabricTcp | Self::LibfabricTcpPlain => provider("tcp;ofi_rxm"),
            Self::Tcp | Self::TcpPlain | Self::Esp => own("self,tcp"),
            Self::TcpAndMemory | Self::EspAndMemory => own("self,vader,tcp"),
            Self::Memory => own("self,vader"),
            Self::OmxPerf => Vec::new(),
        }
    }
}
