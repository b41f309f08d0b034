//! The named configurations (section 3) and their texts.

use core::{fmt, str::FromStr};

use super::{Sizes, SizesError};

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
            Self::Other(sizes) => write!(f, "native:{}:{}", sizes.frame_len_max(), sizes.block_frames()),
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
