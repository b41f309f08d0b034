//! The nodes that a word on the command line names: a name, `all`, `n*`, `n?`, `n[1-3]`, and several of these separated
//! by commas. This module knows only names.

use std::{collections::BTreeSet, iter::Peekable, str::Chars};

/// Longest pattern in characters: more than the names of the largest lab together.
const PATTERN_LEN_MAX: usize = 4096;

/// One step of a pattern.
#[derive(Debug)]
enum Step {
    /// Matches this character.
    Just(char),
    /// Matches any character.
    One,
    /// Matches any number of characters.
    Many,
    /// Matches one of these, from `[…]`.
    OneOf(Vec<Choice>),
}

/// A part of `[…]`.
#[derive(Debug)]
enum Choice {
    /// A character from the first to the second.
    Letter(char, char),
    /// A number in this range; with leading zeros, one of so many digits.
    Number { from: u32, to: u32, digits: Option<usize> },
}

/// Returns the nodes that `text` names, in the order of `nodes`, each once.
///
/// # Errors
/// Fails with one sentence when a part of it names none or cannot be parsed.
pub(in crate::cli) fn matching(text: &str, nodes: &[String]) -> Result<Vec<String>, String> {
    if text.len() > PATTERN_LEN_MAX {
        return Err(format!(
            "a pattern of {} bytes is too long: at most {PATTERN_LEN_MAX}",
            text.len()
        ));
    }
    let mut meant = BTreeSet::new();
    for part in parts(text) {
        let steps = steps(&part)?;
        let is_all = part == "all" && !nodes.contains(&part);
        let found = nodes
            .iter()
            .enumerate()
            .filter(|(_, node)| is_all || fits(&steps, node));
        let found: Vec<_> = found.map(|(index, _)| index).collect();
        if found.is_empty() {
            return Err(part);
        }
        meant.extend(found);
    }
    Ok(meant.into_iter().map(|index| nodes[index].clone()).collect())
}

/// Returns whether `text` may name several nodes.
pub(in crate::cli) fn is_pattern(text: &str) -> bool {
    text == "all" || text.contains(['*', '?', '[', ','])
}

/// Splits at commas, except for those in brackets.
fn parts(text: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut depth = 0usize;
    for letter in text.chars() {
        match letter {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.push(String::new());
                continue;
            }
            _ => {}
        }
        if let Some(part) = parts.last_mut() {
            part.push(letter);
        }
    }
    parts.retain(|part| !part.is_empty());
    if parts.is_empty() {
        parts.push(text.to_owned());
    }
    parts
}

fn steps(part: &str) -> Result<Vec<Step>, String> {
    let mut letters = part.chars().peekable();
    let mut steps = Vec::new();
    while let Some(letter) = letters.next() {
        steps.push(match letter {
            '*' => Step::Many,
            '?' => Step::One,
            '[' => Step::OneOf(choices(&mut letters).ok_or_else(|| part.to_owned())?),
            other => Step::Just(other),
        });
    }
    Ok(steps)
}

/// Parses what stands behind `[`, up to and including `]`.
fn choices(letters: &mut Peekable<Chars<'_>>) -> Option<Vec<Choice>> {
    let mut inside = String::new();
    loop {
        match letters.next()? {
            ']' => break,
            letter => inside.push(letter),
        }
    }
    let mut choices = Vec::new();
    let items = inside.split(',').filter(|item| !item.is_empty());
    for item in items {
        let (from, to) = item.split_once('-').unwrap_or((item, item));
        if let (Ok(first), Ok(last)) = (from.parse(), to.parse()) {
            let padded = from.len() > 1 && from.starts_with('0');
            choices.push(Choice::Number {
                from: first,
                to: last,
                digits: padded.then_some(from.len()),
            });
        } else if let (true, [first], [last]) = (item.contains('-'), &*chars(from), &*chars(to)) {
            choices.push(Choice::Letter(*first, *last));
        } else {
            choices.extend(item.chars().map(|letter| Choice::Letter(letter, letter)));
        }
    }
    (!choices.is_empty()).then_some(choices)
}

fn chars(text: &str) -> Vec<char> {
    text.chars().collect()
}

/// Returns whether all of `name` matches. All alternatives of the pattern are followed side by side, so that no pattern
/// takes long.
fn fits(steps: &[Step], name: &str) -> bool {
    let name = chars(name);
    let mut places = BTreeSet::from([0]);
    for step in steps {
        places = places.iter().flat_map(|place| after(step, &name, *place)).collect();
    }
    places.contains(&name.len())
}

/// Returns the places in `name` that can follow `step`.
fn after(step: &Step, name: &[char], place: usize) -> Vec<usize> {
    let next = name.get(place);
    match step {
        Step::Many => (place..=name.len()).collect(),
        Step::One => next.map(|_| place + 1).into_iter().collect(),
        Step::Just(letter) => next
            .filter(|next| *next == letter)
            .map(|_| place + 1)
            .into_iter()
            .collect(),
        Step::OneOf(choices) => choices
            .iter()
            .flat_map(|choice| behind_choice(choice, name, place))
            .collect(),
    }
}

fn behind_choice(choice: &Choice, name: &[char], place: usize) -> Vec<usize> {
    match choice {
        Choice::Letter(first, last) => {
            let fits = name.get(place).is_some_and(|letter| (first..=last).contains(&letter));
            fits.then_some(place + 1).into_iter().collect()
        }
        Choice::Number { from, to, digits } => {
            let run = name[place..]
                .iter()
                .take_while(|letter| letter.is_ascii_digit())
                .count();
            let fits = |length: &usize| {
                let text: String = name[place..place + length].iter().collect();
                let width = digits.map_or_else(|| text == "0" || !text.starts_with('0'), |digits| text.len() == digits);
                width && text.parse::<u32>().is_ok_and(|number| (from..=to).contains(&&number))
            };
            (1..=run).filter(fits).map(|length| place + length).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meant(text: &str) -> Result<String, String> {
        let nodes = ["n1", "n2", "n3", "n10", "n11", "web-a", "web-b", "r01", "r02"].map(str::to_owned);
        matching(text, &nodes).map(|nodes| nodes.join(" "))
    }

    #[test]
    fn words_mean_nodes_as_people_write_them() {
        for (text, expected) in [
            ("n2", "n2"),
            ("all", "n1 n2 n3 n10 n11 web-a web-b r01 r02"),
            ("n*", "n1 n2 n3 n10 n11"),
            ("n?", "n1 n2 n3"),
            ("n[1-3]", "n1 n2 n3"),
            ("n[2-10]", "n2 n3 n10"),
            ("n[1,10-11]", "n1 n10 n11"),
            ("r[01-02]", "r01 r02"),
            ("web-[ab]", "web-a web-b"),
            ("web-[a-a]", "web-a"),
            ("n3,n1,n3", "n1 n3"),
            ("n[1,2],web-*", "n1 n2 web-a web-b"),
            ("*-b", "web-b"),
        ] {
            assert_eq!(meant(text).as_deref(), Ok(expected), "{text}");
        }
        // A number in brackets is that number, as in other tools for many machines, and not one of its digits.
        for text in ["n[13]", "n9", "n1,n9", "x*", "n[4-9]", "n[", "n[]", "", ","] {
            assert!(meant(text).is_err(), "{text}: {:?}", meant(text));
        }
        let long = "*".repeat(PATTERN_LEN_MAX) + "x";
        assert!(meant(&long).is_err());
        assert!(meant(&"*?".repeat(PATTERN_LEN_MAX / 2)).is_err(), "and says so at once");
    }

    #[test]
    fn a_node_that_is_named_all_is_only_itself() {
        let nodes = ["all", "n1"].map(str::to_owned);
        assert_eq!(matching("all", &nodes).as_deref(), Ok(&["all".to_owned()][..]));
    }
}
