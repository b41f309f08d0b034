//! What two peers must have been given alike, because nothing on the wire announces it: mode, sizes, marking, EtherType
//! (section 3).

use core::{fmt, str::FromStr};

use ether::EtherType;

use super::FRAGMENTS_MAX;

/// Which of the two families of layouts is spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Compatible with Myricom's MXoE.
    Wire,
    /// Open-MX's own.
    Native,
}

/// The sizes of one configuration (section 3). Only valid combinations can be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Sizes {
    mode: Mode,
    frame_len_max: u32,
    reply_payload: u32,
    fragment_payload: u32,
    block_frames: u32,
    fragments: u32,
}

/// Why no sizes can be made of these numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SizesError {
    /// The longest frame is outside what the fields can say.
    #[error(
        "the longest frame must have between {} and {} bytes",
        Sizes::NATIVE_FRAME_LEN_MIN,
        u16::MAX
    )]
    FrameLength,
    /// The number of frames of a pull block is not usable.
    #[error("the frames per pull block must be a power of two, 64 at most")]
    BlockFrames,
}

impl Sizes {
    /// Smallest longest-frame of native mode that is accepted: every message of up to 128 bytes must fit in one frame,
    /// with room to spare for a fragment worth its header.
    pub const NATIVE_FRAME_LEN_MIN: u32 = 256;

    /// The sizes of wire mode; there is only one set.
    pub const fn wire() -> Self {
        Self {
            mode: Mode::Wire,
            frame_len_max: 4144,
            reply_payload: 4096,
            fragment_payload: 4096,
            block_frames: 8,
            fragments: 8,
        }
    }

    /// Native mode with a longest frame of `frame_len_max` bytes (Open-MX's "MTU", which counts the Ethernet header)
    /// and `block_frames` replies per pull block.
    ///
    /// # Errors
    /// [`SizesError`] if a number is outside what the protocol can carry.
    pub const fn native(frame_len_max: u32, block_frames: u32) -> Result<Self, SizesError> {
        if frame_len_max < Self::NATIVE_FRAME_LEN_MIN || frame_len_max > u16::MAX as u32 {
            return Err(SizesError::FrameLength);
        }
        if !block_frames.is_power_of_two() || block_frames > 64 {
            return Err(SizesError::BlockFrames);
        }
        let room = frame_len_max - 48;
        let fragment_payload = match room {
            0..=4096 => room,
            4097..8192 => 4096,
            _ => 8192,
        };
        Ok(Self {
            mode: Mode::Native,
            frame_len_max,
            reply_payload: frame_len_max - 32,
            fragment_payload,
            block_frames,
            fragments: FRAGMENTS_MAX,
        })
    }

    /// Which layouts.
    #[inline]
    pub const fn mode(&self) -> Mode {
        self.mode
    }

    /// Longest frame in bytes, Ethernet header included.
    #[inline]
    pub const fn frame_len_max(&self) -> u32 {
        self.frame_len_max
    }

    /// `F`: data bytes of a full PULL_REPLY.
    #[inline]
    pub const fn reply_payload(&self) -> u32 {
        self.reply_payload
    }

    /// `M`: data bytes of a full MEDIUM fragment.
    #[inline]
    pub const fn fragment_payload(&self) -> u32 {
        self.fragment_payload
    }

    /// `N`: most replies of one pull block.
    #[inline]
    pub const fn block_frames(&self) -> u32 {
        self.block_frames
    }

    /// Bytes of a full pull block, `N·F`.
    #[inline]
    pub const fn block_len(&self) -> u32 {
        self.block_frames * self.reply_payload
    }

    /// Longest message a sender cuts into MEDIUM fragments, in bytes.
    #[inline]
    pub const fn medium_len_max(&self) -> u32 {
        self.fragments * self.fragment_payload
    }

    /// Fragments of a medium message of `len` bytes; one for an empty message.
    #[inline]
    pub const fn fragments_of(&self, len: u32) -> u32 {
        if len == 0 {
            1
        } else {
            len.div_ceil(self.fragment_payload)
        }
    }
}

/// The configurations (section 3): the named ones and, where Open-MX was built with others, any of native mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Preset {
    /// MX-wire-compatible.
    Wire,
    /// Native, frames of 1500 bytes.
    Native1500,
    /// Native, frames of 9000 bytes: Open-MX's default.
    Native9000,
    /// Native with other sizes, which [`Preset::native`] makes.
    Other(Sizes),
}

impl Preset {
    /// Every named preset.
    pub const ALL: [Self; 3] = [Self::Wire, Self::Native1500, Self::Native9000];

    /// Makes native mode with a longest frame of `frame_len_max` bytes, Ethernet header included, and `block_frames`
    /// replies per pull block. Sizes of a named preset give that preset: peers compare its code in a CONNECT.
    ///
    /// # Errors
    /// [`SizesError`] if a number is outside what the protocol can carry.
    pub fn native(frame_len_max: u32, block_frames: u32) -> Result<Self, SizesError> {
        let sizes = Sizes::native(frame_len_max, block_frames)?;
        let named = Self::ALL.into_iter().find(|preset| preset.sizes() == sizes);
        Ok(named.unwrap_or(Self::Other(sizes)))
    }

    /// Its sizes.
    pub const fn sizes(self) -> Sizes {
        let native = match self {
            Self::Wire => return Sizes::wire(),
            Self::Other(sizes) => return sizes,
            Self::Native1500 => Sizes::native(1500, 32),
            Self::Native9000 => Sizes::native(9000, 32),
        };
        match native {
            Ok(sizes) => sizes,
            // The two constant pairs above are inside the limits, which a test holds.
            Err(_) => Sizes::wire(),
        }
    }

    /// The number that stands for it in a CONNECT (section 17).
    pub const fn code(self) -> u8 {
        match self {
            Self::Wire => 1,
            Self::Native1500 => 2,
            Self::Native9000 => 3,
            Self::Other(_) => 4,
        }
    }

    /// The preset with this number in a CONNECT; `None` for "other".
    pub const fn from_code(code: u8) -> Option<Self> {
        match code {
            1 => Some(Self::Wire),
            2 => Some(Self::Native1500),
            3 => Some(Self::Native9000),
            _ => None,
        }
    }
}

/// As in configuration: `wire`, `native-1500`, `native-9000`, or `native:` with the longest frame and the frames per pull block.
impl fmt::Display for Preset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Wire => f.write_str("wire"),
            Self::Native1500 => f.write_str("native-1500"),
            Self::Native9000 => f.write_str("native-9000"),
            Self::Other(sizes) => write!(f, "native:{}:{}", sizes.frame_len_max, sizes.block_frames),
        }
    }
}

impl FromStr for Preset {
    type Err = ParsePresetError;

    fn from_str(text: &str) -> Result<Self, ParsePresetError> {
        match text {
            "wire" => return Ok(Self::Wire),
            "native-1500" => return Ok(Self::Native1500),
            "native-9000" => return Ok(Self::Native9000),
            _ => {}
        }
        let numbers = text.strip_prefix("native:").and_then(|numbers| numbers.split_once(':'));
        let (frame_len_max, block_frames) = numbers.ok_or(ParsePresetError::Unknown)?;
        let number = |text: &str| text.parse().map_err(|_| ParsePresetError::Unknown);
        Ok(Self::native(number(frame_len_max)?, number(block_frames)?)?)
    }
}

/// The text names no preset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParsePresetError {
    /// It is none of those there are.
    #[error(
        "not a preset: wire, native-1500, native-9000, or native:MTU:BLOCK with the longest frame in bytes and the frames per pull block"
    )]
    Unknown,
    /// There can be no such sizes.
    #[error(transparent)]
    Sizes(#[from] SizesError),
}

/// Everything about the wire that is configured and not announced: how to read and write frames of one interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Dialect {
    pub(super) sizes: Sizes,
    pub(super) marks: bool,
    pub(super) ether_type: EtherType,
}

impl Dialect {
    /// These sizes, the usual EtherType, marking off.
    #[inline]
    pub const fn new(sizes: Sizes) -> Self {
        Self {
            sizes,
            marks: false,
            ether_type: EtherType::MXOE,
        }
    }

    /// This dialect with marking on or off. Off: bit 7 is never written, and a frame that carries it is of unknown type.
    #[inline]
    #[must_use]
    pub const fn with_marks(mut self, marks: bool) -> Self {
        self.marks = marks;
        self
    }

    /// This dialect under another EtherType (native mode of Open-MX can be built so).
    #[inline]
    #[must_use]
    pub const fn with_ether_type(mut self, ether_type: EtherType) -> Self {
        self.ether_type = ether_type;
        self
    }

    /// The sizes.
    #[inline]
    pub const fn sizes(&self) -> &Sizes {
        &self.sizes
    }

    /// Whether the mark is understood and written.
    #[inline]
    pub const fn marks(&self) -> bool {
        self.marks
    }

    /// The EtherType of the frames.
    #[inline]
    pub const fn ether_type(&self) -> EtherType {
        self.ether_type
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    #[test]
    fn a_preset_is_read_as_it_is_written() {
        for text in [
            "wire",
            "native-1500",
            "native-9000",
            "native:9000:8",
            "native:256:64",
            "native:65535:1",
        ] {
            let preset: Preset = text.parse().unwrap();
            assert_eq!(preset.to_string(), text);
        }
        let other: Preset = "native:4000:16".parse().unwrap();
        assert_eq!((other.code(), other.sizes()), (4, Sizes::native(4000, 16).unwrap()));
    }

    #[test]
    fn numbers_of_a_named_preset_are_that_preset() {
        assert_eq!("native:9000:32".parse(), Ok(Preset::Native9000));
        assert_eq!("native:01500:32".parse(), Ok(Preset::Native1500));
    }

    #[test]
    fn sizes_that_cannot_be_are_refused() {
        for text in ["native:255:32", "native:65536:32"] {
            assert_eq!(text.parse::<Preset>(), Err(SizesError::FrameLength.into()), "{text}");
        }
        for text in ["native:1500:0", "native:1500:33", "native:1500:128"] {
            assert_eq!(text.parse::<Preset>(), Err(SizesError::BlockFrames.into()), "{text}");
        }
        for text in [
            "",
            "native",
            "native:",
            "native:1500",
            "native:1500:",
            "native:1500:8:1",
            "native:-1:8",
            "wire:1500:8",
        ] {
            assert_eq!(text.parse::<Preset>(), Err(ParsePresetError::Unknown), "{text:?}");
        }
    }
}
