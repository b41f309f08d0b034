//! One list of fields for the settings of something and for a change of them, so that each field is spelled once; one list of values
//! for an enumeration and the names that go with it ([`named!`], [`errors!`]).
//!
//! [`settings!`] makes two types of the list: the settings, and the change, in which each field may be absent. It also makes the one
//! place where a change is merged into settings. Which values make sense is not decided here: the crate that owns the settings does.
#![no_std]
#![forbid(unsafe_code)]

mod named;

/// Makes the type of some settings, and the type of a change of them, of one list of fields.
///
/// The change has each field as an `Option`, and `apply_to`, `is_empty` and a conversion from whole settings. With the feature `serde`
/// of the crate that calls the macro, both types are read and written with the names of the fields. A field has another name there if
/// the list says `field as "name"`. A field that is a group of names, flat beside the others, lists them behind the type that knows
/// how they make the field: `field in Group [name: type, …]`, with the functions `parts` of a setting, `change_parts` of a change and
/// `change`, which reads one. Such settings and their change are `written as struct Wire`, a private type that has all names, so that
/// an unknown one is answered by the known ones. Fields in `and { … }` are settings that a change does not have.
/// What follows from a change beyond its fields is a function of settings and change, behind `then`.
///
/// ```
/// weft_settings::settings! {
///     /// How loud it is.
///     #[derive(Clone, Debug, Default, PartialEq, Eq)]
///     pub struct Sound, changed by struct SoundChange {
///         /// In decibels.
///         pub volume_db: u32,
///         /// Whether it is heard at all.
///         pub muted: bool,
///     }
/// }
///
/// let mut sound = Sound { volume_db: 3, muted: true };
/// let louder = SoundChange { volume_db: Some(9), ..SoundChange::default() };
/// louder.apply_to(&mut sound);
/// assert_eq!(sound, Sound { volume_db: 9, muted: true });
/// assert!(SoundChange::default().is_empty());
/// ```
#[macro_export]
macro_rules! settings {
    (
        $(#[$meta:meta])*
        pub struct $name:ident $(<$kind:ident = $standard:ty>)?, changed by struct $change:ident
            $(, written as struct $flat:ident in $flat_name:literal)? $(, then $then:path)? {
            $(
                $(#[$doc:meta])*
                pub $field:ident $(as $wire:literal)? $(in $group:ident [$($part:ident: $part_type:ty),+])? : $type:ty,
            )*
        }
        $(and {
            $(
                $(#[$kept_doc:meta])*
                pub $kept:ident : $kept_type:ty,
            )*
        })?
    ) => {
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
        $(#[$meta])*
        pub struct $name $(<$kind = $standard>)? {
            $(
                $(#[$doc])*
                $(#[cfg_attr(feature = "serde", serde(rename = $wire))])?
                pub $field: $type,
            )*
            $($(
                $(#[$kept_doc])*
                pub $kept: $kept_type,
            )*)?
        }

        #[doc = concat!("A change of [`", stringify!($name), "`]: fields that are absent stay as they are.")]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(deny_unknown_fields))]
        $(#[cfg_attr(feature = "serde", serde(from = $flat_name, into = $flat_name))])?
        pub struct $change $(<$kind = $standard>)? {
            $(
                #[doc = concat!("The new value of [`", stringify!($name), "::", stringify!($field), "`].")]
                #[cfg_attr(
                    feature = "serde",
                    serde(skip_serializing_if = "Option::is_none", $(rename = $wire)?)
                )]
                pub $field: Option<$type>,
            )*
        }

        $crate::settings!(@flat [$($flat)?] $name $change:
            $($field $(as $wire)? $(in $group [$($part: $part_type),+])? : $type,)*
        );

        impl $(<$kind>)? Default for $change $(<$kind>)? {
            /// No change.
            fn default() -> Self {
                Self { $($field: None),* }
            }
        }

        impl $(<$kind: Clone + PartialEq>)? $change $(<$kind>)? {
            /// Writes the fields that are given into `settings`.
            pub fn apply_to(&self, settings: &mut $name $(<$kind>)?) {
                $(
                    if let Some(value) = &self.$field {
                        Clone::clone_from(&mut settings.$field, value);
                    }
                )*
                $($then(settings, self);)?
            }

            /// True if no field is given: nothing is changed, only the settings in force are asked for.
            pub fn is_empty(&self) -> bool {
                *self == Self::default()
            }
        }

        impl $(<$kind: Clone>)? From<&$name $(<$kind>)?> for $change $(<$kind>)? {
            /// The change that makes these settings of any others.
            fn from(settings: &$name $(<$kind>)?) -> Self {
                Self { $($field: Some(Clone::clone(&settings.$field))),* }
            }
        }
    };
    (@flat [] $($field:tt)*) => {};
    (@flat [$flat:ident] $name:ident $change:ident:
        $($field:ident $(as $wire:literal)? $(in $group:ident [$($part:ident: $part_type:ty),+])? : $type:ty,)*
    ) => {
        #[cfg(feature = "serde")]
        #[derive(Default, serde::Serialize, serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        struct $flat {
            $(
                $(#[doc = stringify!($group)] #[serde(skip)])?
                #[serde(skip_serializing_if = "Option::is_none", $(rename = $wire)?)]
                $field: Option<$type>,
                $($(
                    #[serde(skip_serializing_if = "Option::is_none")]
                    $part: Option<$part_type>,
                )+)?
            )*
        }

        #[cfg(feature = "serde")]
        impl From<$name> for $flat {
            fn from(settings: $name) -> Self {
                let mut flat = Self::default();
                $(
                    flat.$field = Some(settings.$field);
                    $(($(flat.$part),+) = $group::parts(&settings.$field);)?
                )*
                flat
            }
        }

        #[cfg(feature = "serde")]
        impl From<$change> for $flat {
            fn from(change: $change) -> Self {
                let mut flat = Self::default();
                $(
                    flat.$field = change.$field;
                    $(($(flat.$part),+) = $group::change_parts(change.$field);)?
                )*
                flat
            }
        }

        #[cfg(feature = "serde")]
        impl From<$flat> for $change {
            fn from(flat: $flat) -> Self {
                let mut change = Self::default();
                $(
                    change.$field = flat.$field;
                    $(change.$field = $group::change(($(flat.$part),+));)?
                )*
                change
            }
        }
    };
}
