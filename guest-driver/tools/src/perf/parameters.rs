//! The parameters that the sender tells the receiver before the first message, and the lengths that follow from them.

/// Connection key of both endpoints.
pub(super) const KEY: u32 = 0x1234_5678;
/// Match information of the parameters; with the reference, of every message.
pub(super) const MATCH_INFO: u64 = 0x1234_5678_8765_4321;
/// The match information of one service's messages is this plus the service's number. So messages that an interrupted
/// sender left behind match no receive of the next service, nor do the parameters of the next service match a receive
/// of the interrupted one.
pub(super) const SERVICE_INFO: u64 = 0x1234_5678_0000_0000;
/// The bits that [`SERVICE_INFO`] and [`MATCH_INFO`] share.
pub(super) const SERVICE_MASK: u64 = 0xffff_ffff_0000_0000;
/// Bytes of the parameters on the wire.
pub(super) const PARAMETERS_LEN: usize = 44;
/// In the byte that the reference does not use: see [`Parameters::numbered`].
const NUMBERED: u8 = 0x80;

/// The measurement that is made with each length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// Message and reply, as the reference does.
    PingPong,
    /// Many messages are in flight at once.
    Rate,
    /// Synchronous messages while the sender computes.
    Overlap,
    /// The receiver of the parameters sends messages when it is asked, to a side that computes.
    Phases,
}

/// The parameters of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Parameters {
    pub(super) iterations: u32,
    pub(super) warm_up: u32,
    /// First length in bytes.
    pub(super) first: u64,
    /// Lengths stay below this.
    pub(super) end: u64,
    pub(super) multiplier: u64,
    pub(super) increment: u64,
    /// Buffers begin at a multiple of 64 KiB.
    pub(super) aligned: bool,
    /// Replies are empty.
    pub(super) one_way: bool,
    pub(super) synchronous: bool,
    pub(super) mode: Mode,
    /// The sender takes the messages' match information from that of the receiver's first answer.
    pub(super) numbered: bool,
}

impl Parameters {
    pub(super) fn to_bytes(self) -> [u8; PARAMETERS_LEN] {
        let mut words = vec![self.iterations, self.warm_up];
        for value in [self.first, self.end, self.multiplier, self.increment] {
            words.extend([value as u32, (value >> 32) as u32]);
        }
        let mut bytes = [0; PARAMETERS_LEN];
        for (place, word) in bytes.chunks_exact_mut(4).zip(words) {
            place.copy_from_slice(&word.to_be_bytes());
        }
        bytes[40] = self.aligned.into();
        bytes[41] = self.one_way.into();
        bytes[42] = self.synchronous.into();
        // Unused by the reference, and 0 there.
        bytes[43] = self.mode as u8 | if self.numbered { NUMBERED } else { 0 };
        bytes
    }

    /// Reads parameters; `None`: of a kind that this tool does not know.
    pub(super) fn from_bytes(bytes: &[u8; PARAMETERS_LEN]) -> Option<Self> {
        let word =
            |at: usize| u32::from_be_bytes([bytes[4 * at], bytes[4 * at + 1], bytes[4 * at + 2], bytes[4 * at + 3]]);
        let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 1)) << 32;
        let modes = [Mode::PingPong, Mode::Rate, Mode::Overlap, Mode::Phases];
        let mode = modes.into_iter().find(|mode| *mode as u8 == bytes[43] & !NUMBERED)?;
        Some(Self {
            iterations: word(0),
            warm_up: word(1),
            first: long(2),
            end: long(4),
            multiplier: long(6),
            increment: long(8),
            aligned: bytes[40] != 0,
            one_way: bytes[41] != 0,
            synchronous: bytes[42] != 0,
            mode,
            numbered: bytes[43] & NUMBERED != 0,
        })
    }

    /// Returns the lengths that are measured: the next one is length × multiplier + increment, from 0 the increment or
    /// 1.
    pub(super) fn lengths(self) -> impl Iterator<Item = usize> {
        let mut next = Some(self.first);
        std::iter::from_fn(move || {
            let length = next.filter(|length| *length < self.end)?;
            let following = match length {
                0 => self.increment.max(1),
                _ => length.saturating_mul(self.multiplier).saturating_add(self.increment),
            };
            // A multiplier of 1 or 0 without increment would never end.
            next = Some(following).filter(|following| *following > length);
            usize::try_from(length).ok()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEFAULT: Parameters = Parameters {
        iterations: 1000,
        warm_up: 10,
        first: 0,
        end: (4 << 20) + 1,
        multiplier: 2,
        increment: 0,
        aligned: false,
        one_way: true,
        synchronous: false,
        mode: Mode::PingPong,
        numbered: false,
    };

    #[test]
    fn parameters_survive_the_wire_in_the_order_of_the_reference() {
        let odd = Parameters {
            end: 0x1_0000_0002,
            synchronous: true,
            ..DEFAULT
        };
        let bytes = odd.to_bytes();
        assert_eq!(bytes[..8], [0, 0, 3, 0xe8, 0, 0, 0, 10]);
        assert_eq!(bytes[16..24], [0, 0, 0, 2, 0, 0, 0, 1], "low half first");
        assert_eq!(bytes[40..], [0, 1, 1, 0]);
        assert_eq!(Parameters::from_bytes(&bytes), Some(odd));
        for mode in [Mode::Rate, Mode::Overlap, Mode::Phases] {
            let numbered = true;
            let beyond = Parameters {
                mode,
                numbered,
                ..DEFAULT
            };
            assert_eq!(Parameters::from_bytes(&beyond.to_bytes()), Some(beyond));
        }
        let mut unknown = bytes;
        unknown[43] = 4;
        assert_eq!(Parameters::from_bytes(&unknown), None);
    }

    #[test]
    fn lengths_double_from_0_to_4_mib_and_always_end() {
        let lengths: Vec<usize> = DEFAULT.lengths().collect();
        assert_eq!(lengths[..4], [0, 1, 2, 4]);
        assert_eq!(lengths.last(), Some(&(4 << 20)));
        let stepping = Parameters {
            increment: 3,
            end: 40,
            ..DEFAULT
        };
        assert_eq!(stepping.lengths().collect::<Vec<_>>(), [0, 3, 9, 21]);
        let stuck = Parameters {
            first: 5,
            multiplier: 1,
            ..DEFAULT
        };
        assert_eq!(stuck.lengths().collect::<Vec<_>>(), [5]);
    }
}
