//! Counters and state of a port as plain reports.

use std::path::Path;

use fabric::{Link, LinkDrop};
use firmware::multicast::TagRefusal;
use virtio_bindings::{virtio_config, virtio_net, virtio_ring};

use super::card_settings::queue_stats;
use crate::dataplane::DataPlane;
use crate::dataplane::card::Card;
use crate::dataplane::forwarding::loopback;
use vnicd_protocol::drops::{RxDrop, TxDrop};
use vnicd_protocol::{
    AdaptiveStats, Counts, GroupStats, InterruptStats, LinkStats, PacketsPerInterrupt, PortInfo, PortStats, SocketMode,
    TimerStats, TrafficStats, TxInterruptStats, counts,
};

/// The names of the feature bits that a port may have.
const FEATURE_NAMES: [(u32, &str); 17] = [
    (virtio_net::VIRTIO_NET_F_CSUM, "CSUM"),
    (virtio_net::VIRTIO_NET_F_GUEST_CSUM, "GUEST_CSUM"),
    (virtio_net::VIRTIO_NET_F_MTU, "MTU"),
    (virtio_net::VIRTIO_NET_F_GUEST_TSO4, "GUEST_TSO4"),
    (virtio_net::VIRTIO_NET_F_GUEST_TSO6, "GUEST_TSO6"),
    (virtio_net::VIRTIO_NET_F_GUEST_ECN, "GUEST_ECN"),
    (virtio_net::VIRTIO_NET_F_HOST_TSO4, "HOST_TSO4"),
    (virtio_net::VIRTIO_NET_F_HOST_TSO6, "HOST_TSO6"),
    (virtio_net::VIRTIO_NET_F_HOST_ECN, "HOST_ECN"),
    (virtio_net::VIRTIO_NET_F_MRG_RXBUF, "MRG_RXBUF"),
    (virtio_net::VIRTIO_NET_F_GUEST_ANNOUNCE, "GUEST_ANNOUNCE"),
    (virtio_net::VIRTIO_NET_F_MQ, "MQ"),
    (virtio_ring::VIRTIO_RING_F_INDIRECT_DESC, "INDIRECT_DESC"),
    (virtio_ring::VIRTIO_RING_F_EVENT_IDX, "EVENT_IDX"),
    (30, "PROTOCOL_FEATURES"),
    (virtio_config::VIRTIO_F_VERSION_1, "VERSION_1"),
    (virtio_config::VIRTIO_F_ACCESS_PLATFORM, "ACCESS_PLATFORM"),
];

/// The address that was heard last at the card's switch: the one that its guest uses now.
fn address_in_use(card: &Card, switch: &fabric::Switch, now: ether::Time) -> Option<ether::MacAddr> {
    let heard = switch.table(now).filter(|entry| entry.port == card.attachment().port);
    heard.min_by_key(|entry| entry.age_ns).map(|entry| entry.mac)
}

impl DataPlane {
    pub(in crate::dataplane) fn info(&self, index: usize, now: ether::Time) -> PortInfo {
        let port = &self.cards()[index];
        let switch = &self.forwarding.switches[port.attachment().switch];
        // A port of a test has no socket.
        let (socket, mode) = port.settings().socket().unwrap_or((Path::new(""), SocketMode::Listen));
        PortInfo {
            name: port.settings().name.clone(),
            switch: switch.name.clone(),
            mac: port.settings().mac,
            mac_in_use: address_in_use(port, &switch.switch, now),
            socket: socket.display().to_string(),
            mode,
            connected: port.is_connected(),
            link_up: port.is_cable_whole(),
            rings_started: port.rings_ready(),
            queue_pairs: port.settings().queue_pairs,
            mtu: port.settings().mtu,
            features: FEATURE_NAMES
                .iter()
                .filter(|(bit, _)| port.features() & 1 << bit != 0)
                .map(|(_, name)| (*name).to_owned())
                .collect(),
            failed: port.failed().map(str::to_owned),
        }
    }

    pub(in crate::dataplane) fn stats(&self, index: usize) -> PortStats {
        let port = &self.cards()[index];
        let counters = port.counters();
        // The sum over all queues exists.
        let all = port.firmware().counters(None).unwrap_or_default();
        let rx = all.total();
        let at = port.attachment();
        let switch = self.forwarding.switches[at.switch].switch.counters(at.port);
        let drops = |names: &mut dyn Iterator<Item = &'static str>, counts: &[u64]| -> Counts {
            names.map(str::to_owned).zip(counts.iter().copied()).collect()
        };
        PortStats {
            name: port.settings().name.clone(),
            rx: TrafficStats {
                frames: counters.rx_frames,
                bytes: counters.rx_bytes,
                dropped: drops(&mut RxDrop::ALL.iter().map(|reason| reason.name()), &counters.rx_drops),
            },
            tx: TrafficStats {
                frames: counters.tx_frames,
                bytes: counters.tx_bytes,
                dropped: drops(&mut TxDrop::ALL.iter().map(|reason| reason.name()), &counters.tx_drops),
            },
            interrupts: InterruptStats {
                decided: rx.decided_total(),
                suppressed: rx.suppressed,
                signalled: rx.signalled,
                by_reason: all
                    .by_reason()
                    .map(|(reason, decided, _)| (reason.to_string(), decided))
                    .collect(),
                packets_by_reason: all
                    .by_reason()
                    .map(|(reason, _, announced)| (reason.to_string(), announced))
                    .collect(),
                packets_per_interrupt: rx
                    .packets_per_interrupt
                    .iter()
                    .map(|(from, to, count)| PacketsPerInterrupt { from, to, count })
                    .collect(),
                deferred: rx.deferred,
                unannounced: rx.unannounced(),
                polled: rx.polled,
            },
            adaptive: adaptive(port),
            marked: rx.marked,
            queues: queue_stats(port),
            steering: counts(&port.firmware().steering().counters()),
            misorder: counts(&port.firmware().misorder().counters()),
            tx_interrupts: TxInterruptStats {
                decided: counters.tx_decided,
                suppressed: counters.tx_suppressed,
                signalled: counters.tx_signalled,
            },
            kicks: port.kicks(),
            copied_bytes: counters.copied_bytes,
            delivered_bytes: counters.rx_bytes,
            rule_violations: counters
                .rules
                .iter()
                .map(|(rule, count)| (rule.name().to_owned(), count))
                .collect(),
            session_violations: counters
                .session_rules
                .iter()
                .map(|(rule, count)| (rule.name().to_owned(), count))
                .collect(),
            control: control(port),
            watchdog: port.firmware().watchdog_counters(),
            host_record: counts(&counters.host_record),
            timers: TimerStats {
                armed_now: port.firmware().timers().armed() as u64,
                counters: port.firmware().timers().counters().with_one_lateness(),
            },
            groups: port
                .firmware()
                .multicast()
                .groups()
                .map(|(group, counters, members)| GroupStats {
                    group,
                    members: members.len() as u32,
                    packets: counts(counters),
                })
                .collect(),
            multicast: counts(&port.firmware().multicast().totals()),
            multicast_refused: TagRefusal::ALL
                .iter()
                .map(|&reason| {
                    (
                        reason.name().to_owned(),
                        port.firmware().multicast().refusals().of(reason),
                    )
                })
                .collect(),
            link: LinkStats {
                to_guest: link(&port.cable().to_guest),
                from_guest: link(&port.cable().from_guest),
            },
            switch: {
                let mut counts = counts(switch);
                counts.insert("dropped".to_owned(), switch.dropped_total());
                counts
            },
            copy_engine: loopback::counters(port.firmware()),
            translation: port.translation_counts(),
        }
    }
}

fn adaptive(port: &Card) -> Vec<AdaptiveStats> {
    let queues = port.firmware().queues().iter().zip(0..);
    let states = queues.filter_map(|(rx, queue)| {
        rx.adaptive().map(|state| AdaptiveStats {
            queue,
            longest_ns: rx.coalescing().delay_ns,
            state,
        })
    });
    states.collect()
}

fn control(port: &Card) -> Counts {
    let counters = port.firmware().control_counters();
    let mut counts = counts(counters);
    for code in firmware::control::RefusalCode::ALL {
        counts.insert(
            format!("refused_{}", code.name().replace('-', "_")),
            counters.refused_for(code),
        );
    }
    counts
}

fn link(link: &Link) -> Counts {
    let counters = link.counters();
    let mut counts = counts(counters);
    for reason in LinkDrop::ALL {
        counts.insert(
            format!("dropped_{}", reason.name().replace('-', "_")),
            counters.dropped(reason),
        );
    }
    counts
}
