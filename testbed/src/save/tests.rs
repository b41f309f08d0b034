//! Tests of folders of saved labs: they are written completely or not at all, and read with suspicion.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Result, bail};
use tempfile::TempDir;

use super::*;
use crate::{
    accel::AccelChoice,
    lab::LabFolder,
    qemu::Version,
    vnicd_client::{
        Drained, PortPacketsGiven, PortTimer,
        report::{ArmedTimer, PacketsGiven},
    },
};

const LAB: &str = r#"
name = "pair"
[[switch]]
name = "s1"
stp = true
snooping = true
[[switch]]
name = "s2"
stp = true
reserved = "forward"
[[trunk]]
between = ["s1", "s2"]
vlans = [10, 20]
link = { delay = "1ms" }
[[trunk]]
between = ["s1", "s2"]
vlans = [10, 20]
stp_cost = 7
[[node]]
name = "n1"
labels = { role = "sender" }
nic = [{ switch = "s1", queue_pairs = 2, address6 = "fd00::1/64", link = { loss = "gemodel 1% 25%" } }]
files = [{ text = "hello", to = "/etc/motd", mode = "0600" }]
exec = ["true"]
env = { A = "b" }
sysctl = { net.ipv4.ip_forward = 1 }
[[node]]
name = "n2"
packages = ["tcpdump"]
memory = "256M"
nic = [{ switch = "s2", vlan = 10, address = "none" }, { switch = "s1" }]
uplink = true
"#;

fn lab(text: &str) -> Lab {
    let folder = LabFolder::new(Path::new("/labs"), &crate::lab_file::at_path);
    Lab::parse_in(text, "lab.toml", "pair", folder, None).expect("valid")
}

/// Makes the manifest of a saved [`LAB`], with files that do not exist.
fn manifest(lab: Lab) -> Manifest {
    let file = |name: String| SavedFile {
        name,
        bytes: 5,
        sha256: "0".repeat(64),
    };
    let mut settings = Settings::of(&lab);
    let timer = ArmedTimer {
        timer: 3,
        owner: ether::MacAddr([0x52, 0x54, 0, 0, 0, 1]),
        kind: firmware::TimerKind::Once,
        period_ns: 0,
        due: ether::Time::from_nanos(77),
    };
    let port = "n1.eth0".to_owned();
    let given = PacketsGiven {
        group: 0x8000,
        count: 70,
    };
    settings.hand_over(&Drained {
        on_links: 0,
        in_dma: 0,
        waited_ns: 0,
        timers: vec![PortTimer {
            port: port.clone(),
            timer,
        }],
        packets_given: vec![PortPacketsGiven { port, given }],
    });
    let nodes = lab.nodes.iter().map(|node| SavedNode {
        name: node.name.clone(),
        state: file(format!("{}.state", node.name)),
        kernel: file("file0-vmlinuz".to_owned()),
        initramfs: Some(file("file1-initramfs.cpio".to_owned())),
        disks: Vec::new(),
        image: Some(("6.1".to_owned(), "abc".to_owned())),
    });
    Manifest {
        weft: "0.1.0".to_owned(),
        saved_unix_ms: 1_000,
        qemu: "7.2.22".to_owned(),
        accel: Accel::Tcg,
        cpu_flags: Vec::new(),
        file: Some(PathBuf::from("/labs/lab.toml")),
        nodes: nodes.collect(),
        settings,
        lab,
    }
}

/// Writes a saved lab with small files, changed by `change` before it is sealed.
fn written(target: &Path, replace: bool, change: impl FnOnce(&mut Manifest)) -> Result<u64> {
    let mut writer = Writer::begin(target, replace)?;
    let mut manifest = manifest(lab(LAB));
    let source = target.with_file_name("vmlinuz");
    fs::write(&source, "a kernel")?;
    for node in &mut manifest.nodes {
        let state = format!("state of {}", node.name);
        node.state = writer.write(&node.state.name, state.as_bytes(), &mut |_| Ok(()))?;
        node.kernel = writer.copy(&source, &mut |_| Ok(()))?;
        node.initramfs = None;
    }
    change(&mut manifest);
    writer.finish(&manifest, &mut || Ok(()))
}

fn entries(folder: &TempDir) -> Vec<String> {
    let names = fs::read_dir(folder.path()).expect("readable");
    let mut names: Vec<_> = names
        .map(|entry| entry.expect("readable").file_name().into_string().expect("text"))
        .collect();
    names.sort();
    names
}

fn refusal(folder: &Path) -> String {
    let opened = Saved::open(folder).and_then(|saved| saved.verify(&mut |_| ()));
    let sentence = format!("{:#}", opened.expect_err("it is damaged"));
    assert!(!sentence.contains('\n'), "{sentence}");
    sentence
}

#[test]
fn what_was_saved_is_read_back_as_it_was() {
    let folder = tempfile::tempdir().expect("a folder");
    let target = folder.path().join("pair.save");
    let mut before = None;
    let bytes = written(&target, false, |manifest| before = Some(manifest.clone())).expect("written");
    let saved = Saved::open(&target).expect("whole");
    assert_eq!(Some(saved.manifest()), before.as_ref(), "lab, settings and files");
    let mut seen = Vec::new();
    saved
        .verify(&mut |file| seen.push(file.name.clone()))
        .expect("as it was");
    assert_eq!(seen, ["n1.state", "file0-vmlinuz", "n2.state"], "shared files once");
    let lengths = fs::read_dir(&target)
        .expect("readable")
        .map(|entry| entry.expect("readable").metadata());
    assert_eq!(bytes, lengths.map(|found| found.expect("there").len()).sum::<u64>());
    let boot = saved.boot("n2").expect("it is in there");
    assert_eq!(boot.kernel, Some(target.join("file0-vmlinuz")));
    assert_eq!(entries(&folder), ["pair.save", "vmlinuz"]);
    use std::os::unix::fs::PermissionsExt;
    let mode = |path: &Path| fs::metadata(path).expect("there").permissions().mode() & 0o777;
    assert_eq!(
        (mode(&target), mode(&target.join("n1.state"))),
        (0o700, 0o600),
        "memory holds secrets"
    );
}

#[test]
fn damage_of_every_kind_is_one_sentence() {
    let folder = tempfile::tempdir().expect("a folder");
    let target = folder.path().join("pair.save");
    assert!(refusal(&target).ends_with("is not a saved lab: there is no save.json in it"));
    let state = target.join("n2.state");
    let list = target.join("save.json");
    type Damage<'a> = (&'a str, Box<dyn Fn() + 'a>);
    let changed = |path: &Path, from: &str, to: &str| {
        let text = fs::read_to_string(path).expect("text").replacen(from, to, 1);
        fs::write(path, text).expect("written");
    };
    let damages: Vec<Damage<'_>> = vec![
        ("n2.state is wrong", Box::new(|| changed(&state, "state", "State"))),
        (
            "has 0 bytes instead of 11",
            Box::new(|| fs::write(&state, "").expect("written")),
        ),
        ("incomplete", Box::new(|| fs::remove_file(&state).expect("removed"))),
        (
            "its checksum is wrong",
            Box::new(|| changed(&list, "\"cpus\": 1", "\"cpus\": 9")),
        ),
        (
            "has the format 2 and this",
            Box::new(|| changed(&list, "\"weft_save\":1", "\"weft_save\":2")),
        ),
        ("its first line", Box::new(|| changed(&list, "weft_save", "gulliver"))),
        (
            "it has no first line",
            Box::new(|| fs::write(&list, "").expect("written")),
        ),
        (
            "it is too long",
            Box::new(|| {
                let file = fs::File::create(&list).expect("made");
                file.set_len(super::MANIFEST_LEN_MAX + 1).expect("no blocks are needed");
            }),
        ),
    ];
    for (expected, damage) in damages {
        written(&target, true, |_| ()).expect("written");
        damage();
        let sentence = refusal(&target);
        assert!(sentence.contains(expected), "{expected}: {sentence}");
    }
}

#[test]
fn a_save_whose_seal_is_right_is_not_trusted_either() {
    let folder = tempfile::tempdir().expect("a folder");
    let target = folder.path().join("pair.save");
    type Change = (&'static str, fn(&mut Manifest));
    let changes: [Change; 8] = [
        ("\"../n1\" is no name", |manifest| {
            manifest.lab.nodes[0].name = "../n1".to_owned()
        }),
        ("\"\" is no name", |manifest| manifest.lab.name.clear()),
        ("differ", |manifest| manifest.nodes.truncate(1)),
        ("it has no nodes, too many", |manifest| {
            manifest.nodes.clear();
            manifest.lab.nodes.clear();
        }),
        ("\"../../etc/shadow\" is no name of a file", |manifest| {
            manifest.nodes[1].kernel.name = "../../etc/shadow".to_owned();
        }),
        ("more cards or processors", |manifest| {
            manifest.lab.nodes[0].cpus = 1 << 20
        }),
        ("no guest knows a disk", |manifest| {
            let contents = manifest.nodes[0].kernel.clone();
            let serial = "x,readonly=off".to_owned();
            manifest.nodes[0].disks.push(SavedDisk { serial, contents });
        }),
        ("n1 boots a disk of its own", |manifest| {
            let image = PathBuf::from("/etc/shadow");
            manifest.lab.nodes[0].boot = Boot::Disk { image, writable: true };
        }),
    ];
    for (expected, change) in changes {
        written(&target, true, change).expect("written");
        let sentence = refusal(&target);
        assert!(sentence.contains(expected), "{expected}: {sentence}");
    }
    written(&target, true, |_| ()).expect("written");
    fs::remove_file(target.join("n1.state")).expect("removed");
    std::os::unix::fs::symlink("/dev/zero", target.join("n1.state")).expect("linked");
    assert!(refusal(&target).contains("n1.state has"), "links are not followed");
}

#[test]
fn a_save_is_there_whole_or_not_at_all_and_replaces_nothing_else() {
    let folder = tempfile::tempdir().expect("a folder");
    let target = folder.path().join("pair.save");
    let mut writer = Writer::begin(&target, false).expect("free");
    let taken = Writer::begin(&target, false).expect_err("one is at it").to_string();
    assert!(taken.starts_with("another weft is writing "), "{taken}");
    let mut pieces = 0;
    let stopped = writer.write("n1.state", &[7; 3 << 20][..], &mut |_| {
        pieces += 1;
        if pieces == 2 { bail!("enough") } else { Ok(()) }
    });
    assert_eq!(stopped.expect_err("stopped").to_string(), "enough");
    assert!(!target.exists(), "its name comes last");
    drop(writer);
    assert!(entries(&folder).is_empty(), "nothing half-written stays");

    // A folder that a killed process left is no obstacle.
    fs::create_dir(folder.path().join(".pair.save.partial")).expect("made");
    written(&target, false, |_| ()).expect("written");
    let before = fs::read(target.join("save.json")).expect("there");
    let there = written(&target, false, |_| ()).expect_err("it is there").to_string();
    assert!(
        there.ends_with("exists: choose another name, or replace it with --force"),
        "{there}"
    );
    let failed = written(&target, true, |manifest| manifest.weft = "other".to_owned()).expect("replaced");
    assert!(failed > 0 && fs::read(target.join("save.json")).expect("there") != before);
    assert_eq!(entries(&folder), ["pair.save", "vmlinuz"]);

    // A file that is saved again keeps its name.
    let mut again = Writer::begin(&folder.path().join("again.save"), false).expect("free");
    let kernel = again.copy(&target.join("file0-vmlinuz"), &mut |_| Ok(()));
    assert_eq!(kernel.expect("copied").name, "file0-vmlinuz");
    drop(again);

    let precious = folder.path().join("precious");
    fs::create_dir(&precious).expect("made");
    let refused = Writer::begin(&precious, true).expect_err("no save").to_string();
    assert!(
        refused.contains("is not a saved lab, so it is not replaced"),
        "{refused}"
    );
}

#[test]
fn a_save_that_is_not_wanted_at_its_end_leaves_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let target = folder.path().join("pair.save");
    let writer = Writer::begin(&target, false).expect("free");
    let refused = writer.finish(&manifest(lab(LAB)), &mut || bail!("the client is gone"));
    assert_eq!(refused.expect_err("not wanted").to_string(), "the client is gone");
    assert!(entries(&folder).is_empty());
}

#[test]
fn only_the_qemu_and_the_accelerator_that_saved_it_go_on_with_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let target = folder.path().join("pair.save");
    written(&target, false, |_| ()).expect("written");
    let saved = Saved::open(&target).expect("whole");
    let version = |major, minor, micro| Version { major, minor, micro };
    for accel in [AccelChoice::Auto, AccelChoice::Tcg] {
        saved.check_means(version(7, 2, 23), accel).expect("of the same series");
    }
    for (qemu, accel, expected) in [
        (
            version(10, 0, 2),
            AccelChoice::Auto,
            "saved by QEMU 7.2.22 and this is QEMU 10.0.2",
        ),
        (
            version(7, 2, 22),
            AccelChoice::Kvm,
            "saved under tcg and cannot continue under kvm",
        ),
    ] {
        let sentence = saved.check_means(qemu, accel).expect_err("not here").to_string();
        assert!(sentence.contains(expected), "{sentence}");
    }
}

#[test]
fn guests_that_qemu_cannot_save_are_named_with_the_reason() {
    let text = format!("{LAB}mount = [{{ from = \"/tmp\", to = \"/mnt\" }}]\n");
    let lab = lab(&text);
    assert_eq!(why_not(&lab.nodes[0]), None);
    let why = why_not(&lab.nodes[1]).expect("it has a folder");
    assert_eq!(
        why,
        "n2 has folders of this machine (`mount`), and QEMU cannot save a guest that uses them"
    );
}

#[test]
fn timers_of_guests_wait_as_long_as_the_lab_is_not_there() {
    let mut manifest = manifest(lab(LAB));
    manifest.settings.shift_timers(1_000);
    let state = crate::state::StateDir::at(Path::new("/run/weft/pair"));
    let config = manifest
        .settings
        .vnicd_config(&manifest.lab, &state)
        .expect("short paths");
    assert_eq!(config.ports[0].timers[0].due.as_nanos(), 1_077);
}
