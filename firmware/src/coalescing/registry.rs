//! The list of strategies, and what follows from it: names, codes, and dispatch without virtual calls.
//!
//! To add a strategy, add one line at the end of this file. Codes are on the wire (`CONTROL.md`): never change one.

use core::{fmt, str::FromStr};

use super::{Action, Attention, Completion, Strategy, disabled, open_mx, stream, timeout};

macro_rules! strategies {
    ($($(#[$doc:meta])* $kind:ident = $code:literal, $name:literal, $state:ty;)*) => {
        /// The strategies a card knows.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum StrategyKind {
            $($(#[$doc])* $kind = $code,)*
        }

        impl StrategyKind {
            /// All strategies, in the order of their codes.
            pub const ALL: &'static [Self] = &[$(Self::$kind),*];
            /// How many there are; counters are indexed by [`StrategyKind::index`].
            pub const COUNT: usize = Self::ALL.len();

            /// The name used on command lines, in reports and in JSON.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$kind => $name,)*
                }
            }
        }

        /// A strategy at work.
        #[derive(Clone, Copy, Debug)]
        pub(crate) enum Active {
            $($kind($state),)*
        }

        impl Active {
            pub(crate) fn new(kind: StrategyKind) -> Self {
                match kind {
                    $(StrategyKind::$kind => Self::$kind(<$state>::default()),)*
                }
            }

            pub(crate) fn kind(&self) -> StrategyKind {
                match self {
                    $(Self::$kind(_) => StrategyKind::$kind,)*
                }
            }

            #[inline]
            pub(crate) fn completed(&mut self, completion: Completion) -> Action {
                match self {
                    $(Self::$kind(strategy) => strategy.completed(completion),)*
                }
            }

            #[inline]
            pub(crate) fn attention(&self) -> Attention {
                match self {
                    $(Self::$kind(strategy) => strategy.attention(),)*
                }
            }

            #[inline]
            pub(crate) fn announced(&mut self) {
                match self {
                    $(Self::$kind(strategy) => strategy.announced(),)*
                }
            }

            pub(crate) fn is_deferring(&self) -> bool {
                match self {
                    $(Self::$kind(strategy) => strategy.is_deferring(),)*
                }
            }
        }
    };
}

impl StrategyKind {
    /// Position in [`StrategyKind::ALL`].
    #[inline]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The code in control frames.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The strategy with this code in control frames.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code)).copied()
    }
}

impl fmt::Display for StrategyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The text names no [`StrategyKind`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownStrategy;

impl fmt::Display for UnknownStrategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a coalescing strategy; known are")?;
        StrategyKind::ALL.iter().try_for_each(|kind| write!(f, " {kind}"))
    }
}

impl core::error::Error for UnknownStrategy {}

impl FromStr for StrategyKind {
    type Err = UnknownStrategy;

    fn from_str(text: &str) -> Result<Self, UnknownStrategy> {
        Self::ALL
            .iter()
            .copied()
            .find(|kind| kind.name() == text)
            .ok_or(UnknownStrategy)
    }
}

strategies! {
    /// M-GF1 with a delay of 0: an interrupt for each packet.
    Disabled = 0, "disabled", disabled::Disabled;
    /// M-GF1: an interrupt when the delay of the first unannounced packet is over.
    Timeout = 1, "timeout", timeout::Timeout;
    /// M-GF4, Algorithm 1: a marked packet is announced as soon as it is in host memory.
    OpenMx = 2, "open-mx", open_mx::OpenMx;
    /// M-GF5, Algorithm 2: as Open-MX, but put off while other packets are on their way.
    Stream = 3, "stream", stream::Stream;
}

// `index` and `from_code` rely on codes being positions.
const _: () = {
    let mut position = 0;
    while position < StrategyKind::COUNT {
        assert!(
            StrategyKind::ALL[position] as usize == position,
            "codes count from 0 without gaps"
        );
        position += 1;
    }
};
