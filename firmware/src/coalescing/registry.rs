//! What follows from the list of strategies at the end of `coalescing/mod.rs`: names, codes, and dispatch without virtual calls.

use core::{fmt, str::FromStr};

use super::StrategyKind;

/// Makes [`StrategyKind`] and [`Active`](super::Active) of the list. A line that names its type by `mod FILE::TYPE` declares that file
/// as a module, too.
macro_rules! strategies {
    ($($(#[$doc:meta])* $kind:ident = $code:literal, $name:literal, $(mod $module:ident::$own:ident)? $($state:ty)?;)*) => {
        $($(
            #[allow(missing_docs, reason = "a strategy's file needs no more than its rule")]
            mod $module;
        )?)*

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
            /// Their names, in the order of [`StrategyKind::ALL`].
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
        #[allow(missing_docs, reason = "the list says what each is")]
        #[doc(hidden)]
        #[derive(Clone, Copy, Debug)]
        pub enum Active {
            $($kind($($module::$own)? $($state)?),)*
        }

        impl Default for Active {
            fn default() -> Self {
                Self::new(Coalescing::DEFAULT)
            }
        }

        impl Selection for Active {
            fn new(settings: Coalescing) -> Self {
                match settings.effective_strategy() {
                    $(StrategyKind::$kind => Self::$kind(<$($module::$own)? $($state)?>::default()),)*
                }
            }

            fn serves(&self, settings: Coalescing) -> bool {
                let kind = match self {
                    $(Self::$kind(_) => StrategyKind::$kind,)*
                };
                kind == settings.effective_strategy()
            }
        }

        /// Shows the visitor each registered strategy, in the order of their codes, until it fails.
        pub(crate) fn visit_strategies<V: StrategyVisitor>(visitor: &mut V) -> Result<(), V::Error> {
            $(
                visitor.visit::<$($module::$own)? $($state)?>(StrategyKind::$kind)?;
            )*
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

pub(super) use strategies;

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

    /// The strategy with this code in control frames; `None` if the card has none.
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
        f.write_str("there is no coalescing strategy of this name; there are ")?;
        StrategyKind::NAMES.iter().enumerate().try_for_each(|(position, name)| {
            let separator = if position == 0 { "" } else { ", " };
            write!(f, "{separator}{name}")
        })
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

/// The most strategies that a card can have: `HELLO` of the control protocol has a bit for each.
const COUNT_MAX: usize = 32;

// `index` and `from_code` rely on codes being positions.
const _: () = {
    assert!(StrategyKind::COUNT <= COUNT_MAX, "a card has at most 32 strategies");
    let mut position = 0;
    while position < StrategyKind::COUNT {
        assert!(
            StrategyKind::ALL[position] as usize == position,
            "codes count from 0 without gaps: a new strategy takes the next one"
        );
        assert!(
            is_name(StrategyKind::NAMES[position]),
            "a strategy's name has 1 to 31 small letters, digits and hyphens, and begins with a letter"
        );
        position += 1;
    }
};

/// The longest name, in bytes.
pub const STRATEGY_NAME_MAX: usize = 31;

/// Whether a text may be the name of a strategy: it is typed on command lines, and goes into metrics and control frames.
const fn is_name(name: &str) -> bool {
    let name = name.as_bytes();
    let mut position = 0;
    while position < name.len() {
        let byte = name[position];
        let is_inner = byte.is_ascii_digit() || byte == b'-';
        if !byte.is_ascii_lowercase() && (position == 0 || !is_inner) {
            return false;
        }
        position += 1;
    }
    position != 0 && position <= STRATEGY_NAME_MAX
}
