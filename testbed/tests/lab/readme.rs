//! Tests of the README and the book beside their [sessions](crate::sessions): `vnicd` and QEMU are started with their lines, their XML is
//! parsed, and what they name exists.

use std::{
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use clap::{Parser, error::ErrorKind};
use testbed::{cli::Cli, guest_channel::GuestChannel, image, vnicd_client::VnicdClient};

use crate::{
    sessions::path,
    support::{PATIENCE, World, eventually, qemus},
};

/// Text of the first page; the lab that it starts is the one of `weft init`.
const README: &str = include_str!("../../../README.md");

/// Time within which a guest on a busy machine has booted.
const BOOT_TIME_MAX: Duration = Duration::from_secs(180);

/// A page with its path and its text.
pub struct Page {
    pub path: PathBuf,
    pub text: String,
}

/// Returns the README and the pages of the book that are for users.
pub fn pages() -> Vec<Page> {
    let mut paths = vec![root().join("README.md")];
    let mut folders = vec![root().join("docs/book/src")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("the book has pages") {
            let path = entry.expect("readable").path();
            if path.is_dir() {
                folders.push(path);
            } else {
                paths.push(path);
            }
        }
    }
    paths.sort();
    let read = |path: PathBuf| Page {
        text: std::fs::read_to_string(&path).expect("a page is text"),
        path,
    };
    paths.into_iter().map(read).collect()
}

impl Page {
    /// Returns the page's code blocks of this language.
    fn blocks(&self, language: &str) -> Vec<&str> {
        let fence = format!("\n```{language}\n");
        let block = |rest| str::split_once(rest, "```").expect("the block ends").0;
        self.text.split(&fence).skip(1).map(block).collect()
    }

    /// Returns the commands of the page's `sh` blocks, with continued lines joined and remarks removed.
    fn shell_commands(&self) -> Vec<String> {
        let joined: Vec<_> = self
            .blocks("sh")
            .iter()
            .map(|block| block.replace("\\\n", " "))
            .collect();
        let lines = joined.iter().flat_map(|block| block.lines());
        let command = |line: &str| line.split(" #").next().unwrap_or_default().trim().to_owned();
        lines.map(command).filter(|command| !command.is_empty()).collect()
    }

    /// Returns words between single backticks in the text, except in tables, where a `|` may be escaped.
    fn spans(&self) -> Vec<String> {
        let text: String = self.text.split("```").step_by(2).collect();
        let spans = text.split('`').skip(1).step_by(2);
        spans
            .map(|span| {
                span.split_whitespace()
                    .collect::<Vec<_>>()
                    .join(" ")
                    .replace("\\|", "|")
            })
            .collect()
    }
}

/// Returns the page of the book at this path.
fn page(path: &str) -> Page {
    let path = root().join("docs/book/src").join(path);
    let found = pages().into_iter().find(|page| page.path == path);
    found.unwrap_or_else(|| panic!("the book has no {}", path.display()))
}

pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// Checks that `weft` understands these words; a verb that is only named may lack its arguments.
fn check_weft(command: &str) {
    let words = command.split('|').next().unwrap_or_default().split_whitespace();
    if let Err(error) = Cli::try_parse_from(words) {
        let harmless = [
            ErrorKind::DisplayHelp,
            ErrorKind::MissingRequiredArgument,
            ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand,
        ];
        assert!(
            harmless.contains(&error.kind()),
            "`{command}` in the documents: {error}"
        );
    }
}

#[test]
fn what_the_readme_names_exists() {
    let (mut scripts, mut verbs, mut files) = (0, 0, 0);
    let mut pages = pages();
    // The examples on this page are those of `--help`, and tested there.
    pages.retain(|page| !page.path.ends_with("labs/verbs.md"));
    for command in pages
        .iter()
        .flat_map(|page| page.shell_commands().into_iter().chain(page.spans()))
    {
        let mut words = command.split_whitespace();
        let first = words.next().unwrap_or_default();
        if let Some(script) = first.strip_prefix("scripts/") {
            let file = root().join(first);
            let text = std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{first}: {error}"));
            let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&file).unwrap().permissions());
            assert_eq!(mode & 0o111, 0o111, "{first} can be run");
            let words: Vec<_> = words.skip_while(|word| *word == "--no-install").collect();
            match (script, words.first()) {
                ("weft", Some(_)) => check_weft(&format!("weft {}", words.join(" "))),
                ("bench", Some(what)) => {
                    // One of the names of a branch, as in `dataplane | guests)`.
                    let is_branch = |line: &str| line.trim_end_matches(')').split(" | ").any(|name| name == *what);
                    assert!(text.lines().any(is_branch), "{command}");
                }
                ("build", Some(_)) => {
                    let is_known = |name: &&str| text.split([' ', '|', '\n']).any(|word| word == *name);
                    assert!(words.iter().all(is_known), "{command}");
                }
                ("esp-library", Some(&"--all")) => {}
                // These get files or commands: sessions type them.
                ("strategy" | "two-hosts", Some(_)) | (_, None) => {}
                _ => panic!("`{command}` in the documents is unknown"),
            }
            scripts += 1;
        } else if matches!(first, "weft" | "target/release/weft") && command != "weft" {
            check_weft(&command.replace("target/release/", ""));
            verbs += 1;
        } else if first.contains('/')
            && [".md", ".lua", ".toml", ".rs", ".json"]
                .iter()
                .any(|end| first.ends_with(end))
        {
            assert!(root().join(first).is_file(), "{first}");
            files += 1;
        }
    }
    assert!(scripts >= 6 && verbs >= 10 && files >= 5, "{scripts} {verbs} {files}");
    let needed = format!("**Rust {} or newer**", env!("CARGO_PKG_RUST_VERSION"));
    assert!(README.contains(&needed), "{needed}");
}

#[test]
fn the_libvirt_guest_of_the_readme_has_what_a_vhost_user_card_needs() {
    let page = page("operations/vnicd.md");
    let block = page.blocks("xml").pop().expect("the page has an XML block");
    let text = format!("<domain>{block}</domain>");
    let document = roxmltree::Document::parse(&text).unwrap_or_else(|error| panic!("{error}: {block}"));
    let value = |names: &[&str], attribute: &str| {
        let start = document.root_element();
        let found = names.iter().try_fold(start, |node, name| {
            node.children().find(|child| child.has_tag_name(*name))
        });
        let value = found.and_then(|node| node.attribute(attribute));
        value
            .unwrap_or_else(|| panic!("no {attribute} of {names:?}"))
            .to_owned()
    };
    // The backend maps the guest's memory, connects to no other process, and may be started again.
    assert_eq!(value(&["memoryBacking", "source"], "type"), "memfd");
    assert_eq!(value(&["memoryBacking", "access"], "mode"), "shared");
    assert_eq!(value(&["interface"], "type"), "vhostuser");
    assert!(
        value(&["interface", "mac"], "address")
            .parse::<ether::MacAddr>()
            .is_ok()
    );
    assert_eq!(value(&["interface", "source"], "type"), "unix");
    assert_eq!(value(&["interface", "source"], "mode"), "client");
    assert!(Path::new(&value(&["interface", "source"], "path")).is_absolute());
    assert_eq!(value(&["interface", "source", "reconnect"], "enabled"), "yes");
    assert!(
        value(&["interface", "source", "reconnect"], "timeout")
            .parse::<u32>()
            .is_ok()
    );
    assert_eq!(value(&["interface", "model"], "type"), "virtio");
}

/// A process that ends with its handle.
struct Running(Child);

impl Running {
    fn start(world: &World, command: &str) -> Self {
        let mut shell = Command::new("sh");
        shell
            .args(["-c", &format!("exec {command}")])
            .current_dir(world.dir.path());
        shell.env("PATH", path()).stdin(Stdio::null());
        Self(shell.spawn().unwrap())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

#[test]
fn guests_of_ones_own_reach_each_other_with_the_lines_of_the_readme() {
    let world = World::new(None);
    let at = |name: &str| world.dir.path().join(name);
    let page = page("operations/vnicd.md");
    let commands = page.shell_commands();
    let line = |program: &str| {
        let found = commands.iter().find(|command| command.starts_with(program));
        found.unwrap_or_else(|| panic!("no line for {program}")).clone()
    };
    let mut vnicd = Running::start(&world, &line("vnicd "));
    let mut control = None;
    eventually("vnicd answers", || {
        assert!(vnicd.0.try_wait().unwrap().is_none(), "vnicd runs");
        control = VnicdClient::connect(&at("ctl.sock")).ok();
        control.is_some()
    });
    let mut control = control.unwrap();

    // The line leaves a bootable machine to the user: here it is ours, with an agent to talk to.
    let image = image::build(
        &image::Recipe::minimal(),
        &image::Cache::open_default().unwrap(),
        &image::GuestBinaries::locate().unwrap(),
        &mut |_| {},
    )
    .unwrap();
    // There is one guest per QEMU: the line as it is written, and changed as the page says for newer ones.
    let mut qemus = qemus();
    qemus.resize(2, None);
    let mut guests = Vec::new();
    for (name, binary) in ["a", "b"].iter().zip(qemus) {
        let binary = binary.unwrap_or_else(|| "qemu-system-x86_64".into());
        let newer = newer_than_7(&binary);
        let machine = format!(
            "'{}' -M q35 -accel tcg,thread=multi -cpu max -nodefaults -no-user-config -display none -no-reboot -kernel '{}' -initrd '{}' \
             -append 'panic=-1 mitigations=off' -device virtio-serial-pci -chardev \
             socket,id=agent,path={name}.agent,server=on,wait=off -device virtserialport,chardev=agent,name=weft.agent",
            binary.display(),
            image.kernel.display(),
            image.initramfs.display()
        );
        let mut line = line("qemu-system-x86_64 ").replace("qemu-system-x86_64 …", &machine);
        for (here, there) in [
            ("path=a.sock", format!("path={name}.sock")),
            (":00:01", format!(":00:0{name}")),
        ] {
            assert!(line.contains(here), "{line}");
            line = line.replace(here, &there);
        }
        if newer {
            for (said, instead) in [(",vectors=0", ""), ("reconnect=1", "reconnect-ms=500")] {
                assert!(line.contains(said) && page.text.contains(instead), "{line}");
                line = line.replace(said, instead);
            }
        }
        println!("{line}");
        guests.push((*name, Running::start(&world, &line)));
    }
    let mut channels = Vec::new();
    for (index, (name, guest)) in guests.iter_mut().enumerate() {
        let mut channel = None;
        eventually("QEMU takes the options", || {
            assert!(guest.0.try_wait().unwrap().is_none(), "QEMU of {name} runs");
            channel = GuestChannel::connect(&at(&format!("{name}.agent")), Duration::ZERO).ok();
            channel.is_some()
        });
        let channel = channel.unwrap();
        channel.wait_ready(BOOT_TIME_MAX).unwrap();
        let up = format!("ip link set eth0 up && ip addr add 10.1.1.{}/24 dev eth0", index + 1);
        let output = channel.output(&["sh", "-c", &up], PATIENCE).unwrap();
        assert!(output.status.success(), "{output:?}");
        channels.push(channel);
    }
    let output = channels[0].output(&["ping", "-c", "3", "-i", "0.1", "-W", "10", "10.1.1.2"], PATIENCE);
    let output = output.unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("3 packets received"), "{said}");
    let ports = control.info().unwrap().ports;
    assert!(
        ports.iter().all(|port| port.connected && port.rings_started > 0),
        "{ports:?}"
    );
    assert_eq!(ports.len(), 2);
}

/// Returns whether what the page says of QEMU 9.2 and newer applies.
fn newer_than_7(binary: &Path) -> bool {
    let output = Command::new(binary).arg("-version").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let version = text.split_once("version ").expect("QEMU says its version").1;
    let mut parts = version.split(['.', ' ']).map(|part| part.parse::<u32>().unwrap_or(0));
    (parts.next().unwrap(), parts.next().unwrap()) >= (9, 2)
}
