//! Tests of the lab file as a whole: each of its keys, its schema, and the labs that are shipped.

use super::*;

/// Collects every key of a lab file by its path from the top, with whether the last table on the path is one of a list.
fn keys(
    schema: &serde_json::Value,
    at: &serde_json::Value,
    key_path: &[(String, bool)],
    found: &mut Vec<Vec<(String, bool)>>,
) {
    let resolve = |mut at: serde_json::Value| {
        loop {
            let alternatives = at["anyOf"].as_array().cloned();
            at = match (at["$ref"].as_str(), alternatives) {
                (Some(reference), _) => schema["$defs"][reference.trim_start_matches("#/$defs/")].clone(),
                (None, Some(alternatives)) => alternatives[0].clone(),
                (None, None) => return at,
            };
        }
    };
    for (name, key) in at["properties"].as_object().into_iter().flatten() {
        let (key, items) = (resolve(key.clone()), resolve(key["items"].clone()));
        let (table, is_list) = if items["properties"].is_object() {
            (items, true)
        } else {
            (key, false)
        };
        let mut key_path = key_path.to_vec();
        key_path.push((name.clone(), is_list));
        keys(schema, &table, &key_path, found);
        found.push(key_path);
    }
}

#[test]
fn whatever_stands_at_any_key_is_answered_in_words_that_are_not_those_of_the_reader() {
    let schema: serde_json::Value = serde_json::from_str(&schema()).expect("the schema is JSON");
    let mut found = Vec::new();
    keys(&schema, &schema, &[], &mut found);
    assert!(found.len() > 60, "{found:?}");
    let values = [
        "\"text\"",
        "5",
        "-1",
        "99999999999999999999",
        "1.5",
        "nan",
        "true",
        "1979-05-27T07:32:00Z",
        "07:32:00",
        "[]",
        "[1]",
        "[[]]",
        "[\"a\"]",
        "[\"a\", \"b\", \"c\"]",
        "{}",
        "{ x = 1 }",
        "[{ x = 1 }]",
    ];
    let never = [
        "invalid",
        "sequence",
        "tuple",
        "array",
        "struct",
        "variant",
        "map",
        "i64",
        "u64",
        "u32",
        "u16",
        "u8",
        "f64",
        "usize",
        "newtype",
        "untagged",
        "did not match",
        "unit",
        "Option",
        "enum",
        "floating point",
        "integer",
        "boolean",
        "string",
        "identifier",
        "`nan`",
        "type:",
        "borrowed",
        "$__",
    ];
    let mut wrong = Vec::new();
    for key_path in &found {
        for value in values {
            let text = written_at(key_path, value);
            let Err(error) = parse(&text) else { continue };
            for problem in error.problems() {
                let said = format!("{} = {}", problem.message, problem.help);
                if never.iter().any(|word| said.contains(word)) {
                    wrong.push(format!("{}: {said}", text.trim_end()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Makes a lab file in which only `value` is set, at the key of this path.
fn written_at(key_path: &[(String, bool)], value: &str) -> String {
    let mut text = value.to_owned();
    for (depth, (key, _)) in key_path.iter().enumerate().rev() {
        text = format!("{key} = {text}");
        let Some(outer) = depth.checked_sub(1) else { break };
        text = if key_path[outer].1 {
            format!("[{{ {text} }}]")
        } else {
            format!("{{ {text} }}")
        };
    }
    text + "\n"
}

#[test]
fn the_shipped_schema_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("lab.schema.json");
    if std::env::var_os("WEFT_UPDATE_SCHEMA").is_some() {
        std::fs::write(&path, schema()).expect("the schema can be written");
    }
    let shipped = std::fs::read_to_string(&path).expect("testbed/lab.schema.json is shipped");
    assert!(
        shipped == schema(),
        "run this test once with WEFT_UPDATE_SCHEMA=1 and commit testbed/lab.schema.json"
    );
}

#[test]
fn the_shipped_labs_are_valid_and_named_like_their_files() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("experiments");
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder).expect("labs are shipped") {
        let path = entry.expect("readable").path();
        let lab = crate::lab_file::load(&path).unwrap_or_else(|error| panic!("{error:#}"));
        assert_eq!(Some(lab.name.as_str()), path.file_stem().and_then(|stem| stem.to_str()));
        if lab.name == "cluster" {
            assert_eq!((lab.nodes.len(), lab.switches.len(), lab.trunks.len()), (4, 2, 1));
            assert!(lab.ports().all(|(_, _, nic)| nic.mtu == 9000 && nic.address.is_some()));
        }
        names.push(lab.name);
    }
    assert!(names.iter().any(|name| name == "cluster"), "{names:?}");
}
