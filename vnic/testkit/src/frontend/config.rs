//! How the guest of a test is built: feature bits, sizes, and the socket.

use std::path::PathBuf;

use crate::ring::Interrupts;
use crate::slots::Layout;

/// Feature bit: partial checksums may be handed to the device.
pub const F_CSUM: u64 = 1 << 0;
/// Feature bit: partial checksums may be handed to the driver.
pub const F_GUEST_CSUM: u64 = 1 << 1;
/// Feature bit: the device knows an MTU.
pub const F_MTU: u64 = 1 << 3;
/// Feature bit: TCP/IPv4 segments may be handed to the driver.
pub const F_GUEST_TSO4: u64 = 1 << 7;
/// Feature bit: TCP/IPv6 segments may be handed to the driver.
pub const F_GUEST_TSO6: u64 = 1 << 8;
/// Feature bit: TCP/IPv4 segments may be handed to the device.
pub const F_HOST_TSO4: u64 = 1 << 11;
/// Feature bit: TCP/IPv6 segments may be handed to the device.
pub const F_HOST_TSO6: u64 = 1 << 12;
/// Feature bit: a frame may fill several receive buffers.
pub const F_MRG_RXBUF: u64 = 1 << 15;
/// Feature bit: the guest announces itself when it was moved.
pub const F_GUEST_ANNOUNCE: u64 = 1 << 21;
/// Feature bit: several queue pairs.
pub const F_MQ: u64 = 1 << 22;
/// Feature bit: indirect descriptors.
pub const F_INDIRECT_DESC: u64 = 1 << 28;
/// Feature bit: used_event and avail_event.
pub const F_EVENT_IDX: u64 = 1 << 29;
/// Feature bit of vhost-user: protocol features are negotiated.
pub const F_PROTOCOL_FEATURES: u64 = 1 << 30;
/// Feature bit: virtio 1.
pub const F_VERSION_1: u64 = 1 << 32;
/// Feature bit: the guest is behind an IOMMU of its own, which [`Frontend::iommu`](super::Frontend::iommu) gives.
pub const F_ACCESS_PLATFORM: u64 = 1 << 33;

/// Which end of the Unix socket the frontend is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Transport {
    /// Connects to a backend that listens at the path.
    Connect(PathBuf),
    /// Listens at the path (QEMU's `server=on`).
    Listen(PathBuf),
}

/// How the guest is built.
#[derive(Debug, Clone)]
pub struct FrontendConfig {
    /// The socket.
    pub transport: Transport,
    /// Entries per ring, a power of two.
    pub ring_size: u16,
    /// Queue pairs.
    pub queue_pairs: u16,
    /// Feature bits wanted (`F_*`); VERSION_1 and PROTOCOL_FEATURES are added. Those the backend lacks are an error.
    pub features: u64,
    /// Memfds the memory is divided into.
    pub regions: usize,
    /// Bytes per transmit buffer, header included.
    pub tx_buffer_len: usize,
    /// Bytes per receive buffer, header included.
    pub rx_buffer_len: usize,
    /// Buffers per ring that are used in turn. Up to the ring's slots (0, say) each slot keeps its buffer for ever: the
    /// fastest, but then everything stays in the caches. Real drivers take another buffer for each frame.
    pub buffer_pool: usize,
    /// How transmit buffers are cut into descriptors.
    pub tx_layout: Layout,
    /// How receive buffers are cut into descriptors.
    pub rx_layout: Layout,
    /// Whether receive calls are wanted.
    pub rx_interrupts: Interrupts,
    /// Whether transmit calls are wanted.
    pub tx_interrupts: Interrupts,
    /// Regions are added one by one with ADD_MEM_REG (as QEMU and DPDK do) instead of SET_MEM_TABLE.
    pub memory_slots: bool,
    /// Every session message of the start waits for the backend's acknowledgement, as QEMU does.
    pub acknowledged: bool,
    /// Bytes of guest memory left over for the test's own use.
    pub spare_memory: usize,
}

impl FrontendConfig {
    /// Ring 256, one queue pair, mergeable buffers, EVENT_IDX and indirect descriptors, buffers of 2 KiB, polling.
    pub fn new(transport: Transport) -> Self {
        FrontendConfig {
            transport,
            ring_size: 256,
            queue_pairs: 1,
            features: F_MRG_RXBUF | F_EVENT_IDX | F_INDIRECT_DESC,
            regions: 1,
            tx_buffer_len: 2048,
            rx_buffer_len: 2048,
            buffer_pool: 0,
            tx_layout: Layout::Single,
            rx_layout: Layout::Single,
            rx_interrupts: Interrupts::Never,
            tx_interrupts: Interrupts::Never,
            memory_slots: false,
            acknowledged: true,
            spare_memory: 1 << 20,
        }
    }

    /// Whether the guest is behind an IOMMU of its own.
    pub const fn has_iommu(&self) -> bool {
        self.features & F_ACCESS_PLATFORM != 0
    }

    /// `new` for a backend that listens at `path`.
    pub fn connect(path: impl Into<PathBuf>) -> Self {
        Self::new(Transport::Connect(path.into()))
    }
}
