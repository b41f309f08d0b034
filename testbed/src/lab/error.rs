//! Mistakes in a lab file, shown with file, line, column, the line itself and the correction. Other modules decide what
//! is a mistake.

use std::{fmt, ops::Range};

/// Number of mistakes shown at a time; more would scroll the first ones away.
pub const PROBLEMS_SHOWN_MAX: usize = 20;

/// Number of characters shown of a line.
const LINE_CHARS_MAX: usize = 160;

/// A mistake in a lab file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Range of bytes of the file that it is about.
    pub span: Range<usize>,
    /// Description of the mistake.
    pub message: String,
    /// How to correct it.
    pub help: String,
}

/// All mistakes found in one lab file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabError {
    file: String,
    text: String,
    problems: Vec<Problem>,
}

impl LabError {
    /// Makes the error; `file` is the name shown, `text` what was read from it.
    #[must_use]
    pub fn new(file: &str, text: &str, mut problems: Vec<Problem>) -> Self {
        problems.sort_by_key(|problem| problem.span.start);
        Self {
            file: file.to_owned(),
            text: text.to_owned(),
            problems,
        }
    }

    /// Returns the mistakes, in the order of the file.
    #[must_use]
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// Returns line and column of a byte, both from 1; columns count characters.
    #[must_use]
    pub fn position(&self, byte: usize) -> (usize, usize) {
        let mut byte = byte.min(self.text.len());
        while !self.text.is_char_boundary(byte) {
            byte -= 1;
        }
        let before = &self.text[..byte];
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        (
            before.matches('\n').count() + 1,
            before[line_start..].chars().count() + 1,
        )
    }
}

impl fmt::Display for LabError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.problems.iter().take(PROBLEMS_SHOWN_MAX).enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            let (line, column) = self.position(problem.span.start);
            let (shown, indent) = excerpt(self.text.lines().nth(line - 1).unwrap_or(""), column - 1);
            let marked = self.text.get(problem.span.clone()).and_then(|part| part.lines().next());
            let width = marked.map_or(1, |part| part.chars().count());
            let width = width.clamp(1, shown.chars().count().saturating_sub(indent).max(1));
            let gutter = line.to_string().len();
            writeln!(f, "{}:{line}:{column}: {}", self.file, printable(&problem.message))?;
            writeln!(f, "{line} | {shown}")?;
            writeln!(f, "{:gutter$} | {:indent$}{}", "", "", "^".repeat(width))?;
            write!(f, "{:gutter$} = {}", "", printable(&problem.help))?;
        }
        if self.problems.len() > PROBLEMS_SHOWN_MAX {
            write!(f, "\n… and {} more", self.problems.len() - PROBLEMS_SHOWN_MAX)?;
        }
        Ok(())
    }
}

impl std::error::Error for LabError {}

/// Removes characters from the text of a file that a terminal would interpret.
fn printable(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect()
}

/// Returns the part of a line that is shown, and the position in it of the character at `at`: of a long line, the part
/// around it.
fn excerpt(line: &str, at: usize) -> (String, usize) {
    let before = at.saturating_sub(LINE_CHARS_MAX / 2);
    let part: String = line.chars().skip(before).take(LINE_CHARS_MAX).collect();
    let (begin, end) = (
        if before > 0 { "…" } else { "" },
        if part.len() < line.len() && line.chars().nth(before + LINE_CHARS_MAX).is_some() {
            "…"
        } else {
            ""
        },
    );
    (
        format!("{begin}{}{end}", printable(&part)),
        at - before + begin.chars().count(),
    )
}

/// Converts an error of the TOML reader to a problem; unknown keys get the nearest known one.
pub(super) fn from_toml(error: &toml::de::Error) -> Problem {
    let span = error.span().unwrap_or(0..0);
    let message = error.message().lines().next().unwrap_or("not a TOML file").to_owned();
    if let Some((unknown, known)) = unknown_field(&message) {
        // To the reader a date is a table with a key of its own.
        if unknown.starts_with("$__toml") {
            return Problem {
                span,
                message: "wrong kind of value: a date".to_owned(),
                help: format!("expected here: a table with some of the keys {}", known.join(", ")),
            };
        }
        let help = match nearest(&unknown, known.iter().map(String::as_str)) {
            Some(near) => format!("did you mean `{near}`? The keys here are: {}", known.join(", ")),
            None => format!("the keys here are: {}", known.join(", ")),
        };
        return Problem {
            span,
            message: format!("unknown key `{unknown}`"),
            help,
        };
    }
    if let Some((unknown, known)) = unknown_variant(&message) {
        let near = nearest(&unknown, known.iter().map(String::as_str));
        let help = match near {
            Some(near) => format!("did you mean \"{near}\"? Possible are: {}", known.join(", ")),
            None => format!("possible are: {}", known.join(", ")),
        };
        return Problem {
            span,
            message: format!("unknown value \"{unknown}\""),
            help,
        };
    }
    // The sentences of `units` contain their remedy behind the colon.
    if let Some((what, right)) = message.split_once(": write ") {
        return Problem {
            span,
            message: what.to_owned(),
            help: format!("write {right}"),
        };
    }
    if let Some(field) = message.strip_prefix("missing field ") {
        return Problem {
            span,
            message: format!("the key {field} is missing here"),
            help: format!("add {field} = …"),
        };
    }
    if let Some((found, expected)) = message.split_once(", expected ") {
        return Problem {
            span,
            message: found_words(found),
            help: format!("expected here: {}", expected_words(expected)),
        };
    }
    // This is how the reader refuses a value that cannot be one of several words.
    if message == "wanted string or table" {
        return Problem {
            span,
            message: "wrong kind of value".to_owned(),
            help: "expected here: one of the words that are possible for this key, in quotes".to_owned(),
        };
    }
    if let Some(word) = message.strip_prefix("duplicate key") {
        return Problem {
            span,
            message: format!("this key was there before{word}"),
            help: "leave one of the two out".to_owned(),
        };
    }
    Problem {
        span,
        message,
        help: "see `weft init` for an example and lab.schema.json for every key".to_owned(),
    }
}

/// Translates what the TOML reader found from Rust's words to those of a lab file.
fn found_words(found: &str) -> String {
    if let Some(what) = found.strip_prefix("invalid type: ") {
        return format!("wrong kind of value: {}", value_words(what));
    }
    if let Some(what) = found.strip_prefix("invalid value: ") {
        return format!("wrong value: {}", value_words(what));
    }
    if let Some(length) = found.strip_prefix("invalid length ") {
        return format!("wrong number of values: {length}");
    }
    found.to_owned()
}

/// Translates serde's name of a value: `string "two"`, `integer `5``, `map`.
fn value_words(what: &str) -> String {
    for (prefix, word) in [
        ("string ", "the text "),
        ("integer ", "the number "),
        ("floating point ", "the number "),
        ("boolean ", ""),
    ] {
        if let Some(value) = what.strip_prefix(prefix) {
            return format!("{word}{}", value.trim_matches('`'));
        }
    }
    match what {
        // A date is a table to the reader.
        "map" => "a table (or a date)".to_owned(),
        "sequence" => "a list".to_owned(),
        other => other.trim_matches('`').to_owned(),
    }
}

/// Translates what serde expected: its own types by name; everything else is in our words already.
fn expected_words(expected: &str) -> String {
    match expected {
        "i8" | "i16" | "i32" | "i64" | "i128" | "isize" => "a whole number, without quotes".to_owned(),
        "u8" | "u16" | "u32" | "u64" | "u128" | "usize" => {
            "a whole number that is not negative, without quotes".to_owned()
        }
        "f32" | "f64" => "a number, without quotes".to_owned(),
        "a string" | "string" | "borrowed string" => "a text in quotes".to_owned(),
        "path string" => "a path in quotes".to_owned(),
        "string or table" | "variant identifier" => "one of the words for this key, in quotes".to_owned(),
        "a boolean" => "true or false, without quotes".to_owned(),
        "a sequence" => "a list, such as [ …, … ]".to_owned(),
        "a map" => "a table, such as { name = \"value\" }".to_owned(),
        other => other.to_owned(),
    }
}

/// Splits serde's "unknown field `a`, expected one of `b`, `c`" into its names.
fn unknown_field(message: &str) -> Option<(String, Vec<String>)> {
    split_expected(message.strip_prefix("unknown field `")?)
}

/// Splits serde's "unknown variant `a`, expected one of `b`, `c`" into its names.
fn unknown_variant(message: &str) -> Option<(String, Vec<String>)> {
    split_expected(message.strip_prefix("unknown variant `")?)
}

fn split_expected(rest: &str) -> Option<(String, Vec<String>)> {
    let (unknown, rest) = rest.split_once('`')?;
    Some((
        unknown.to_owned(),
        rest.split('`').skip(1).step_by(2).map(str::to_owned).collect(),
    ))
}

/// Returns the known name that is most similar to `name`, if it is similar enough for a typing mistake.
pub(crate) fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    known
        .map(|candidate| {
            (
                strsim::jaro_winkler(&name.to_lowercase(), &candidate.to_lowercase()),
                candidate,
            )
        })
        .filter(|(likeness, _)| *likeness > 0.75)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate)
}
