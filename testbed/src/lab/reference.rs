//! The book's reference of the lab file, generated from its schema; a test compares both.

use std::{
    collections::{BTreeSet, VecDeque},
    fmt::Write,
    path::Path,
};

use serde_json::Value;

/// Text of the page before the keys.
const INTRODUCTION: &str = "\
# Lab file reference

<!-- Made from the lab file's schema by a test of `testbed`; WEFT_UPDATE_DOCS=1 writes it. -->

A lab file is TOML. Editors that know JSON schemas take `testbed/lab.schema.json`, from which this page is made; `weft up
--dry-run` says what a file would start. Keys that are not marked as required may be left out.
";

/// Compares a page of the book with the text that it should have; writes it if `WEFT_UPDATE_DOCS` is set.
#[track_caller]
pub(crate) fn assert_current(page: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../docs/book/src")
        .join(page);
    if std::env::var_os("WEFT_UPDATE_DOCS").is_some() {
        std::fs::write(&path, text).expect("the page can be written");
    }
    let shipped = std::fs::read_to_string(&path).expect("the page is shipped");
    assert!(
        shipped == text,
        "docs/book/src/{page} is not what the code says: run this test once with WEFT_UPDATE_DOCS=1 and commit the page"
    );
}

/// Renders a text as a cell of a table: in one line, with the separator of cells escaped.
pub(crate) fn cell(text: &str) -> String {
    let words: Vec<_> = text.split_whitespace().collect();
    words.join(" ").replace('|', "\\|")
}

#[test]
fn the_books_reference_of_the_lab_file_is_that_of_the_schema() {
    assert_current("labs/lab-file.md", &page());
}

#[test]
fn the_reference_has_every_key_of_the_schema_and_only_what_must_be_there_is_required() {
    let (schema, page) = (schema(), page());
    let mut keys = 0;
    for definition in schema["$defs"]
        .as_object()
        .expect("definitions")
        .values()
        .chain([&schema])
    {
        for key in definition["properties"]
            .as_object()
            .into_iter()
            .flat_map(|keys| keys.keys())
        {
            assert!(page.contains(&format!("| `{key}`")), "{key}");
            keys += 1;
        }
    }
    assert!(keys > 80, "{keys}");
    // A NIC or a trunk without VLANs is the usual case.
    for name in ["NicFile", "TrunkFile"] {
        for key in ["vlan", "vlans"] {
            let required = schema["$defs"][name]["required"].as_array();
            assert!(required.is_none_or(|keys| !keys.contains(&key.into())), "{name} {key}");
        }
    }
}

fn schema() -> Value {
    serde_json::from_str(&super::schema()).expect("the schema is JSON")
}

/// A definition that a table refers to, with its first place in the file, such as `[[node.nic]]`.
#[derive(Clone)]
struct Reference {
    name: String,
    place: Place,
}

/// A place in the file: the keys that lead to it, and whether it is one of a list.
#[derive(Clone, Default)]
struct Place {
    path: String,
    is_list: bool,
}

impl Place {
    fn below(&self, key: &str) -> Self {
        Self {
            path: format!("{}.{key}", self.path).trim_start_matches('.').to_owned(),
            is_list: false,
        }
    }

    fn header(&self) -> String {
        if self.is_list {
            format!("[[{}]]", self.path)
        } else {
            format!("[{}]", self.path)
        }
    }
}

/// Renders the whole page: the file, its tables in the order in which it names them, and the kinds of values.
fn page() -> String {
    let schema = schema();
    let definitions = schema["$defs"].as_object().expect("definitions");
    // Each definition comes with the places at which a file has it.
    let mut found: Vec<(String, Vec<String>)> = Vec::new();
    let mut seen = BTreeSet::new();
    let mut waiting = VecDeque::from(references(&schema, &Place::default()));
    while let Some(Reference { name, place }) = waiting.pop_front() {
        if !seen.insert((name.clone(), place.header())) {
            continue;
        }
        waiting.extend(references(&definitions[&name], &place));
        match found.iter_mut().find(|(known, _)| *known == name) {
            Some((_, places)) => places.push(place.header()),
            None => found.push((name, vec![place.header()])),
        }
    }
    let is_table = |name: &String| definitions[name]["properties"].is_object();
    let mut page = INTRODUCTION.to_owned();
    page += &keys("The file", "", &schema);
    for (name, places) in found.iter().filter(|(name, _)| is_table(name)) {
        let places: Vec<_> = places.iter().map(|place| format!("`{place}`")).collect();
        let places = format!("In the file: {}.\n\n", places.join(", "));
        page += &keys(&title(name), &places, &definitions[name]);
    }
    page += "\n# Values\n\n";
    for (name, _) in found.iter().filter(|(name, _)| !is_table(name)) {
        page += &value(&title(name), &definitions[name]);
    }
    page.trim_end().to_owned() + "\n"
}

/// Returns the definitions that a part of the schema refers to, in its order.
fn references(schema: &Value, place: &Place) -> Vec<Reference> {
    let below = |key: &str, value: &Value| match (key, value) {
        ("$defs", _) => Vec::new(),
        ("$ref", Value::String(path)) => vec![Reference {
            name: definition_name(path),
            place: place.clone(),
        }],
        ("properties", Value::Object(keys)) => keys
            .iter()
            .flat_map(|(key, value)| references(value, &place.below(key)))
            .collect(),
        ("items", value) => {
            let place = Place {
                is_list: true,
                ..place.clone()
            };
            references(value, &place)
        }
        (_, value) => references(value, place),
    };
    match schema {
        Value::Object(keys) => keys.iter().flat_map(|(key, value)| below(key, value)).collect(),
        Value::Array(values) => values.iter().flat_map(|value| references(value, place)).collect(),
        _ => Vec::new(),
    }
}

fn definition_name(path: &str) -> String {
    path.trim_start_matches("#/$defs/").to_owned()
}

/// Returns the name of a definition for people: `NicSettingsFile` is `NIC settings`.
fn title(name: &str) -> String {
    let name = match name {
        "Span" => "Time",
        "Share" => "Probability",
        // This definition also has the form of a table.
        "CloudInitKey" => name,
        name => name.strip_suffix("File").unwrap_or(name),
    };
    let mut words = String::new();
    for (index, letter) in name.char_indices() {
        if index > 0 && letter.is_uppercase() {
            words.push(' ');
            words.extend(letter.to_lowercase());
        } else {
            words.push(letter);
        }
    }
    for (word, abbreviation) in [("Nic", "NIC"), ("Dma", "DMA"), ("Ecn", "ECN")] {
        words = words.replace(word, abbreviation);
    }
    words
}

/// Adapts a title for use within a sentence.
fn in_a_sentence(title: &str) -> String {
    let is_abbreviation = title.chars().nth(1).is_some_and(char::is_uppercase);
    if is_abbreviation {
        title.to_owned()
    } else {
        title.to_lowercase()
    }
}

fn anchor(title: &str) -> String {
    title.to_lowercase().replace(' ', "-")
}

fn description(schema: &Value) -> String {
    cell(schema["description"].as_str().unwrap_or_default())
}

/// Renders a section with a table of keys.
fn keys(title: &str, place: &str, schema: &Value) -> String {
    let described = description(schema);
    let mut text = format!("\n## {title}\n\n{place}{described}\n\n| key | value | meaning |\n|---|---|---|\n");
    let required: Vec<_> = schema["required"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    for (key, property) in schema["properties"].as_object().expect("a table has keys") {
        let required = if required.contains(&key.as_str()) {
            " (required)"
        } else {
            ""
        };
        let (kind, meaning) = (kind(property), description(property));
        _ = writeln!(text, "| `{key}`{required} | {} | {meaning} |", cell(&kind));
    }
    text
}

/// Describes in words what a value may be.
fn kind(schema: &Value) -> String {
    if let Some(path) = schema["$ref"].as_str() {
        let title = title(&definition_name(path));
        return format!("[{}](#{})", in_a_sentence(&title), anchor(&title));
    }
    if let Some(value) = schema["const"].as_str() {
        return format!("`\"{value}\"`");
    }
    if let Some(choices) = schema["anyOf"].as_array().or(schema["oneOf"].as_array()) {
        let kinds: Vec<_> = choices
            .iter()
            .filter(|choice| choice["type"] != "null")
            .map(kind)
            .collect();
        let are_several = kinds.iter().any(|kind| kind.contains(" or "));
        return kinds.join(if are_several { ", or " } else { " or " });
    }
    let types: Vec<_> = match &schema["type"] {
        Value::Array(types) => types.iter().filter_map(Value::as_str).collect(),
        Value::String(one) => vec![one.as_str()],
        _ => Vec::new(),
    };
    let words = types.iter().filter(|name| **name != "null").map(|name| match *name {
        "array" => format!("list of {}", kind(&schema["items"])),
        "object" => format!("table of {}", kind(&schema["additionalProperties"])),
        "boolean" => "`true` or `false`".to_owned(),
        "integer" => "number".to_owned(),
        other => other.to_owned(),
    });
    words.collect::<Vec<_>>().join(" or ")
}

/// Renders a section for a kind of value: its choices, or how it is written.
fn value(title: &str, schema: &Value) -> String {
    let mut text = format!("## {title}\n\n");
    let described = description(schema);
    if !described.is_empty() {
        text += &format!("{described}\n\n");
    }
    if let Some(example) = schema["examples"].as_array() {
        let examples: Vec<_> = example
            .iter()
            .filter_map(Value::as_str)
            .map(|example| format!("`\"{example}\"`"))
            .collect();
        _ = writeln!(text, "Such as {}.\n", examples.join(" or "));
    }
    if let Some(pattern) = schema["pattern"].as_str() {
        _ = writeln!(text, "```text\n{pattern}\n```\n");
    }
    for choice in schema["anyOf"]
        .as_array()
        .or(schema["oneOf"].as_array())
        .into_iter()
        .flatten()
    {
        let examples: Vec<_> = choice["examples"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        let examples: Vec<_> = examples.iter().map(|example| format!("`\"{example}\"`")).collect();
        let such_as = if examples.is_empty() {
            String::new()
        } else {
            format!(", such as {}", examples.join(" or "))
        };
        let described = description(choice);
        let colon = if described.is_empty() { "" } else { ": " };
        _ = writeln!(text, "- {}{such_as}{colon}{described}", kind(choice));
    }
    text.trim_end().to_owned() + "\n\n"
}
