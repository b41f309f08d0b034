//! Enumerations whose values have names or sentences, each made of one list, so that no table stands beside the enumeration.

/// Makes an enumeration whose values have names: `ALL`, `name` and `Display` come with it.
///
/// A number behind a value is its discriminant. With `or Unknown: "sentence"` the names are read, too (`FromStr`), and `Unknown` with
/// this sentence is the error; with `or Unknown listing "sentence"` the names stand behind the sentence.
///
/// ```
/// weft_settings::named! {
///     /// A direction.
///     #[derive(Clone, Copy, Debug, PartialEq, Eq)]
///     pub enum Side, or UnknownSide: "a side is left or right" {
///         /// The left one.
///         Left = "left",
///         /// The right one.
///         Right = "right",
///     }
/// }
///
/// assert_eq!(Side::ALL.map(Side::name), ["left", "right"]);
/// assert_eq!("right".parse(), Ok(Side::Right));
/// assert_eq!("up".parse::<Side>().unwrap_err().to_string(), "a side is left or right");
/// ```
#[macro_export]
macro_rules! named {
    (
        $(#[$meta:meta])*
        pub enum $name:ident $(, or $unknown:ident $how:tt $sentence:literal)? {
            $($(#[$doc:meta])* $variant:ident $(($number:literal))? = $text:literal,)*
        }
    ) => {
        $(#[$meta])*
        pub enum $name {
            $($(#[$doc])* $variant $(= $number)?,)*
        }

        $crate::named!(@names $name $($variant = $text,)*);

        impl ::core::fmt::Display for $name {
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                f.pad(self.name())
            }
        }

        $($crate::named!(@unknown $how $name $unknown $sentence);)?
    };
    (@unknown : $name:ident $unknown:ident $sentence:literal) => {
        $crate::named!(@parse $name $unknown |f| f.write_str($sentence));
    };
    (@unknown listing $name:ident $unknown:ident $sentence:literal) => {
        $crate::named!(@parse $name $unknown |f| {
            f.write_str($sentence)?;
            $name::ALL.into_iter().try_for_each(|value| write!(f, " {value}"))
        });
    };
    (@names $name:ident $($variant:ident = $text:literal,)*) => {
        impl $name {
            /// All values, in the order of their numbers.
            pub const ALL: [Self; [$($text),*].len()] = [$(Self::$variant),*];

            /// The name is what settings, counters, reports and JSON have.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)*
                }
            }
        }
    };
    (@parse $name:ident $unknown:ident |$f:ident| $told:expr) => {
        #[doc = concat!("The text names no [`", stringify!($name), "`].")]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $unknown;

        $crate::named!(@error $unknown |_, $f| $told);

        impl ::core::str::FromStr for $name {
            type Err = $unknown;

            fn from_str(text: &str) -> Result<Self, $unknown> {
                Self::ALL.into_iter().find(|value| value.name() == text).ok_or($unknown)
            }
        }
    };
    (@error $name:ident |$value:pat_param, $f:ident| $told:expr) => {
        impl ::core::fmt::Display for $name {
            fn fmt(&self, $f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                let $value = *self;
                $told
            }
        }

        impl ::core::error::Error for $name {}
    };
}

/// Makes an error that is one of several sentences: `sentence`, `Display` and `Error` come with it. Where the values have a name before
/// their sentence, `ALL` and `name` do so, too.
///
/// ```
/// weft_settings::errors! {
///     /// Nothing was played.
///     #[derive(Clone, Copy, Debug, PartialEq, Eq)]
///     pub enum SoundError {
///         /// The volume is above its limit.
///         TooLoud = "the volume is at most 90 dB",
///     }
/// }
///
/// assert_eq!(SoundError::TooLoud.to_string(), "the volume is at most 90 dB");
/// ```
#[macro_export]
macro_rules! errors {
    (
        $(#[$meta:meta])*
        $vis:vis enum $name:ident {
            $($(#[$doc:meta])* $variant:ident = $sentence:literal,)*
        }
    ) => {
        $(#[$meta])*
        $vis enum $name {
            $($(#[$doc])* $variant,)*
        }

        impl $name {
            /// The sentence says what is wrong.
            $vis const fn sentence(self) -> &'static str {
                match self {
                    $(Self::$variant => $sentence,)*
                }
            }
        }

        $crate::named!(@error $name |error, f| f.write_str(error.sentence()));
    };
    (
        $(#[$meta:meta])*
        $vis:vis enum $name:ident {
            $($(#[$doc:meta])* $variant:ident = $text:literal: $sentence:literal,)*
        }
    ) => {
        $crate::errors! {
            $(#[$meta])*
            $vis enum $name {
                $($(#[$doc])* $variant = $sentence,)*
            }
        }

        $crate::named!(@names $name $($variant = $text,)*);
    };
}
