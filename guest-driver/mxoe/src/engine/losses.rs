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
    seen: u32,
}

/// Where CONNECT says whether it is a reply.
const IS_REPLY: usize = HEAD_LEN + 26;

impl<P: Peers> Engine<P> {
    /// Loses every `every`-th outgoing packet of those named, on purpose; 0: none any more.
    pub fn set_packet_loss(&mut self, what: Lost, every: u32) {
        self.losses.retain(|loss| loss.what != what);
        if every > 0 {
            self.losses.push(Loss { what, every, seen: 0 });
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
            if named {
                loss.seen += 1;
                if loss.seen >= loss.every {
                    loss.seen = 0;
                    lost = true;
                }
            }
        }
        if lost {
            self.counters.count(Counter::LostOnPurpose);
        }
        lost
    }
}
