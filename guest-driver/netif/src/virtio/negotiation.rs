//! The beginning of a device (virtio 1.2 section 3.1): reset, features, and what it says of itself.

use virtio_bindings::{
    virtio_config::{VIRTIO_F_ACCESS_PLATFORM, VIRTIO_F_VERSION_1},
    virtio_net,
    virtio_ring::VIRTIO_RING_F_INDIRECT_DESC,
};

use super::{
    CardAddress, CardFacts, PairLayout, control,
    registers::{Common, Network, Registers, status},
};

/// At most this many queue pairs are used: one for the owner, and one for each endpoint of an interface.
pub const PAIRS_MAX: u16 = 33;
/// The MTU of cards that state none.
pub(super) const MTU_DEFAULT: usize = 1500;
/// The least that IPv4 allows, and so the least that is believed.
const MTU_MIN: u16 = 68;
/// The link is up.
pub(super) const LINK_UP: u16 = 1;

const fn bit(number: u32) -> u64 {
    1 << number
}

const VERSION_1: u64 = bit(VIRTIO_F_VERSION_1);
const ACCESS_PLATFORM: u64 = bit(VIRTIO_F_ACCESS_PLATFORM);
const MAC: u64 = bit(virtio_net::VIRTIO_NET_F_MAC);
pub(super) const MTU: u64 = bit(virtio_net::VIRTIO_NET_F_MTU);
pub(super) const STATUS: u64 = bit(virtio_net::VIRTIO_NET_F_STATUS);
const CTRL_VQ: u64 = bit(virtio_net::VIRTIO_NET_F_CTRL_VQ);
const MQ: u64 = bit(virtio_net::VIRTIO_NET_F_MQ);
/// Chains of descriptors in tables of their own.
pub(super) const INDIRECT: u64 = bit(VIRTIO_RING_F_INDIRECT_DESC);
/// What a port understands. Frames come in one buffer each, without merging: a buffer is as long as the longest
/// frame, and a port lends a frame as one slice.
pub(super) const OF_PORTS: u64 = VERSION_1 | ACCESS_PLATFORM | MAC | MTU | STATUS | CTRL_VQ | MQ;

/// Reads what a card says of itself.
pub(super) fn facts<R: Registers>(address: CardAddress, network: &Network<R>, features: u64) -> CardFacts {
    let mtu = network.mtu();
    CardFacts {
        address,
        mac: network.mac(),
        mtu: if features & MTU != 0 && mtu >= MTU_MIN {
            mtu.into()
        } else {
            MTU_DEFAULT
        },
        up: features & STATUS == 0 || network.status() & LINK_UP != 0,
    }
}

/// What a card understands whose chains a program forms.
pub(super) const OF_CHAINS: u64 = VERSION_1 | ACCESS_PLATFORM | MAC | MTU | INDIRECT;

/// What a driver wants of a device.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    pub(super) address: CardAddress,
    /// Queue pairs at most.
    pub(super) pairs: u16,
    pub(super) behind_iommu: bool,
    /// Features that the driver understands.
    pub(super) understood: u64,
}

/// The device after its negotiation: the queues can be started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Negotiated {
    pub(super) facts: CardFacts,
    /// Queue pairs that are used.
    pub(super) pairs: u16,
    /// The number of the control queue, where several pairs are.
    pub(super) control: Option<u16>,
    /// Entries of the shortest queue.
    pub(super) ring_size: u16,
    pub(super) features: u64,
}

/// Resets the device and negotiates; returns what is wrong with it.
pub(super) fn negotiate<C: Registers, N: Registers>(
    common: &Common<C>,
    network: &Network<N>,
    wanted: Wanted,
) -> Result<Negotiated, &'static str> {
    let Wanted {
        address,
        pairs: pairs_wanted,
        behind_iommu,
        understood,
    } = wanted;
    common.set_status(0);
    // A device that takes a while to reset says so here; ours answer at once.
    if common.status() != 0 {
        return Err("it does not let itself be reset");
    }
    common.set_status(status::ACKNOWLEDGE | status::DRIVER);
    // A device that is to have several pairs may wait until all of them are started; newer QEMU does behind an IOMMU. So one
    // pair is asked for by not knowing of several.
    let of_several = if pairs_wanted == 1 { MQ | CTRL_VQ } else { 0 };
    let features = common.features() & understood & !of_several;
    // A card that goes through an IOMMU says so; otherwise there is none.
    if !behind_iommu && features & ACCESS_PLATFORM != 0 {
        return Err("it is behind an IOMMU, where only vfio reaches it");
    }
    if features & VERSION_1 == 0 {
        return Err("it does not speak virtio 1.0");
    }
    if features & MAC == 0 {
        return Err("it states no address");
    }
    if behind_iommu && features & ACCESS_PLATFORM == 0 {
        return Err("it goes past the IOMMU (QEMU: iommu_platform=on; its back end needs VIRTIO_F_ACCESS_PLATFORM)");
    }
    if understood & INDIRECT & !features != 0 {
        return Err("it does not take chains in tables (VIRTIO_F_INDIRECT_DESC)");
    }
    common.accept(features);
    common.set_status(status::ACKNOWLEDGE | status::DRIVER | status::FEATURES_OK);
    if common.status() & status::FEATURES_OK == 0 {
        return Err("it does not accept the features that it has");
    }
    let several = features & (MQ | CTRL_VQ) == MQ | CTRL_VQ;
    let there = if several { network.queue_pairs() } else { 1 };
    if there == 0 || several && u32::from(there) * 2 + 1 > u32::from(common.queues()) {
        return Err("it states queue pairs that it does not have");
    }
    let pairs = there.min(pairs_wanted).min(PAIRS_MAX);
    let queues = (0..2 * pairs).map(|queue| common.queue_size_max(queue));
    let ring_size = queues.min().unwrap_or(0);
    let facts = facts(address, network, features);
    // Behind the queues of all pairs, used or not.
    let control = (pairs > 1).then_some(2 * there);
    let control_size = control.map_or(control::SIZE, |queue| common.queue_size_max(queue));
    if PairLayout::new(facts.mtu, ring_size.max(1), true).slots == 0 || ring_size == 0 || control_size < control::SIZE {
        return Err("its queues are too short");
    }
    if facts.mac.is_multicast() {
        return Err("its address is one of a group");
    }
    Ok(Negotiated {
        facts,
        pairs,
        control,
        ring_size,
        features,
    })
}
