//! Runs tshark with the dissector over generated frames, and generates pseudo-random numbers.

use std::{
    collections::BTreeMap,
    fs,
    process::{Command, Stdio},
};

use ether::{Time, pcapng};

/// A small generator with a seed, so that a failure can be repeated (Knuth's MMIX numbers).
pub struct Numbers(pub u64);

impl Numbers {
    pub fn number(&mut self) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 24
    }

    /// Returns a number below `limit`.
    pub fn below(&mut self, limit: usize) -> usize {
        (self.number() % limit as u64) as usize
    }

    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.number() as u8).collect()
    }
}

/// The fields that tshark prints of one frame, by name; fields that are absent have no entry.
pub type Fields = BTreeMap<String, String>;

/// Writes the frames as pcapng and reads them through tshark with the dissector. Each may be cut to its second length.
pub fn tshark(frames: &[(Vec<u8>, usize)], options: &[&str], fields: &[&str]) -> Vec<Fields> {
    let folder = tempfile::tempdir().unwrap();
    let (capture, script) = (
        folder.path().join("frames.pcapng"),
        folder.path().join(dissector::FILE_NAME),
    );
    let mut out = Vec::new();
    pcapng::section_header(&mut out, "weft dissector test");
    pcapng::interface_description(
        &mut out,
        &pcapng::Interface {
            name: "test",
            description: None,
            mac: None,
            snaplen_bytes: 0,
        },
    );
    for (number, (frame, kept)) in frames.iter().enumerate() {
        pcapng::enhanced_packet(
            &mut out,
            &pcapng::Packet {
                interface: 0,
                at: Time::from_nanos(number as u64),
                origin_unix_ns: 0,
                bytes: &frame[..*kept],
                original_len: frame.len() as u32,
                direction: None,
                comment: None,
            },
        );
    }
    fs::write(&capture, out).unwrap();
    fs::write(&script, dissector::SCRIPT).unwrap();
    let mut command = Command::new("tshark");
    command
        .arg("-n")
        .arg("-X")
        .arg(format!("lua_script:{}", script.display()))
        .arg("-r")
        .arg(&capture);
    // A configuration of the user must not change the result.
    command.env("XDG_CONFIG_HOME", folder.path()).env("HOME", folder.path());
    for option in options {
        command.args(["-o", option]);
    }
    command.args([
        "-T",
        "fields",
        "-E",
        "separator=/t",
        "-E",
        "occurrence=a",
        "-E",
        "aggregator=|",
    ]);
    for field in fields {
        command.args(["-e", field]);
    }
    let output = command
        .stdin(Stdio::null())
        .output()
        .expect("tshark (Debian package tshark) is needed");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    assert!(!stderr.contains("Lua"), "{stderr}");
    let text = String::from_utf8(output.stdout).unwrap();
    let rows: Vec<Fields> = text
        .lines()
        .map(|line| {
            fields
                .iter()
                .zip(line.split('\t'))
                .filter(|(_, value)| !value.is_empty())
                .map(|(field, value)| ((*field).to_owned(), value.to_owned()))
                .collect()
        })
        .collect();
    assert_eq!(rows.len(), frames.len(), "tshark reads every frame");
    rows
}

/// Parses a field as a number, whatever notation it is printed in.
pub fn number(fields: &Fields, name: &str) -> Option<u64> {
    let text = fields.get(name)?;
    Some(match text.as_str() {
        "True" => 1,
        "False" => 0,
        _ => match text.strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16).unwrap_or_else(|e| panic!("{name} = {text}: {e}")),
            None => text.parse().unwrap_or_else(|e| panic!("{name} = {text}: {e}")),
        },
    })
}
