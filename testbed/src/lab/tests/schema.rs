//! The JSON schema and `weft` take and refuse the same files, but for what a schema cannot say.

use serde_json::Value;

use super::*;

/// Keys that a table has to have, with their values.
type Required = &'static [(&'static str, &'static str)];

/// Tables of a lab file: the definition in the schema, the text before the key, and the keys that have to be there.
const TABLES: [(&str, &str, Required); 15] = [
    ("", "", &[]),
    ("DefaultsFile", "[defaults]\n", &[]),
    ("NicSettingsFile", "[defaults.nic]\n", &[]),
    ("SwitchFile", "[[switch]]\n", &[("name", "\"s9\"")]),
    ("NodeFile", "[[node]]\n", &[("name", "\"n9\"")]),
    ("NicFile", "[[node]]\nname = \"n9\"\n[[node.nic]]\n", &[]),
    (
        "CoalescingFile",
        "[[node]]\nname = \"n9\"\n[[node.nic]]\n[node.nic.coalescing]\n",
        &[],
    ),
    (
        "DmaFile",
        "[[node]]\nname = \"n9\"\n[[node.nic]]\n[node.nic.dma]\n",
        &[],
    ),
    (
        "SteeringFile",
        "[[node]]\nname = \"n9\"\n[[node.nic]]\n[node.nic.steering]\n",
        &[],
    ),
    (
        "LinkFile",
        "[[node]]\nname = \"n9\"\n[[node.nic]]\n[node.nic.link]\n",
        &[],
    ),
    ("BurstLoss", "[defaults.link.loss]\n", &[("enter", "\"1%\"")]),
    (
        "TrunkFile",
        "[[switch]]\nname = \"a\"\n[[switch]]\nname = \"b\"\n[[trunk]]\n",
        &[("between", "[\"a\", \"b\"]")],
    ),
    (
        "CableFile",
        "[[node]]\nname = \"n9\"\n[[node]]\nname = \"n8\"\n[[cable]]\n",
        &[("between", "[\"n9.eth1\", \"n8.eth1\"]")],
    ),
    (
        "GuestFileFile",
        "[[node]]\nname = \"n9\"\n[[node.files]]\n",
        &[("text", "\"x\""), ("to", "\"/x\"")],
    ),
    (
        "CloudInitFile",
        "[[node]]\nname = \"n9\"\ndisk = \"/there\"\n[node.cloud_init]\n",
        &[],
    ),
];

/// Values as they are written, for any key.
const VALUES: &[&str] = &[
    "true",
    "false",
    "-1",
    "0",
    "1",
    "2",
    "16",
    "17",
    "31",
    "32",
    "64",
    "65",
    "67",
    "68",
    "99",
    "100",
    "1500",
    "4095",
    "4096",
    "9000",
    "9001",
    "61440",
    "65521",
    "65522",
    "65535",
    "65536",
    "200000000",
    "200000001",
    "4294967295",
    "4294967296",
    "1.5",
    "[]",
    "{}",
    "[1]",
    "[16]",
    "[\"a\"]",
    "[\"A b\"]",
    "[\"a\", \"b\"]",
    "[\"10\", 20]",
    "[5000]",
    "{ a = 1 }",
    "{ A = \"b\" }",
    "{ \"A=B\" = \"b\" }",
    "{ \"1A\" = \"b\" }",
    "{ \"../x\" = 1 }",
    "{ \"net.ipv4.ip_forward\" = 1 }",
    "[\"n9\", \"n8\"]",
    "[\"n9.ETH1\", \"n8.eth1\"]",
    "[\"n9.eth-1\", \"n8.eth1\"]",
    "\"\"",
    "\"none\"",
    "\"all\"",
    "\"off\"",
    "\"0\"",
    "\"10\"",
    "\"unlimited\"",
    "\"0bit\"",
    "\"1bit\"",
    "\"10Gbit\"",
    "\"1.5GBIT\"",
    "\"10Gbps\"",
    "\"1ns\"",
    "\"99ms\"",
    "\"100ms\"",
    "\"999.9ms\"",
    "\"1s\"",
    "\"1.5s\"",
    "\"10s\"",
    "\"10.0s\"",
    "\"10.1s\"",
    "\"600s\"",
    "\"601s\"",
    "\"1h\"",
    "\"64M\"",
    "\"143M\"",
    "\"144M\"",
    "\"0.5G\"",
    "\"64G\"",
    "\"64.0GiB\"",
    "\"65G\"",
    "\"65537M\"",
    "\"131072K\"",
    "\"134217728B\"",
    "\"32K\"",
    "\"100 packets\"",
    "\"0%\"",
    "\"0.1%\"",
    "\"100%\"",
    "\"100.1%\"",
    "\"101%\"",
    "\"250ppm\"",
    "\"1000001ppm\"",
    "\"gemodel 1% 25%\"",
    "\"gemodel 1% 125%\"",
    "\"10.77.1.9/24\"",
    "\"10.0.0.300/24\"",
    "\"10.77.1.9/31\"",
    "\"10.77.1.9\"",
    "\"10.9.0.0/16\"",
    "\"010.0.0.0/8\"",
    "\"fd00::/64\"",
    "\"fd00::7/64\"",
    "\"fd00::g/64\"",
    "\"fd00::7/127\"",
    "\"52:54:00:00:00:77\"",
    "\"53:54:00:00:00:77\"",
    "\"52:54:00:00:00\"",
    "\"PC_1\"",
    "\"a.b\"",
    "\"a..b\"",
    "\"n1.eth0\"",
    "\"9n\"",
    "\"a-\"",
    "\"ä\"",
    "\"a b\"",
    "\"abcdefghijklmnopqrstuvwxyz\"",
    "\"/x\"",
    "\"/x/../y\"",
    "\"/\"",
    "\"x\"",
    "\"0755\"",
    "\"0788\"",
    "\"minimal\"",
    "\"Minimal\"",
    "\"forward\"",
    "\"uio\"",
    "\"flow\"",
    "\"pareto\"",
    "\"open-mx\"",
];

/// Parts of the sentences about what depends on other keys, on what exists, or on arithmetic: a schema cannot say it.
const BEYOND_A_SCHEMA: &[&str] = &[
    "there is no ",
    "this lab has no node",
    "never exceeded",
    "delay of 1ns is too short",
    "is taken by",
    "is not in the network",
    "is an address in a network",
    "network's own",
    "is not an address of a host",
    "overlap",
    "no effect",
    "has no queue",
    "without a",
    "closes a loop",
    "has no IP address",
    "cannot be a NIC's own",
    "connected to itself",
    "takes no part",
    "needs one of Weft's images",
    "is too low",
    "is a folder that the guest needs",
    "an MTU of 9001 ",
    "an MTU of 61440 ",
    "an MTU of 65521 ",
    "an MTU of 65522 ",
    "an MTU of 65535 ",
    "does not say which switch",
    "has no offloads",
    "begins no number",
    "name of a kernel setting",
    "is no threshold",
    "cannot be the name of a user",
    "cannot have a speed of",
    "of no use",
    "either from `disk`",
    "no address left",
];

fn validator(schema: &Value) -> jsonschema::Validator {
    jsonschema::validator_for(schema).expect("the schema is one")
}

#[test]
fn the_schema_and_weft_agree_on_every_key_with_every_value() {
    let schema: Value = serde_json::from_str(&super::super::schema()).expect("the schema is JSON");
    let validator = validator(&schema);
    let at_path = |path: &Path| {
        if path == Path::new("/there") {
            AtPath::File
        } else {
            AtPath::Nothing
        }
    };
    let folder = LabFolder::new(Path::new("/nowhere"), &at_path);
    let (mut taken, mut refused, mut wrong) = (0, 0, Vec::new());
    for (definition, before, required) in TABLES {
        let table = if definition.is_empty() {
            &schema
        } else {
            &schema["$defs"][definition]
        };
        for key in table["properties"].as_object().expect(definition).keys() {
            for value in VALUES {
                let others = required.iter().filter(|(other, _)| other != key);
                // Of `from` and `text` a file has one.
                let others = others.filter(|(other, _)| (key.as_str(), *other) != ("from", "text"));
                let others: String = others.map(|(other, value)| format!("{other} = {value}\n")).collect();
                let node = if before.contains("[[node]]") {
                    ""
                } else {
                    "[[node]]\nname = \"n1\"\n"
                };
                let own = format!("{before}{others}{key} = {value}\n");
                let text = match before {
                    "" if key == "node" => own,
                    _ => format!("{own}{node}"),
                };
                let Ok(file) = toml::from_str::<Value>(&text) else {
                    continue;
                };
                let by_schema = validator.is_valid(&file);
                let by_weft = Lab::parse_in(&text, "lab.toml", "lab", folder, None);
                match (by_schema, &by_weft) {
                    (true, Ok(_)) => taken += 1,
                    (false, Err(_)) => refused += 1,
                    (true, Err(error)) => {
                        let said = error.problems()[0].message.as_str();
                        if !BEYOND_A_SCHEMA.iter().any(|part| said.contains(part)) {
                            wrong.push(format!("{definition}.{key} = {value}: only weft refuses it: {said}"));
                        }
                    }
                    (false, Ok(_)) => wrong.push(format!("{definition}.{key} = {value}: only the schema refuses it")),
                }
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {}:\n{}",
        wrong.len(),
        taken + refused,
        wrong.join("\n")
    );
    assert!(taken > 500 && refused > 5000, "{taken} {refused}");
}

#[test]
fn what_the_schema_took_before_is_refused_by_both() {
    let schema: Value = serde_json::from_str(&super::super::schema()).expect("the schema is JSON");
    let validator = validator(&schema);
    for keys in [
        "count = 65",
        "nic = [{ queue_pairs = 17 }]",
        "memory = \"64M\"",
        "nic = [{ address = \"10.0.0.300/24\" }]",
        "nic = [{ link = { delay = \"11s\" } }]",
        "env = { \"A=B\" = \"x\" }",
        "sysctl = { \"net..x\" = 1 }",
        "files = [{ to = \"/x\" }]",
        "files = [{ to = \"/x\", from = \"/there\", text = \"\" }]",
        "initramfs = \"/there\"",
        "[[cable]]\nbetween = [\"n1\", \"n1\"]",
    ] {
        let text = format!("[[node]]\nname = \"n1\"\n{keys}\n");
        assert!(parse(&text).is_err(), "{keys}");
        let file: Value = toml::from_str(&text).expect(keys);
        assert!(!validator.is_valid(&file), "{keys}");
    }
    for text in [
        include_str!("../../cli/lab/example.toml"),
        include_str!("../../demo/demo.toml"),
    ] {
        let file: Value = toml::from_str(text).expect("TOML");
        let errors: Vec<_> = validator.iter_errors(&file).map(|error| error.to_string()).collect();
        assert_eq!(errors, Vec::<String>::new());
    }
}
