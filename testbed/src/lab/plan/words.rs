//! The names of settings in a plan: the words of the lab file, where a lab has other ones.

use serde_json::{Map, Value};

use super::super::Node;

/// Beginnings of the names of a lab's settings, and the words of the lab file for them.
const BEGINNINGS: [(&str, &str); 6] = [
    ("from_guest.", "link_from_guest."),
    ("to_guest.", "link_to_guest."),
    ("link.a_to_b.", "link_forth."),
    ("link.b_to_a.", "link_back."),
    ("vlans.untagged", "vlan"),
    ("vlans.tagged", "vlans"),
];

/// Returns the words of the lab file for the name of a setting.
pub(super) fn of_key(key: &str) -> String {
    let word = |(lab, file)| key.strip_prefix(lab).map(|rest| format!("{file}{rest}"));
    BEGINNINGS.into_iter().find_map(word).unwrap_or_else(|| key.to_owned())
}

/// Returns the settings of a node, as JSON, in the form of its table in a lab file: what it boots and what is set up in it are keys of
/// the node itself, and each NIC has the name that it has in the guest.
pub(super) fn of_node(node: &Node, value: Value) -> Value {
    let Value::Object(mut keys) = value else { return value };
    if let Some(Value::Object(boot)) = keys.remove("boot") {
        for (kind, parts) in boot {
            boots(&kind, parts, &mut keys);
        }
    }
    if let Some(Value::Object(setup)) = keys.remove("setup") {
        keys.extend(setup);
    }
    for file in keys
        .get_mut("files")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        in_one_table(file);
    }
    if let Some(Value::Array(nics)) = keys.remove("nics") {
        keys.extend((0..).zip(nics).map(|(index, nic)| (node.interface(index), nic)));
    }
    Value::Object(keys)
}

/// Adds the keys of what a node boots.
fn boots(kind: &str, parts: Value, keys: &mut Map<String, Value>) {
    let Value::Object(mut parts) = parts else { return };
    if kind == "Disk" {
        keys.extend(parts.remove("image").map(|image| ("disk".to_owned(), image)));
        keys.extend(
            parts
                .remove("writable")
                .map(|writable| ("disk_writable".to_owned(), writable)),
        );
    }
    if let Some(Value::Object(mut image)) = parts.remove("image") {
        // Those are told by `mount`.
        image.remove("host_folders");
        keys.extend(image.remove("recipe").map(|recipe| ("image".to_owned(), recipe)));
        let own = image.remove("kernel");
        keys.extend(image);
        if let Some(Value::Object(own)) = own {
            keys.extend(own);
        }
    }
    keys.extend(parts);
    // What a node does not have is not a setting of it, whatever the other one boots.
    keys.retain(|_, value| !(value.is_null() || value == "" || value == &Value::Array(Vec::new())));
}

/// Puts the source of a file beside its other keys, and permissions as they are written.
fn in_one_table(file: &mut Value) {
    let Value::Object(keys) = file else { return };
    if let Some(Value::Object(source)) = keys.remove("source") {
        keys.extend(source);
    }
    if let Some(mode) = keys.get("mode").and_then(Value::as_u64) {
        keys.insert("mode".to_owned(), format!("{mode:04o}").into());
    }
}
