//! Private words of this project give way to those of the field (`docs/book/src/glossary.md`), and never come back.
//!
//! Counted in comments that document something (`//!`, `///`), in texts of the programs, and in names of the code, as whole words only.
//! Some have a plain meaning too, so each crate has a number of them that it may keep, in `words.txt`; the numbers only ever fall.
//! `WEFT_UPDATE_TIDY=1` writes those that have fallen, or have moved with their code to another crate.

use std::collections::BTreeMap;

use proc_macro2::{TokenStream, TokenTree};

use super::tree;

/// The file of numbers, each line a crate, a word and how often it is there.
const NUMBERS: &str = "testbed/tests/tidy/words.txt";

/// Words, or several in order, with what to say in their place. Letters count as they are written.
const BANNED: &[(&[&str], &str)] = &[
    (&["Inner", "shard", "shards"], "the data plane, or what the type holds"),
    (&["way", "ways"], "path, direction, manner"),
    (&["straight"], "direct path"),
    (&["rows of", "row of", "runs of", "run of"], "burst"),
    (
        &["one look", "a look", "each look", "same look", "every look"],
        "poll, check",
    ),
    (&["held"], "backpressure, or kept"),
    (
        &["gather", "gathers", "gathered", "offer", "offers", "offered"],
        "batching, or collect, propose",
    ),
    (&["pace", "rests"], "back-off"),
    (&["apart"], "bulk path, or separate"),
    (&["meet", "meets"], "pairing, or find"),
    (&["leftovers"], "stale files"),
    (&["at_once"], "immediate send"),
    (&["losses"], "fault injection"),
    (&["tape"], "flight recorder"),
    (&["whoever", "Whoever", "nobody", "Nobody"], "who it is"),
    (&["of before", "The same"], "what it is"),
];

/// The texts and names of a file.
fn words(tokens: TokenStream, found: &mut Vec<String>) {
    for token in tokens {
        match token {
            TokenTree::Group(group) => words(group.stream(), found),
            TokenTree::Ident(name) => found.push(name.to_string()),
            TokenTree::Literal(literal) => {
                let text = literal.to_string();
                let splits = |letter: char| !letter.is_alphanumeric() && letter != '_';
                // Nothing between two texts is one word with both.
                found.push(String::new());
                // What an escape begins with is no letter of a word.
                let text = text.replace("\\n", " ").replace("\\t", " ");
                found.extend(text.split(splits).filter(|word| !word.is_empty()).map(str::to_owned));
                found.push(String::new());
            }
            TokenTree::Punct(_) => found.push(String::new()),
        }
    }
}

/// How often `banned` is in `words`.
fn count(banned: &str, words: &[String]) -> usize {
    let banned: Vec<_> = banned.split(' ').collect();
    words.windows(banned.len()).filter(|window| *window == banned).count()
}

/// How often each banned word is in each crate, as `crate word`.
fn counted() -> BTreeMap<String, usize> {
    let crates = tree::files(&["Cargo.toml"]);
    let folders: Vec<_> = crates
        .iter()
        .filter_map(|path| path.strip_suffix("Cargo.toml"))
        .collect();
    let mut counted = BTreeMap::new();
    // The files of this rule name what they ban.
    let paths = tree::files(&[".rs"]).into_iter();
    for path in paths.filter(|path| !path.starts_with("testbed/tests/tidy/")) {
        let of_crate = folders.iter().filter(|folder| path.starts_with(**folder));
        let of_crate = of_crate
            .max_by_key(|folder| folder.len())
            .map_or("", |folder| folder.trim_end_matches('/'));
        let tokens = tree::text(&path)
            .parse()
            .unwrap_or_else(|error| panic!("{path}: {error}"));
        let mut found = Vec::new();
        words(tokens, &mut found);
        for banned in BANNED.iter().flat_map(|(banned, _)| *banned) {
            let count = count(banned, &found);
            if count > 0 {
                *counted.entry(format!("{of_crate} {banned}")).or_default() += count;
            }
        }
    }
    counted
}

/// The crate and the word of a line.
fn parts(place: &str) -> (&str, &str) {
    place.split_once(' ').expect("a crate and a word")
}

/// Writes what is counted, unless some word is there more often than before in all crates together: code may move between crates.
fn update(allowed: &BTreeMap<String, usize>, counted: &BTreeMap<String, usize>) {
    let sum = |numbers: &BTreeMap<String, usize>, word: &str| {
        let of_word = numbers.iter().filter(|(place, _)| parts(place).1 == word);
        of_word.map(|(_, number)| number).sum::<usize>()
    };
    for word in BANNED.iter().flat_map(|(banned, _)| *banned) {
        let (before, now) = (sum(allowed, word), sum(counted, word));
        assert!(now <= before, "{word} is there {now} times, and {before} times before");
    }
    let lines: String = counted
        .iter()
        .map(|(place, number)| format!("{place} {number}\n"))
        .collect();
    std::fs::write(tree::root().join(NUMBERS), lines).expect("the numbers can be written");
}

#[test]
fn private_words_become_fewer_in_every_crate() {
    let numbers = tree::text(NUMBERS);
    let parse = |line: &str| {
        let (place, number) = line.rsplit_once(' ').expect("a crate, a word and a number");
        (place.to_owned(), number.parse::<usize>().expect("a number"))
    };
    let (allowed, counted) = (numbers.lines().map(parse).collect(), counted());
    if std::env::var_os("WEFT_UPDATE_TIDY").is_some() {
        return update(&allowed, &counted);
    }
    let number_of = |numbers: &BTreeMap<String, usize>, place: &str| numbers.get(place).copied().unwrap_or(0);
    let instead = |place: &str| {
        let (_, word) = parts(place);
        let found = BANNED.iter().find(|(banned, _)| banned.contains(&word));
        found.map_or("", |(_, instead)| instead)
    };
    let more = counted
        .iter()
        .filter(|(place, count)| **count > number_of(&allowed, place));
    let more: Vec<_> = more
        .map(|(place, count)| {
            let allowed = number_of(&allowed, place);
            format!(
                "{place}: {count}, of which {allowed} may be there; say {}",
                instead(place)
            )
        })
        .collect();
    assert!(
        more.is_empty(),
        "private words that were added:\n  {}",
        more.join("\n  ")
    );
    let fewer = allowed
        .iter()
        .filter(|(place, number)| number_of(&counted, place) < **number);
    let fewer: Vec<_> = fewer.map(|(place, _)| place.as_str()).collect();
    assert!(
        fewer.is_empty(),
        "these became fewer; run this test once with WEFT_UPDATE_TIDY=1 and commit {NUMBERS}:\n  {}",
        fewer.join("\n  ")
    );
}

#[test]
fn words_are_whole_ones_in_comments_texts_and_names() {
    let of = |text: &str, banned: &str| {
        let mut found = Vec::new();
        words(text.parse().expect("this is Rust"), &mut found);
        count(banned, &found)
    };
    assert_eq!(
        of("/// The way in which\nfn way() { say(\"a way\\nway out\") }", "way"),
        4
    );
    assert_eq!(of("/// Always away\nfn halfway() {}", "way"), 0);
    assert_eq!(
        of("/// A run of frames, and a run\n/// of bytes\nfn f() {}", "run of"),
        1
    );
    assert_eq!(of("struct Inner(u8); // an Inner", "Inner"), 1);
}
