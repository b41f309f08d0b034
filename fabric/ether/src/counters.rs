//! Counters that explain themselves, for everything that counts what happens to frames.

/// Makes an enum of counters, each with the name that users see and a sentence: `ALL` lists them in order, `name` and `sentence` say what
/// they are. A counter's place in `ALL` is its number.
///
/// ```
/// ether::counters! {
///     /// An event that is counted.
///     pub enum Counter:
///
///     Sent "sent" "frames sent",
///     Lost "lost" "frames lost",
/// }
///
/// let mut counts = [0; Counter::ALL.len()];
/// counts[Counter::Lost as usize] += 1;
/// assert_eq!((Counter::Lost.name(), Counter::Lost.sentence()), ("lost", "frames lost"));
/// ```
#[macro_export]
macro_rules! counters {
    ($(#[$attribute:meta])* $visibility:vis enum $Counter:ident: $($variant:ident $name:literal $sentence:literal,)*) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        $visibility enum $Counter {
            $(#[doc = $sentence] $variant,)*
        }

        impl $Counter {
            /// Every counter, in order.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// Returns the name that users see.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// Returns the sentence that explains the counter.
            pub const fn sentence(self) -> &'static str {
                match self { $(Self::$variant => $sentence,)* }
            }
        }
    };
}
