//! A switch that is a cable between two cards: what comes in at one of its two ports leaves by the other.

use ether::{ETHERNET_HEADER_LEN, Time};

use super::table::SlotIndex;
use super::{Decision, DropReason, Forward, PairKey, Switch, check};
use crate::ports::PortId;

impl Switch {
    /// Makes the switch a cable, before ports are added: each frame that comes in at one of two ports leaves by the other one as it is,
    /// whatever its addresses are. Nothing is learned, and VLANs, spanning tree, aggregates and snooping are not for it. Where there
    /// is no other port, or it has no carrier, frames are dropped ([`DropReason::NoWay`]).
    pub fn set_cable(&mut self) {
        self.transparency.is_cable = true;
        self.generation += 1;
    }

    /// Decides about a frame on a cable, and remembers that as any decision about two stations.
    #[inline(never)]
    pub(super) fn forward_through(&mut self, ingress: PortId, header: &[u8], bytes: u64) -> Forward {
        let is_open = self.ports[usize::from(ingress.0)].open;
        let far = match check(is_open, header) {
            // Addresses are of no concern to a cable.
            Ok(_) | Err(DropReason::InvalidSource | DropReason::ReservedAddress) => self.far_port(ingress),
            Err(reason) => Err(reason),
        };
        let (out, forward) = match far {
            Ok(out) => (out, Forward::One(self.ports[usize::from(out.0)].egress)),
            Err(reason) => {
                self.last.dropped = Some(reason);
                self.ports[usize::from(ingress.0)].counters.dropped[reason as usize] += 1;
                return Forward::Drop(reason);
            }
        };
        if let Some(header) = header.first_chunk::<ETHERNET_HEADER_LEN>() {
            let key = PairKey::new(header);
            self.ports[usize::from(ingress.0)].decisions[key.place()] = Decision {
                key,
                src_slot: SlotIndex::NONE,
                forward,
                out,
                generation: self.generation,
                valid_until: Time::MAX,
            };
        }
        let out = &mut self.ports[usize::from(out.0)].counters;
        out.out_frames += 1;
        out.out_bytes += bytes;
        forward
    }

    /// The other end of the cable.
    fn far_port(&self, ingress: PortId) -> Result<PortId, DropReason> {
        let other = self.ports().find(|port| *port != ingress);
        other.filter(|port| self.open.contains(*port)).ok_or(DropReason::NoWay)
    }
}
