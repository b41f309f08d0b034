//! Arguments that are one of a few words.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};

/// The words of an argument, each with its help and the value that it stands for.
pub(in crate::cli) type Words<T> = &'static [(&'static str, &'static str, T)];

/// The state of a switch.
pub(in crate::cli) const ON_OFF: Words<bool> = &[("on", "On", true), ("off", "Off", false)];

/// Makes the parser of an argument that is one of these words.
pub(in crate::cli) fn one_of<T: Copy + Send + Sync + 'static>(words: Words<T>) -> impl TypedValueParser<Value = T> {
    let values = words
        .iter()
        .map(|(word, help, _)| PossibleValue::new(*word).help(*help));
    PossibleValuesParser::new(values).try_map(move |word| {
        let known = words.iter().find(|(known, ..)| *known == word);
        known.map(|(.., value)| *value).ok_or("an unknown word")
    })
}
