//! Fault injection: outgoing packets are lost on purpose, for tests, by the reference's `packet_loss` parameters
//! (section 11).

use alloc::{format, string::String, vec::Vec};

use super::{Counter, Engine, Peers};
use crate::wire::{HEAD_LEN, MARK, PacketType};

/// Which packets a parameter loses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lost {
    /// All packets (`packet_loss`).
    Any,
    /// Packets of one type (`tiny_packet_loss`, …).
    Type(PacketType),
    /// Connection requests (`connreq_packet_loss`).
    ConnectRequest,
    /// Connection replies (`connrep_packet_loss`).
    ConnectReply,
}

/// Every parameter under the reference's name without `_packet_loss`; `packet` stands for the parameter `packet_loss`.
const NAMED: [(&str, Lost); 14] = [
    ("packet", Lost::Any),
    ("tiny", Lost::Type(PacketType::Tiny)),
    ("small", Lost::Type(PacketType::Small)),
    ("medium_frag", Lost::Type(PacketType::Medium)),
    ("rndv", Lost::Type(PacketType::Rndv)),
    ("pull", Lost::Type(PacketType::Pull)),
    ("pull_reply", Lost::Type(PacketType::PullReply)),
    ("notify", Lost::Type(PacketType::Notify)),
    ("connreq", Lost::ConnectRequest),
    ("connrep", Lost::ConnectReply),
    ("liback", Lost::Type(PacketType::Truc)),
    ("nack_lib", Lost::Type(PacketType::NackLib)),
    ("nack_mcp", Lost::Type(PacketType::NackMcp)),
    ("raw", Lost::Type(PacketType::Raw)),
];

impl Lost {
    /// Finds what the reference's parameter `<name>_packet_loss` loses.
    pub fn named(name: &str) -> Option<Self> {
        NAMED.iter().find(|(known, _)| *known == name).map(|(_, lost)| *lost)
    }

    /// Parses one word of a list such as `tiny=10,pull_reply=1000`: which packets, and how many to one that is lost.
    fn parameter(word: &str) -> Option<(Self, u32)> {
        let (name, every) = word.split_once('=')?;
        Some((Self::named(name.trim())?, every.trim().parse().ok()?))
    }
}

/// Reads a list such as `tiny=10,pull_reply=1000`: the reference's parameters without `_packet_loss`, and `packet` for
/// all packets. The second part of the answer is a sentence about words that are no parameters.
pub fn parse_packet_loss(text: &str) -> (Vec<(Lost, u32)>, Option<String>) {
    let (mut faults, mut unknown) = (Vec::new(), Vec::new());
    for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
        match Lost::parameter(word) {
            Some(loss) => faults.push(loss),
            None => unknown.push(word),
        }
    }
    let sentence = (!unknown.is_empty()).then(|| {
        let names = NAMED.map(|(name, _)| name).join(", ");
        let unknown = unknown.join(",");
        format!("no packets are lost for {unknown:?}: it has to be one of {names}, each with `=` and a number")
    });
    (faults, sentence)
}

/// One parameter and where it stands between two lost packets.
#[derive(Clone, Copy, Debug)]
struct Loss {
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

    /// Draws the distance from one lost packet to the next: 1 to 2 `every` − 1, `every` on average. At a fixed
    /// distance, a peer that repeats a round of as many packets would lose the one in the same place each time.
    fn distance(&mut self) -> u32 {
        // Xorshift (Marsaglia 2003).
        self.random ^= self.random << 13;
        self.random ^= self.random >> 17;
        self.random ^= self.random << 5;
        let span = u64::from(self.every) * 2 - 1;
        ((u64::from(self.random) % span) as u32).saturating_add(1)
    }

    /// Counts a packet, and says whether it is to be lost.
    fn hits(&mut self) -> bool {
        self.left -= 1;
        let hit = self.left == 0;
        if hit {
            self.left = self.distance();
        }
        hit
    }
}

/// A CONNECT says at this place whether it is a reply.
const IS_REPLY: usize = HEAD_LEN + 26;

/// The packet-loss parameters of an engine or an authority.
#[derive(Clone, Debug, Default)]
pub struct FaultInjection {
    parameters: Vec<Loss>,
}

impl FaultInjection {
    /// Loses one of `every` packets of the named kind on average, at distances that `seed` decides; 0 loses none any
    /// more.
    pub fn set(&mut self, what: Lost, every: u32, seed: u32) {
        self.parameters.retain(|loss| loss.what != what);
        if every > 0 {
            self.parameters.push(Loss::new(what, every, seed));
        }
    }

    /// Whether no packet is to be lost.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.parameters.is_empty()
    }

    /// Whether this frame, the next to be sent, is to be lost.
    #[cold]
    pub fn hit(&mut self, frame: &[u8]) -> bool {
        let kind = frame.get(HEAD_LEN).and_then(|code| PacketType::from_code(code & !MARK));
        let is_reply = kind == Some(PacketType::Connect) && frame.get(IS_REPLY).is_some_and(|reply| *reply != 0);
        let mut lost = false;
        for loss in &mut self.parameters {
            let named = match loss.what {
                Lost::Any => true,
                Lost::Type(named) => kind == Some(named),
                Lost::ConnectRequest => kind == Some(PacketType::Connect) && !is_reply,
                Lost::ConnectReply => is_reply,
            };
            lost |= named && loss.hits();
        }
        lost
    }
}

impl<P: Peers> Engine<P> {
    /// Loses one of `every` outgoing packets of the named kind on average, at distances that the endpoint's session
    /// decides; 0 loses none any more.
    pub fn set_packet_loss(&mut self, what: Lost, every: u32) {
        self.faults.set(what, every, self.config.session);
    }

    /// Whether the frame that was just written is to be lost. A lost frame is counted.
    #[cold]
    pub(super) fn loses(&mut self, frame: &[u8]) -> bool {
        let lost = self.faults.hit(frame);
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
    fn packets_to_lose_are_named_as_the_reference_names_them() {
        let (faults, sentence) = parse_packet_loss("tiny=10, connreq=2,packet=1000,raw = 3,");
        assert_eq!(
            faults,
            [
                (Lost::Type(PacketType::Tiny), 10),
                (Lost::ConnectRequest, 2),
                (Lost::Any, 1000),
                (Lost::Type(PacketType::Raw), 3),
            ]
        );
        assert_eq!(sentence, None);
    }

    #[test]
    fn words_that_lose_no_packets_are_named_in_a_sentence_and_the_others_count() {
        let (faults, sentence) = parse_packet_loss("pull_reply=x,tiny=10,other=3,nack_lib");
        assert_eq!(faults, [(Lost::Type(PacketType::Tiny), 10)]);
        let sentence = sentence.unwrap();
        assert!(sentence.contains("\"pull_reply=x,other=3,nack_lib\""), "{sentence}");
        assert!(
            sentence.contains("tiny, small") && !sentence.contains('\n'),
            "{sentence}"
        );
    }

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
