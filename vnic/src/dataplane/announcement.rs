//! The announcement of a guest that was moved here: a broadcast by which switches learn where it is now.

use ether::{EtherType, MacAddr, Time};

use super::DataPlane;
use super::frames::frame_ref::FrameRef;
use super::frames::transit::Transit;
use super::route::Route;
use super::wiring::link_crossing::Hop;
use crate::memory::Piece;
use crate::offload::{NetHeader, OnWire};

/// Shortest frame without its FCS.
const LEN: usize = 60;

impl DataPlane {
    /// Sends a RARP request of `station` for its own address from the card with number `index`, over its cable. The guest itself is not
    /// asked, nor does it count the frame as sent.
    pub(crate) fn announce(&mut self, index: usize, station: MacAddr, now: Time) {
        let bytes = rarp_request(station);
        let mut rest = [Piece::EMPTY];
        let frame = FrameRef::of_bytes(&bytes, &mut rest, NetHeader::default(), Transit::from_card(index));
        let wire = OnWire {
            frames: 1,
            bytes: LEN as u64,
            longest: LEN as u32,
        };
        let forwarding = &mut self.forwarding;
        let wiring = &mut forwarding.wiring;
        wiring.capture_sent(index, &frame, &mut forwarding.segments, now);
        let card = &mut wiring.cards[index];
        let at = card.attachment();
        let link = &mut card.cable_mut().from_guest;
        if let Route::Copied(copying) = wiring.shortcuts.over_link(link, wire.longest, now) {
            wiring.cross(
                Hop::FromGuest(index),
                &frame,
                &wire,
                copying,
                &mut forwarding.segments,
                now,
            );
            return;
        }
        link.count_passed(u64::from(wire.frames), wire.bytes);
        forwarding.switch_frame(at.switch, at.port, &frame, now);
        forwarding.wiring.announce_touched(now);
    }
}

/// A RARP request (RFC 903) in which `station` asks for its own protocol address.
fn rarp_request(station: MacAddr) -> [u8; LEN] {
    /// Ethernet, IPv4, their addresses' lengths, and the operation "request reverse".
    const HEADER: [u8; 8] = [0, 1, 8, 0, 6, 4, 0, 3];
    const SENDER_AT: usize = 22;
    const TARGET_AT: usize = 32;
    let mut frame = [0; LEN];
    frame[..6].fill(0xff);
    frame[6..12].copy_from_slice(&station.0);
    frame[12..14].copy_from_slice(&EtherType::RARP.0.to_be_bytes());
    frame[14..22].copy_from_slice(&HEADER);
    for at in [SENDER_AT, TARGET_AT] {
        frame[at..at + 6].copy_from_slice(&station.0);
    }
    frame
}
