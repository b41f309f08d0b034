//! The programs of the book's page about the C interfaces (`docs/book/src/open-mx/c-api.md`), as they stand there.

use std::{
    fs,
    os::unix::net::UnixDatagram,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use crate::{kit::Kit, kit::omxd, other_host::OtherHost, with_cable};

/// Compiles the program that the page calls by this name, as a reader would who copied it.
fn compile(kit: &Kit, name: &str) -> PathBuf {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/book/src/open-mx/c-api.md");
    let text = fs::read_to_string(page).unwrap();
    let begin = format!("```c\n/* {name}.c:");
    let from = text.find(&begin).unwrap_or_else(|| panic!("the page has no {name}.c")) + "```c\n".len();
    let len = text[from..].find("```").unwrap();
    let source = kit.at(&format!("{name}.c"));
    fs::write(&source, &text[from..from + len]).unwrap();
    kit.compile_file(&source, name, &[], &["-lopen-mx"])
}

/// An `omxd` that was started by hand.
struct ByHand(Child);

impl ByHand {
    /// Returns when it serves programs: one that came before would start an `omxd` of its own, with another name.
    fn start(mut command: Command, kit: &Kit, interface: &str, name: &str) -> Self {
        let at = kit.at(&format!("notify-{interface}"));
        let notices = UnixDatagram::bind(&at).unwrap();
        notices.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        command.args([interface, "--name", name]).env("NOTIFY_SOCKET", &at);
        let started = Self(command.stderr(Stdio::null()).spawn().unwrap());
        let mut notice = [0; 256];
        let len = notices.recv(&mut notice).expect("it says that it is ready");
        assert!(
            notice[..len].starts_with(b"READY=1"),
            "{}",
            notice[..len].escape_ascii()
        );
        started
    }
}

impl Drop for ByHand {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn sender_and_receiver_of_the_readme_run_as_they_stand_there() {
    with_cable(
        "readme::sender_and_receiver_of_the_readme_run_as_they_stand_there",
        1500,
        |kit, veth| {
            let (receiver, sender) = (compile(kit, "receiver"), compile(kit, "sender"));
            let other = OtherHost::with(&veth.b);
            let daemon = omxd();
            let _here = ByHand::start(kit.command(&daemon, &veth.a), kit, &veth.a, "node1:0");
            let _there = ByHand::start(other.command(kit, &daemon, &veth.b), kit, &veth.b, "node2:0");
            let mut receives = other.command(kit, &receiver, &veth.b);
            let receives = receives.stdout(Stdio::piped()).spawn().unwrap();
            // As soon as this host knows the name, and the receiver has its endpoint: until then the program ends with a sentence.
            loop {
                let sent = kit.command(&sender, &veth.a).arg("node2:0").output().unwrap();
                if sent.status.success() {
                    break;
                }
                let said = String::from_utf8_lossy(&sent.stderr).into_owned();
                let expected = ["no such peer", "no peer", "not open", "no omxd"];
                assert!(expected.iter().any(|words| said.contains(words)), "{said}");
            }
            let received = receives.wait_with_output().unwrap();
            let said = String::from_utf8_lossy(&received.stdout).into_owned();
            assert!(
                received.status.success() && said == "6 bytes from node1:0: hello\n",
                "{said}"
            );
        },
    );
}

#[test]
fn omxd_is_told_its_interface_in_one_way_and_says_so_otherwise() {
    let run = |args: &[&str]| {
        let output = Command::new(omxd())
            .args(args)
            .env_remove("OMX_INTERFACE")
            .output()
            .unwrap();
        (
            output.status.code(),
            String::from_utf8_lossy(&output.stderr).into_owned(),
        )
    };
    let (code, said) = run(&[]);
    assert!(code == Some(2) && said.contains("which interface?"), "{said}");
    let (code, said) = run(&["nowhere0", "-i", "nowhere0"]);
    assert!(code == Some(2) && said.contains("name it once"), "{said}");
    for args in [&["nowhere0"][..], &["-i", "nowhere0"], &["--interface", "nowhere0"]] {
        let (code, said) = run(args);
        assert!(code == Some(1) && said.contains("nowhere0"), "{said}");
    }
}
