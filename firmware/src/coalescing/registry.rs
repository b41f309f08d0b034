//! The list of strategies, and what follows from it: names, codes, and dispatch without virtual calls.
//!
//! To add a strategy, add one line to the list `strategies!` below. Codes are on the wire (`CONTROL.md`): never change one.

use core::{fmt, str::FromStr};

use crate::conformance::{self, Broken};

use super::{
    Action, AdaptiveState, Attention, Coalescing, Completion, Oldest, Selection, Strategy, Together,
    adaptive::Adaptive, disabled, open_mx, stream, timeout,
};

macro_rules! strategies {
    ($($(#[$doc:meta])* $kind:ident = $code:literal, $name:literal, $state:ty;)*) => {
        /// The strategies a card knows.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum StrategyKind {
            $(
                #[doc = concat!("`", $name, "`. ")]
                $(#[$doc])*
                $kind = $code,
            )*
        }

        impl StrategyKind {
            /// All strategies, in the order of their codes.
            pub const ALL: &'static [Self] = &[$(Self::$kind),*];
            /// Their names, in the same order.
            pub const NAMES: &'static [&'static str] = &[$($name),*];
            /// How many there are; counters are indexed by [`StrategyKind::index`].
            pub const COUNT: usize = Self::ALL.len();

            /// The name used on command lines, in reports and in JSON.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$kind => $name,)*
                }
            }
        }

        /// One of the registered strategies, at work.
        #[derive(Clone, Copy, Debug)]
        pub enum Active {
            $($kind($state),)*
        }

        impl Default for Active {
            fn default() -> Self {
                Self::new(Coalescing::DEFAULT)
            }
        }

        impl Selection for Active {
            fn new(settings: Coalescing) -> Self {
                match settings.effective_strategy() {
                    $(StrategyKind::$kind => Self::$kind(<$state>::default()),)*
                }
            }

            fn serves(&self, settings: Coalescing) -> bool {
                let kind = match self {
                    $(Self::$kind(_) => StrategyKind::$kind,)*
                };
                kind == settings.effective_strategy()
            }
        }

        /// See [`conformance::registered`].
        pub(crate) fn registered() -> Result<(), (StrategyKind, Broken)> {
            $(conformance::strategy::<$state>().map_err(|broken| (StrategyKind::$kind, broken))?;)*
            Ok(())
        }

        impl Strategy for Active {
            #[inline]
            fn completed(&mut self, completion: Completion) -> Action {
                match self {
                    $(Self::$kind(strategy) => strategy.completed(completion),)*
                }
            }

            #[inline]
            fn completed_together(&mut self, together: Together) -> (u32, Action) {
                match self {
                    $(Self::$kind(strategy) => strategy.completed_together(together),)*
                }
            }

            #[inline]
            fn attention(&self) -> Attention {
                match self {
                    $(Self::$kind(strategy) => strategy.attention(),)*
                }
            }

            #[inline]
            fn announced(&mut self) {
                match self {
                    $(Self::$kind(strategy) => strategy.announced(),)*
                }
            }

            #[inline]
            fn is_deferring(&self) -> bool {
                match self {
                    $(Self::$kind(strategy) => strategy.is_deferring(),)*
                }
            }

            #[inline]
            fn delay_ns(&mut self, oldest: Oldest) -> u64 {
                match self {
                    $(Self::$kind(strategy) => strategy.delay_ns(oldest),)*
                }
            }

            fn adaptive(&self, longest_ns: u64) -> Option<AdaptiveState> {
                match self {
                    $(Self::$kind(strategy) => strategy.adaptive(longest_ns),)*
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
    /// M-GF7: the delay follows the traffic, from none up to that of the settings.
    Adaptive = 4, "adaptive", Adaptive<timeout::Timeout>;
    /// M-GF8: adaptive, and Open-MX for marked packets.
    AdaptiveOpenMx = 5, "adaptive-open-mx", Adaptive<open_mx::OpenMx>;
    /// M-GF8: adaptive, and Stream for marked packets.
    AdaptiveStream = 6, "adaptive-stream", Adaptive<stream::Stream>;
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
