//! Two hosts that are network namespaces, joined by a cable, with an `omxd` in each; and the library, linked.

use std::{
    env, fs,
    io::{Read, Write},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Output, Stdio},
    sync::OnceLock,
    thread,
    time::{Duration, Instant},
};

use ether::EtherType;
use netif::{AfPacket, AfPacketOptions, Netif};
use weft_guest_driver_testkit::{Veth, end_within, static_library};

/// A program that needs longer than this hangs.
pub const LIMIT: Duration = Duration::from_secs(60);

/// The folder of programs that cargo made for these tests.
pub fn programs() -> PathBuf {
    let own = env::current_exe().unwrap();
    own.ancestors().nth(2).unwrap().to_path_buf()
}

fn omxd() -> PathBuf {
    let program = programs().join("omxd");
    assert!(
        program.is_file(),
        "these tests need the program omxd: `cargo build -p weft-omxd` in the same profile makes it"
    );
    program
}

/// One of the two hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Host {
    Left,
    Right,
}
pub use Host::{Left, Right};

impl Host {
    /// Its IP address.
    pub const fn ip(self) -> &'static str {
        match self {
            Left => "192.0.2.1",
            Right => "192.0.2.2",
        }
    }

    /// Its IP address at the second cable.
    pub const fn second_ip(self) -> &'static str {
        match self {
            Left => "198.51.100.1",
            Right => "198.51.100.2",
        }
    }
}

/// A process that ends with this value.
pub struct Running {
    child: Child,
    what: String,
}

impl Running {
    pub fn start(command: &mut Command) -> Self {
        let what = format!("{command:?}");
        let child = command.spawn().unwrap_or_else(|error| panic!("{what}: {error}"));
        Self { child, what }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Takes what it prints, to be read while it runs.
    pub fn output(&mut self) -> ChildStdout {
        self.child.stdout.take().expect("its output is a pipe")
    }

    /// Writes to its input.
    pub fn tell(&mut self, words: &str) {
        let input = self.child.stdin.as_mut().expect("its input is a pipe");
        input.write_all(words.as_bytes()).unwrap();
    }

    /// Ends its input.
    pub fn end_input(&mut self) {
        self.child.stdin = None;
    }

    /// Waits for its end with a limit; it must succeed. Returns what it printed.
    #[track_caller]
    pub fn finish(mut self) -> Output {
        let (mut out, mut err) = (self.child.stdout.take(), self.child.stderr.take());
        let read = |pipe: &mut Option<_>| {
            pipe.take().map(|mut pipe: Box<dyn Read + Send>| {
                thread::spawn(move || {
                    let mut bytes = Vec::new();
                    let _ = pipe.read_to_end(&mut bytes);
                    bytes
                })
            })
        };
        let out = read(&mut out.take().map(|pipe| Box::new(pipe) as Box<dyn Read + Send>));
        let err = read(&mut err.take().map(|pipe| Box::new(pipe) as Box<dyn Read + Send>));
        let status = end_within(&mut self.child, LIMIT);
        let bytes =
            |thread: Option<thread::JoinHandle<Vec<u8>>>| thread.map_or_else(Vec::new, |one| one.join().unwrap());
        let output = Output {
            status,
            stdout: bytes(out),
            stderr: bytes(err),
        };
        assert!(
            status.success(),
            "{}: {status}\n{}{}",
            self.what,
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        output
    }

    /// Waits for its end and returns its output as text.
    #[track_caller]
    pub fn text(self) -> String {
        String::from_utf8_lossy(&self.finish().stdout).into_owned()
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: &str) {
        let pid = self.pid().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.child.try_wait().is_ok_and(|status| status.is_none()) {
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
    }
}

/// Both hosts.
pub struct Hosts {
    dir: tempfile::TempDir,
    holder: Running,
    veth: Veth,
    daemons: Vec<(Host, Running)>,
}

impl Hosts {
    /// Makes the hosts, with ESP in both.
    pub fn new(mtu: usize) -> Self {
        let mut hosts = Self::without_esp(mtu);
        hosts.start_daemon(Left);
        hosts.start_daemon(Right);
        hosts
    }

    /// Makes the hosts, with no authority.
    pub fn without_esp(mtu: usize) -> Self {
        let veth = Veth::new(mtu);
        let mut unshare = Command::new("unshare");
        // `cat` waits until this end of its input is closed.
        unshare.args(["--net", "cat"]).stdin(Stdio::piped());
        let holder = Running::start(&mut unshare);
        let own = fs::read_link("/proc/self/ns/net").unwrap();
        while fs::read_link(format!("/proc/{}/ns/net", holder.pid())).is_ok_and(|theirs| theirs == own) {
            thread::yield_now();
        }
        let hosts = Self {
            dir: tempfile::tempdir().unwrap(),
            holder,
            veth,
            daemons: Vec::new(),
        };
        hosts.must(Right, &["ip", "link", "set", "lo", "up"]);
        hosts.plug(&hosts.veth, Host::ip);
        hosts
    }

    /// Joins the hosts by a cable.
    fn plug(&self, veth: &Veth, ip: impl Fn(Host) -> &'static str) {
        self.must(
            Left,
            &["ip", "link", "set", &veth.b, "netns", &self.holder.pid().to_string()],
        );
        let ends = [(Left, &veth.a), (Right, &veth.b)];
        for (host, interface) in ends {
            let address = format!("{}/24", ip(host));
            self.must(host, &["ip", "address", "add", &address, "dev", interface]);
            self.must(host, &["ip", "link", "set", interface, "up"]);
        }
        let begin = Instant::now();
        for (host, interface) in ends {
            // What is sent before is lost without an error.
            while !self
                .must(host, &["ip", "-o", "link", "show", "dev", interface])
                .contains(" state UP ")
            {
                assert!(begin.elapsed() < LIMIT, "the cable carries nothing");
            }
        }
    }

    /// Joins the hosts by a second cable, with ESP over it, too.
    pub fn join_again(&mut self, mtu: usize) -> Veth {
        let veth = Veth::new(mtu);
        self.plug(&veth, Host::second_ip);
        self.start_daemon_at(Left, &veth.a);
        self.start_daemon_at(Right, &veth.b);
        veth
    }

    /// Starts the authority of a host and waits until it serves.
    pub fn start_daemon(&mut self, host: Host) {
        assert!(
            self.daemons.iter().all(|(of, _)| *of != host),
            "a host has one authority"
        );
        let interface = self.interface(host).to_owned();
        self.start_daemon_at(host, &interface);
    }

    /// Starts the authority of an interface and waits until it serves. The user of [`AS_NOBODY`] may use it.
    fn start_daemon_at(&mut self, host: Host, interface: &str) {
        let sockets = || {
            let files = fs::read_dir(self.dir()).unwrap();
            let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
            names.filter(|name| name.ends_with(".sock")).collect::<Vec<_>>()
        };
        // A file that an earlier one left is replaced when the new one serves.
        let age = |name: &String| {
            fs::metadata(self.dir().join(name))
                .and_then(|file| file.modified())
                .ok()
        };
        let before: Vec<_> = sockets().into_iter().map(|name| (age(&name), name)).collect();
        let mut command = self.command(host);
        // One host takes long streams by a socket of their own, and the other one does not.
        let data_socket = if host == Right { "true" } else { "false" };
        command
            .arg(omxd())
            .args([interface, "--group", "nogroup", "--data-socket", data_socket])
            .stderr(Stdio::null());
        let daemon = Running::start(&mut command);
        let begin = Instant::now();
        while sockets()
            .into_iter()
            .all(|name| before.contains(&(age(&name), name.clone())))
        {
            assert!(begin.elapsed() < LIMIT, "omxd does not start");
            thread::sleep(Duration::from_millis(5));
        }
        self.daemons.push((host, daemon));
    }

    /// Ends the authority of a host at once.
    pub fn kill_daemon(&mut self, host: Host) {
        self.daemons.retain(|(of, _)| *of != host);
    }

    /// The process number of a host's authority.
    pub fn daemon(&self, host: Host) -> u32 {
        let (_, daemon) = self.daemons.iter().find(|(of, _)| *of == host).expect("it was started");
        daemon.pid()
    }

    /// The name of a host's interface.
    pub fn interface(&self, host: Host) -> &str {
        match host {
            Left => &self.veth.a,
            Right => &self.veth.b,
        }
    }

    /// A folder for files.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Lets all users read its files.
    pub fn open_to_all(&self) {
        fs::set_permissions(self.dir(), fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// A command at a host, to which the program is to be added.
    pub fn command(&self, host: Host) -> Command {
        let mut command = match host {
            Left => Command::new("env"),
            Right => {
                let mut command = Command::new("nsenter");
                command.args(["-t", &self.holder.pid().to_string(), "-n"]);
                command
            }
        };
        command
            .current_dir(self.dir())
            .env("OMX_RUN_DIR", self.dir())
            .env("OMX_OMXD", "/nonexistent/omxd")
            .stdin(Stdio::null());
        command
    }

    /// A command at a host under `esp-run`.
    pub fn esp(&self, host: Host) -> Command {
        let mut command = self.command(host);
        command
            .arg(env!("CARGO_BIN_EXE_esp-run"))
            .arg("--library")
            .arg(library());
        command
    }

    /// Starts a program at a host by TCP.
    pub fn start(&self, host: Host, program: &[&str]) -> Running {
        let mut command = self.command(host);
        command.args(program).stdout(Stdio::piped()).stderr(Stdio::piped());
        Running::start(&mut command)
    }

    /// Starts a program at a host under `esp-run`.
    pub fn start_esp(&self, host: Host, program: &[&str]) -> Running {
        let mut command = self.esp(host);
        command.args(program).stdout(Stdio::piped()).stderr(Stdio::piped());
        Running::start(&mut command)
    }

    /// Starts a server at a host under `esp-run` and waits until it listens at a port.
    pub fn serve(&self, host: Host, port: u16, program: &[&str]) -> Running {
        let mut command = self.esp(host);
        command.args(program).stdout(Stdio::null()).stderr(Stdio::null());
        let server = Running::start(&mut command);
        self.await_listener(host, port);
        server
    }

    /// Waits until somebody listens at a port.
    pub fn await_listener(&self, host: Host, port: u16) {
        let begin = Instant::now();
        let filter = format!("sport = :{port}");
        while self.must(host, &["ss", "-Hltn", &filter]).trim().is_empty() {
            assert!(begin.elapsed() < LIMIT, "nobody listens at port {port}");
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Runs a command at a host, which must succeed.
    #[track_caller]
    pub fn must(&self, host: Host, program: &[&str]) -> String {
        self.start(host, program).text()
    }

    /// Runs a command at a host under `esp-run`, which must succeed.
    #[track_caller]
    pub fn must_esp(&self, host: Host, program: &[&str]) -> String {
        self.start_esp(host, program).text()
    }

    /// Counts TCP segments that come to the left host from now on. Those of connections over loopback, by which connections over ESP are
    /// announced, are none of them, and a connection by TCP has some in both directions.
    pub fn count_tcp(&self) -> TcpCount {
        self.count_tcp_at(self.interface(Left))
    }

    /// As [`count_tcp`](Self::count_tcp), at another interface of the left host.
    pub fn count_tcp_at(&self, interface: &str) -> TcpCount {
        let options = AfPacketOptions {
            ring_len: 16 << 20,
            ..AfPacketOptions::default()
        };
        TcpCount(AfPacket::open(interface, EtherType(0x0800), &options).unwrap())
    }
}

/// Words before a program that an ordinary user is to run, who may use the authorities.
pub const AS_NOBODY: [&str; 4] = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];

/// Counts TCP segments at an interface.
pub struct TcpCount(AfPacket);

impl TcpCount {
    /// Returns how many came since the last time.
    pub fn take(&mut self) -> u64 {
        let mut count = 0;
        while let Some(frame) = self.0.poll_receive().unwrap() {
            // The protocol in IP's header.
            count += u64::from(frame[23] == 6);
        }
        count
    }
}

/// The library, linked once.
pub fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let out = programs().join("esp");
        // Several tests may link at the same time.
        let own = out.join(std::process::id().to_string());
        let link = Path::new(env!("CARGO_MANIFEST_DIR")).join("link");
        let linked = Command::new(link)
            .arg(static_library("libesp_preload"))
            .arg(&own)
            .status()
            .unwrap();
        assert!(linked.success(), "the library does not link");
        let library = out.join("libesp-preload.so");
        fs::rename(own.join("lib/libesp-preload.so"), &library).unwrap();
        fs::remove_dir_all(own).unwrap();
        library
    })
}

/// Compiles a C program of `tests/c`.
pub fn compile(hosts: &Hosts, source: &str) -> String {
    let program = hosts.dir().join("program");
    let compiled = Command::new("gcc")
        .args(["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror"])
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c").join(source))
        .arg("-o")
        .arg(&program)
        .arg("-lpthread")
        .status()
        .expect("gcc");
    assert!(compiled.success(), "{source} does not compile");
    program.to_str().unwrap().to_owned()
}
