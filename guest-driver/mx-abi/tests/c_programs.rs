//! C programs written against the shipped headers alone: compiled with gcc, linked with the shared and the static library, run
//! within one process, between two processes of a host, and between two network namespaces. Needs root.

use std::{
    env, fs,
    io::{BufRead, BufReader, Read},
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Stdio},
};

use netif::testing::{Veth, in_private_network};

/// The linked libraries, for one test.
struct Kit {
    dir: tempfile::TempDir,
}

/// The static library that cargo made for these tests.
fn archive() -> PathBuf {
    let own = env::current_exe().unwrap();
    let deps = own.parent().unwrap();
    let is_ours = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("libmx_abi") && name.ends_with(".a")
    };
    let found = [deps, deps.parent().unwrap()].into_iter().flat_map(|dir| {
        let entries = fs::read_dir(dir).unwrap();
        entries.map(|entry| entry.unwrap().path()).filter(is_ours)
    });
    let age = |path: &PathBuf| fs::metadata(path).unwrap().modified().unwrap();
    found
        .max_by_key(age)
        .expect("cargo makes the static library for the tests")
}

impl Kit {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let link = Path::new(env!("CARGO_MANIFEST_DIR")).join("link");
        let linked = Command::new(link).arg(archive()).arg(dir.path()).status().unwrap();
        assert!(linked.success(), "the libraries do not link");
        Self { dir }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Compiles a program of `tests/c`; its path.
    fn compile(&self, source: &str, as_name: &str, first: &[&str], last: &[&str]) -> PathBuf {
        let program = self.at(as_name);
        let include = self.at("include");
        let compiled = Command::new("gcc")
            .args(["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror"])
            .args(first.iter().map(|dir| format!("-I{}", include.join(dir).display())))
            .arg("-I")
            .arg(&include)
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c").join(source))
            .arg("-o")
            .arg(&program)
            .arg("-L")
            .arg(self.at("lib"))
            .args(last)
            .status()
            .expect("gcc");
        assert!(compiled.success(), "{source} does not compile");
        program
    }

    /// A program, with the interfaces that are its boards.
    fn command(&self, program: &Path, boards: &str) -> Command {
        let mut command = Command::new(program);
        command
            .env("LD_LIBRARY_PATH", self.at("lib"))
            .env("OMX_RUN_DIR", self.dir.path())
            .env("OMX_OMXD", omxd())
            .env("OMX_IFACES", boards)
            .stdin(Stdio::null());
        command
    }

    fn run(&self, program: &Path, boards: &str, args: &[&str]) {
        let output = self.command(program, boards).args(args).output().unwrap();
        let text = format!(
            "{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        let what = format!("{} {args:?} with boards {boards}: {}", program.display(), output.status);
        assert!(output.status.success() && text.contains(" done\n"), "{what}\n{text}");
    }
}

fn omxd() -> PathBuf {
    let own = env::current_exe().unwrap();
    let program = own.ancestors().nth(2).unwrap().join("omxd");
    assert!(
        program.is_file(),
        "these tests need the program omxd: `cargo build -p omxd` in the same profile makes it"
    );
    program
}

#[test]
fn the_libraries_have_exactly_the_symbols_of_the_headers_with_their_versions() {
    let kit = Kit::new();
    let nm = Command::new("nm")
        .args(["--dynamic", "--defined-only"])
        .arg(kit.at("lib/libopen-mx.so.0"))
        .output()
        .unwrap();
    let text = String::from_utf8(nm.stdout).unwrap();
    let mut symbols: Vec<&str> = text.lines().filter_map(|line| line.split(' ').next_back()).collect();
    for versioned in [
        "MX_0.0",
        "mx_open_endpoint@@MX_0.9",
        "mx_decompose_endpoint_addr@@MX_0.9",
        "mx_get_info@@MX_0.91",
        "mx_test@@MX_0.91",
        "mx_wait@@MX_0.91",
        "mx_iprobe@@MX_0.91",
        "mx__init_api@@MX_0.92",
        "mx_isend",
        "omx_isend",
        "MX_ERRORS_RETURN",
        "OMX_ERRORS_ARE_FATAL",
    ] {
        assert!(symbols.contains(&versioned), "{versioned} is missing");
    }
    let ours = |name: &&str| {
        ["mx_", "omx_", "MX_", "OMX_"]
            .iter()
            .any(|prefix| name.starts_with(prefix))
    };
    symbols.retain(|name| !ours(name));
    assert!(symbols.is_empty(), "more than the interface is exported: {symbols:?}");
    let soname = Command::new("readelf")
        .arg("-d")
        .arg(kit.at("lib/libopen-mx.so"))
        .output()
        .unwrap();
    let soname = String::from_utf8(soname.stdout).unwrap();
    assert!(soname.contains("[libopen-mx.so.0]"), "{soname}");
}

#[test]
fn sizes_offsets_and_values_are_those_of_the_interface_and_the_headers_are_clean() {
    let kit = Kit::new();
    for source in ["layout_mx.c", "layout_omx.c"] {
        kit.compile(source, "layout", &[], &[]);
    }
    let cpp = kit.at("all.c");
    fs::write(
        &cpp,
        "#include <mx_raw.h>\n#include <mx_extensions.h>\n#include <open-mx.h>\nint main(void) { return 0; }\n",
    )
    .unwrap();
    for standard in ["-std=c99", "-std=c11", "-std=gnu17"] {
        let checked = Command::new("gcc")
            .args([
                standard,
                "-pedantic",
                "-Wall",
                "-Wextra",
                "-Werror",
                "-fsyntax-only",
                "-I",
            ])
            .arg(kit.at("include"))
            .arg(&cpp)
            .status();
        assert!(checked.unwrap().success(), "the headers are not clean with {standard}");
    }
}

/// Runs `body` in a network of its own with a pair of joined interfaces.
fn with_cable(test: &str, body: impl FnOnce(&Kit, &Veth)) {
    assert!(
        rustix::process::geteuid().is_root(),
        "this test makes network namespaces and packet sockets: run it as root"
    );
    in_private_network(test, || body(&Kit::new(), &Veth::new(1500)));
}

#[test]
fn everything_mx_promises_of_messages_holds_over_the_wire_and_within_the_host() {
    with_cable(
        "everything_mx_promises_of_messages_holds_over_the_wire_and_within_the_host",
        |kit, veth| {
            let mut programs = Vec::new();
            for source in ["messages", "calls"] {
                let file = format!("{source}.c");
                programs.push(kit.compile(&file, source, &[], &["-lmyriexpress", "-lpthread"]));
                let translated = format!("{source}-omx");
                programs.push(kit.compile(&file, &translated, &["translate"], &["-lopen-mx", "-lpthread"]));
            }
            let boards = format!("{},{}", veth.a, veth.b);
            for program in &programs {
                for args in [["0", "0"], ["0", "1"]] {
                    kit.run(program, &boards, &args);
                }
            }
            // Loopback as board 0, where everything goes through memory.
            kit.run(&programs[0], "lo", &["0", "0"]);
        },
    );
}

#[test]
fn every_function_succeeds_and_fails_as_documented() {
    with_cable("every_function_succeeds_and_fails_as_documented", |kit, veth| {
        let boards = format!("{},{}", veth.a, veth.b);
        let shared = kit.compile("api.c", "api", &[], &["-lmyriexpress"]);
        kit.run(&shared, &boards, &[]);
        let fatal = kit.compile(
            "fatal.c",
            "fatal",
            &[],
            &["-l:libopen-mx.a", "-lpthread", "-ldl", "-lm"],
        );
        let output = kit.command(&fatal, &boards).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(255), "{said}");
        assert!(said.contains("no board 99"), "{said}");
        for (name, value) in [("OMX_FATAL_ERRORS", "0"), ("MX_ERRORS_ARE_FATAL", "0")] {
            let output = kit.command(&fatal, &boards).env(name, value).output().unwrap();
            assert!(output.status.success(), "{output:?}");
        }
    });
}

/// The program that sends messages back.
struct Echo {
    child: Child,
    out: BufReader<ChildStdout>,
    address: String,
}

impl Echo {
    fn start(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        let address = line.trim_end().to_owned();
        Self { child, out, address }
    }

    fn finish(mut self) {
        let mut rest = String::new();
        self.out.read_to_string(&mut rest).unwrap();
        assert!(self.child.wait().unwrap().success() && rest.contains("echo done"));
    }
}

#[test]
fn two_c_programs_talk_within_a_host_and_between_two_namespaces() {
    with_cable(
        "two_c_programs_talk_within_a_host_and_between_two_namespaces",
        |kit, veth| {
            let program = kit.compile("echo.c", "echo", &[], &["-lopen-mx"]);
            let echo = Echo::start(kit.command(&program, &veth.a));
            kit.run(&program, &veth.a, &[&echo.address]);
            echo.finish();
            // The other end of the cable moves to a namespace of its own, which is another host.
            let mut holder = Command::new("unshare")
                .args(["--net", "sleep", "1000"])
                .spawn()
                .unwrap();
            let pid = holder.id().to_string();
            let own = fs::read_link("/proc/self/ns/net").unwrap();
            while fs::read_link(format!("/proc/{pid}/ns/net")).is_ok_and(|theirs| theirs == own) {
                std::thread::yield_now();
            }
            let ip = |args: &[&str]| assert!(Command::new("ip").args(args).status().unwrap().success());
            ip(&["link", "set", &veth.b, "netns", &pid]);
            let inside = ["-t", &pid, "-n"];
            let up = Command::new("nsenter")
                .args(inside)
                .args(["ip", "link", "set", &veth.b, "up"])
                .status();
            assert!(up.unwrap().success());
            let mut there = kit.command(Path::new("nsenter"), &veth.b);
            there.args(inside).arg(&program);
            let echo = Echo::start(there);
            kit.run(&program, &veth.a, &[&echo.address]);
            echo.finish();
            holder.kill().unwrap();
            holder.wait().unwrap();
        },
    );
}
