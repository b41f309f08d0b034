//! Losing outgoing packets on purpose, for tests: the reference's `packet_loss` parameters (section 11). Nothing else looks
//! at packets here.

use super::{Counter, Engine, Peers};
use crate::wire::{HEAD_LEN, MARK, PacketType};

/// Which packets are lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lost {
    /// All (`packet_loss`).
    Any,
    /// Those of a type (`tiny_packet_loss`, …).
    Type(PacketType),
    /// Connection requests (`connreq_packet_loss`).
    ConnectRequest,
    /// Connection replies (`connrep_packet_loss`).
    ConnectReply,
}

impl Lost {
    /// What the reference's parameter `<name>_packet_loss` means; `packet` is the one without a name before it.
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "packet" => Self::Any,
            "tiny" => Self::Type(PacketType::Tiny),
            "small" => Self::Type(PacketType::Small),
            "medium_frag" => Self::Type(PacketType::Medium),
            "rndv" => Self::Type(PacketType::Rndv),
            "pull" => Self::Type(PacketType::Pull),
            "pull_reply" => Self::Type(PacketType::PullReply),
            "notify" => Self::Type(PacketType::Notify),
            "connreq" => Self::ConnectRequest,
            "connrep" => Self::ConnectReply,
            "liback" => Self::Type(PacketType::Truc),
            "nack_lib" => Self::Type(PacketType::NackLib),
            "nack_mcp" => Self::Type(PacketType::NackMcp),
            _ => return None,
        })
    }
}

/// One parameter.
#[derive(Clone, Copy, Debug)]
pub(super) struct Loss {
    what: Lost,
    every: u32,
    /// Packets up to and with the next one that is lost.
    left: u32,
    random: u32,
}

impl Loss {
    fn new(what: Lost, every: u32, seed: u32) -> Self {
        let random = seed | 1;
        let mut loss = Self {
            what,
            every,
            left: 0,
            random,
        };
        loss.left = loss.distance();
        loss
    }

    /// From one lost packet to the next: 1 to 2 `every` − 1, `every` on average. At a fixed distance a peer that repeats a round
    /// of as many packets would lose the same one each time.
    fn distance(&mut self) -> u32 {
        // Xorshift (Marsaglia 2003).
        self.random ^= self.random << 13;
        self.random ^= self.random >> 17;
        self.random ^= self.random << 5;
        let span = u64::from(self.every) * 2 - 1;
        ((u64::from(self.random) % span) as u32).saturating_add(1)
    }

    /// Whether this packet is the one.
    fn hits(&mut self) -> bool {
        self.left -= 1;
        let hit = self.left == 0;
        if hit {
            self.left = self.distance();
        }
        hit
    }
}

/// Where CONNECT says whether it is a reply.
const IS_REPLY: usize = HEAD_LEN + 26;

impl<P: Peers> Engine<P> {
    /// Loses one of `every` outgoing packets of those named on average, on purpose, at distances that the endpoint's
    /// session decides; 0: none any more.
    pub fn set_packet_loss(&mut self, what: Lost, every: u32) {
        self.losses.retain(|loss| loss.what != what);
        if every > 0 {
            self.losses.push(Loss::new(what, every, self.config.session));
        }
    }

    /// Whether the frame that was just written is to be lost.
    #[cold]
    pub(super) fn loses(&mut self, frame: &[u8]) -> bool {
        let kind = frame.get(HEAD_LEN).and_then(|code| PacketType::from_code(code & !MARK));
        let is_reply = kind == Some(PacketType::Connect) && frame.get(IS_REPLY).is_some_and(|reply| *reply != 0);
        let mut lost = false;
        for loss in &mut self.losses {
            let named = match loss.what {
                Lost::Any => true,
                Lost::Type(named) => kind == Some(named),
                Lost::ConnectRequest => kind == Some(PacketType::Connect) && !is_reply,
                Lost::ConnectReply => is_reply,
            };
            lost |= named && loss.hits();
        }
        if lost {
            self.counters.count(Counter::LostOnPurpose);
        }
        lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_are_as_many_as_asked_for_and_hit_no_period() {
        for every in [1, 2, 25, 1000] {
            let mut loss = Loss::new(Lost::Any, every, 7);
            let packets = every * 1000;
            let mut places = alloc::vec![0u32; every as usize];
            for packet in 0..packets {
                if loss.hits() {
                    places[(packet % every) as usize] += 1;
                }
            }
            let lost: u32 = places.iter().sum();
            assert!((900..=1100).contains(&lost), "{lost} of {packets} at 1 in {every}");
            let most = places.iter().max().copied();
            assert!(
                every < 25 || most < Some(120),
                "one place of {every} was hit {most:?} times"
            );
        }
    }
}
