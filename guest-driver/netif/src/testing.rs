//! A network of one's own for a test: the test runs again as a child process inside a fresh network namespace.
//!
//! The namespace has no name: it cannot clash with another, and the kernel removes it with its last process, however
//! that process ends. Needs `unshare` and `ip`; no root where the system lets users make user namespaces.

use std::{
    env,
    process::{Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
};

const INSIDE: &str = "WEFT_TEST_NAMESPACE";

/// Runs `body` in a private network namespace. `test` is the full name of the calling test, as the test harness lists
/// it: the test's program is started again for that test alone.
///
/// # Panics
/// When the namespace cannot be made, or the test fails inside it (its output is shown).
pub fn in_private_network(test: &str, body: impl FnOnce()) {
    if env::var_os(INSIDE).is_some() {
        run("ip", &["link", "set", "lo", "up"]);
        return body();
    }
    let program = env::current_exe().expect("the test's own program");
    let mut command = Command::new("unshare");
    command.arg("--net");
    if !rustix::process::geteuid().is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    let output = command
        .arg(program)
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(INSIDE, "1")
        .stdin(Stdio::null())
        .output()
        .expect("`unshare` of util-linux is needed to make a network namespace");
    let (stdout, stderr) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(
        output.status.success(),
        "{test} failed in its network namespace\n{stdout}\n{stderr}"
    );
    assert!(
        stdout.contains("1 passed"),
        "no test is called {test}\n{stdout}\n{stderr}"
    );
}

/// Two joined virtual Ethernet interfaces in the current namespace.
pub struct Veth {
    /// Name of one end.
    pub a: String,
    /// Name of the other end.
    pub b: String,
}

impl Veth {
    /// Makes a pair with this MTU and switches both ends on. IPv6 is off, so that no frames but the test's are on it.
    ///
    /// # Panics
    /// When `ip` fails: outside of [`in_private_network`], most likely.
    pub fn new(mtu: usize) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        assert!(
            env::var_os(INSIDE).is_some(),
            "interfaces are only made in a namespace of their own"
        );
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let (a, b) = (format!("weft{number}a"), format!("weft{number}b"));
        let mtu = mtu.to_string();
        run(
            "ip",
            &[
                "link", "add", &a, "mtu", &mtu, "type", "veth", "peer", "name", &b, "mtu", &mtu,
            ],
        );
        for name in [&a, &b] {
            run("ip", &["link", "set", name, "addrgenmode", "none", "up"]);
        }
        Self { a, b }
    }

    /// Switches one end on or off.
    ///
    /// # Panics
    /// When `ip` fails.
    pub fn set_up(&self, name: &str, up: bool) {
        run("ip", &["link", "set", name, if up { "up" } else { "down" }]);
    }
}

impl Drop for Veth {
    fn drop(&mut self) {
        // Goes with the namespace anyway.
        let _ = Command::new("ip")
            .args(["link", "del", &self.a])
            .stderr(Stdio::null())
            .status();
    }
}

fn run(program: &str, args: &[&str]) {
    let status = Command::new(program)
        .args(args)
        .status()
        .unwrap_or_else(|e| panic!("cannot run {program}: {e}"));
    assert!(status.success(), "`{program} {}` failed", args.join(" "));
}
