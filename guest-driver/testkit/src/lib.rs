//! A private network for a test of the guest driver: the test runs again as a child process inside a fresh network namespace.
//!
//! The kit depends on none of the driver's crates, so that each of them can test itself with it, and is never part of a product.
//!
//! The namespace has no name: it cannot clash with another, and the kernel removes it with its last process, however
//! that process ends. Needs `unshare` and `ip`; no root where the system lets users make user namespaces.

use std::{
    env, fs,
    io::{self, Write},
    os::fd::{AsRawFd, BorrowedFd},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Pid, PidfdFlags, pidfd_open},
};

const INSIDE: &str = "WEFT_TEST_NAMESPACE";

/// How long a pair of interfaces may take to run; a busy machine takes milliseconds.
const RUNNING_WAIT: Duration = Duration::from_secs(10);

/// Runs `body` as [`in_private_network`] does, and as a user who may do everything there: root.
///
/// # Panics
/// When the test is not run as root, and as [`in_private_network`].
pub fn in_private_network_as_root(test: &str, body: impl FnOnce()) {
    assert!(
        rustix::process::geteuid().is_root(),
        "this test makes network namespaces and packet sockets: run it as root"
    );
    in_private_network(test, body);
}

/// Runs `body` in a private network namespace with a pair of joined interfaces, as root.
///
/// # Panics
/// As [`in_private_network_as_root`].
pub fn with_cable(test: &str, mtu: usize, body: impl FnOnce(&Veth)) {
    in_private_network_as_root(test, || body(&Veth::new(mtu)));
}

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

/// Writes a program that a test is going to start, such as a shell script.
///
/// A child process writes it: another thread of the test that starts a program at this moment would otherwise give that
/// program a descriptor that is open for writing, and the system starts no file that is (`ETXTBSY`).
///
/// # Panics
/// When it cannot be written.
pub fn write_program(path: &Path, contents: &[u8]) {
    let mut install = Command::new("install")
        .args(["-m", "755", "/dev/stdin"])
        .arg(path)
        .stdin(Stdio::piped())
        .spawn()
        .expect("`install` of coreutils");
    install
        .stdin
        .take()
        .expect("its pipe")
        .write_all(contents)
        .expect("it reads");
    assert!(
        install.wait().expect("it ends").success(),
        "{} is not written",
        path.display()
    );
}

/// Copies a program that a test is going to start, by a child process, as [`write_program`] does.
///
/// # Panics
/// When it cannot be copied.
pub fn copy_program(from: &Path, to: &Path) {
    let copied = Command::new("install").args(["-m", "755"]).args([from, to]).status();
    assert!(
        copied.is_ok_and(|status| status.success()),
        "{} is not copied",
        from.display()
    );
}

/// Waits for the end of a program, and kills it if that takes longer than `limit`.
///
/// # Panics
/// When the kernel does not let it be watched.
pub fn end_within(child: &mut Child, limit: Duration) -> ExitStatus {
    let process = pidfd_open(Pid::from_child(child), PidfdFlags::empty()).expect("a child can be watched");
    let limit = Timespec::try_from(limit).expect("a limit that the kernel can count");
    if poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&limit)).expect("a child can be watched") == 0 {
        child.kill().expect("an own child can be killed");
    }
    child.wait().expect("an own child is waited for")
}

/// Finds the newest static library that cargo made beside this test, by the begin of its file's name, such as `liblci_abi`.
///
/// # Panics
/// When there is none.
#[must_use]
pub fn static_library(name: &str) -> PathBuf {
    let own = env::current_exe().expect("a test is a program");
    let deps = own.parent().expect("a program has a folder");
    let is_it = |path: &PathBuf| {
        let file = path.file_name().unwrap_or_default().to_string_lossy();
        file.starts_with(name) && file.ends_with(".a")
    };
    let found = [deps, deps.parent().expect("cargo's folder")]
        .into_iter()
        .flat_map(|dir| {
            let entries = fs::read_dir(dir).expect("cargo's folder can be read");
            entries.filter_map(|entry| Some(entry.ok()?.path())).filter(is_it)
        });
    found
        .max_by_key(|path| fs::metadata(path).and_then(|file| file.modified()).ok())
        .expect("cargo makes the static library for the tests")
}

/// Returns the names of the functions that a C header declares, each declaration being one line.
#[must_use]
pub fn functions_of_header(header: &str) -> Vec<&str> {
    let declarations = header
        .lines()
        .filter(|line| line.ends_with(");") && !line.starts_with([' ', '/']));
    declarations
        .filter_map(|line| line.split('(').next()?.rsplit([' ', '*']).next())
        .collect()
}

/// Whether this kernel has AF_XDP sockets, and lets a process map the rings of those that another one made (Linux 6.4): what
/// `netif::DirectPool` needs.
///
/// # Panics
/// When the kernel does not say its version.
pub fn has_direct_pools() -> bool {
    let name = rustix::system::uname();
    let release = name.release().to_str().expect("a version in letters");
    let mut numbers = release
        .split(|c: char| !c.is_ascii_digit())
        .map(|number| number.parse::<u32>());
    let mut next = || numbers.next().and_then(Result::ok).expect("a version with two numbers");
    let maps = (next(), next()) >= (6, 4);
    let address_family = rustix::net::AddressFamily::from_raw(libc::AF_XDP as u16);
    let socket = rustix::net::socket(address_family, rustix::net::SocketType::RAW, None);
    maps && !matches!(socket, Err(rustix::io::Errno::AFNOSUPPORT))
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
        let veth = Self { a, b };
        veth.await_running();
        veth
    }

    /// Waits until both ends carry frames, both having been switched on. The kernel puts a transmit queue to an interface
    /// some time after its carrier came, and what is sent before is lost without an error.
    ///
    /// # Panics
    /// When one is not running after ten seconds.
    pub fn await_running(&self) {
        let deadline = Instant::now() + RUNNING_WAIT;
        for name in [&self.a, &self.b] {
            // Asked of the kernel through rtnetlink, whose answer comes before or after all of such a change.
            while !shown(name).contains(" state UP ") {
                assert!(Instant::now() < deadline, "{name} is not running: {}", shown(name));
            }
        }
    }

    /// Switches one end on or off.
    ///
    /// # Panics
    /// When `ip` fails.
    pub fn set_up(&self, name: &str, up: bool) {
        self.change(name, &[if up { "up" } else { "down" }]);
    }

    /// Changes one end, with settings for `ip link set`.
    ///
    /// # Panics
    /// When `ip` fails.
    pub fn change(&self, name: &str, settings: &[&str]) {
        run("ip", &[&["link", "set", name], settings].concat());
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

/// Makes `count` interfaces that a bridge joins, in the current namespace, and returns their names. IPv6 is off, so that no frames
/// but the test's are on them.
///
/// # Panics
/// When `ip` fails: outside of [`in_private_network`], most likely; or when one is not running after ten seconds.
pub fn bridged(count: usize) -> Vec<String> {
    run(
        "ip",
        &["link", "add", "weftbridge", "type", "bridge", "mcast_snooping", "0"],
    );
    run("ip", &["link", "set", "weftbridge", "addrgenmode", "none", "up"]);
    let names: Vec<_> = (0..count).map(|at| format!("weft{at}")).collect();
    for name in &names {
        let port = format!("{name}port");
        run("ip", &["link", "add", name, "type", "veth", "peer", "name", &port]);
        run("ip", &["link", "set", &port, "master", "weftbridge"]);
        for end in [name, &port] {
            run("ip", &["link", "set", end, "addrgenmode", "none", "up"]);
        }
    }
    let deadline = Instant::now() + RUNNING_WAIT;
    for name in &names {
        while !shown(name).contains(" state UP ") {
            assert!(Instant::now() < deadline, "{name} is not running: {}", shown(name));
        }
    }
    names
}

/// Sets an option of a packet socket as a program does that has nothing but the socket.
///
/// # Errors
/// The kernel's.
pub fn set_option<T: Copy>(socket: BorrowedFd<'_>, level: i32, option: i32, value: &T) -> Result<(), Option<i32>> {
    // SAFETY: pointer and length describe `value`, which outlives the call.
    let status = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            option,
            std::ptr::from_ref(value).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    };
    match status {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error().raw_os_error()),
    }
}

/// Returns the option's value by which others could join the group of a packet socket; 0 where it is in none.
///
/// # Panics
/// When it is no packet socket.
pub fn group_of(socket: BorrowedFd<'_>) -> i32 {
    let mut group = 0_i32;
    let mut len = size_of::<i32>() as libc::socklen_t;
    // SAFETY: pointer and length describe `group`, which outlives the call.
    let status = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_PACKET,
            libc::PACKET_FANOUT,
            (&raw mut group).cast(),
            &raw mut len,
        )
    };
    assert_eq!(status, 0, "no packet socket: {}", io::Error::last_os_error());
    group
}

fn shown(name: &str) -> String {
    let output = Command::new("ip").args(["-o", "link", "show", "dev", name]).output();
    String::from_utf8_lossy(&output.expect("`ip` of iproute2 is needed").stdout).into_owned()
}

fn run(program: &str, args: &[&str]) {
    let status = Command::new(program)
        .args(args)
        .status()
        .unwrap_or_else(|e| panic!("cannot run {program}: {e}"));
    assert!(status.success(), "`{program} {}` failed", args.join(" "));
}
