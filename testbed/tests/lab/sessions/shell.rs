//! A shell in a folder of its own, in which the commands of a page are typed.

use std::{
    fs,
    io::{Read, Write},
    os::unix::{
        fs::{PermissionsExt, symlink},
        process::CommandExt,
    },
    path::Path,
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process_group};
use testbed::programs;

use crate::support::World;

/// Time for which a command may print nothing: within it a guest on a busy machine has booted.
const SILENCE_MAX: Duration = Duration::from_secs(180);

/// What the shell says behind a command, with its exit status.
const DONE: &str = "that was the command, with status";

/// What is in place of the scripts: commands are typed as they stand in the page, and run what was built for these tests.
const STAND_INS: [(&str, &str); 3] = [
    (
        "two-hosts",
        "ROOT/scripts/build ci omxd tools guests >/dev/null 2>&1\nexec ROOT/scripts/two-hosts --profile ci \"$@\"",
    ),
    ("mpi-workloads", "exec ROOT/scripts/mpi-workloads \"$@\""),
    (
        "build",
        "[ \"$1\" != quick ] || shift\nexec ROOT/scripts/build ci \"$@\" 2>/dev/null",
    ),
];

pub struct Shell {
    child: Child,
    input: ChildStdin,
    output: Receiver<Vec<u8>>,
    /// What was read behind the last command.
    rest: Vec<u8>,
}

impl Shell {
    /// Starts a shell in the folder of `world`, where a page finds this repository's scripts and example labs.
    pub fn start(world: &World, root: &Path) -> Self {
        let folder = world.dir.path();
        symlink(root.join("testbed"), folder.join("testbed")).unwrap();
        fs::create_dir(folder.join("scripts")).unwrap();
        for (name, text) in STAND_INS {
            let path = folder.join("scripts").join(name);
            let text = text.replace("ROOT", root.to_str().unwrap());
            fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        Self::open(world, folder, &[])
    }

    /// Starts a shell in a copy of the sources, which a page changes. Cargo takes a package of the copy for that of this repository, so what
    /// is compiled of it goes to a folder of its own: it would replace what other tests use.
    pub fn in_copy_of_sources(world: &World, root: &Path) -> Self {
        let copy = world.dir.path().join("sources");
        fs::create_dir(&copy).unwrap();
        let copied = Command::new("sh")
            .args(["-c", "git ls-files -z | xargs -0 cp --parents -t \"$0\""])
            .arg(&copy)
            .current_dir(root)
            .status();
        assert!(copied.unwrap().success(), "the sources are copied");
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("walk-through");
        Self::open(world, &copy, &[("CARGO_TARGET_DIR", &target)])
    }

    fn open(world: &World, folder: &Path, variables: &[(&str, &Path)]) -> Self {
        let mut child = Command::new("bash")
            .current_dir(folder)
            .env("XDG_RUNTIME_DIR", world.dir.path())
            .env("PATH", path())
            .env("CARGO_TERM_QUIET", "true")
            .envs(variables.iter().copied())
            .env_remove("WEFT_LAB")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()
            .unwrap();
        let mut input = child.stdin.take().unwrap();
        // As on a terminal, where errors are among the output.
        writeln!(input, "exec 2>&1").unwrap();
        let mut stdout = child.stdout.take().unwrap();
        let (sender, output) = channel();
        // It ends with the last program that the page has started.
        std::thread::spawn(move || {
            let mut piece = [0; 4096];
            while let Ok(len @ 1..) = stdout.read(&mut piece) {
                if sender.send(piece[..len].to_vec()).is_err() {
                    break;
                }
            }
        });
        Self {
            child,
            input,
            output,
            rest: Vec::new(),
        }
    }

    /// Types a command, and returns what it prints and its exit status.
    ///
    /// # Errors
    /// Returns what it printed if it prints nothing more and does not end.
    pub fn type_in(&mut self, command: &str) -> Result<(String, i32), String> {
        let quoted = command.replace('\'', r"'\''");
        // The next command sees the status of this one, and no command reads what is typed behind it.
        let line = format!("eval '{quoted}' </dev/null\nstatus=$?; printf '\\n{DONE} %d\\n' $status; (exit $status)\n");
        self.input.write_all(line.as_bytes()).unwrap();
        loop {
            let said = String::from_utf8_lossy(&self.rest).into_owned();
            let end = said.split_once(&format!("\n{DONE} "));
            if let Some((printed, (status, rest))) =
                end.and_then(|(printed, rest)| Some((printed, rest.split_once('\n')?)))
            {
                self.rest = rest.as_bytes().to_vec();
                return Ok((printed.to_owned(), status.parse().unwrap()));
            }
            match self.output.recv_timeout(SILENCE_MAX) {
                Ok(piece) => self.rest.extend(piece),
                Err(RecvTimeoutError::Timeout) => return Err(format!("{said}\n(and then nothing, without an end)")),
                Err(RecvTimeoutError::Disconnected) => return Err(format!("{said}\n(the shell has ended)")),
            }
        }
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        // With what the page has left running.
        let group = Pid::from_child(&self.child);
        _ = kill_process_group(group, Signal::KILL);
        _ = self.child.wait();
    }
}

/// Returns the search path with this project's programs first.
pub fn path() -> std::ffi::OsString {
    let weft = Path::new(env!("CARGO_BIN_EXE_weft")).parent().unwrap();
    let mut path = std::ffi::OsString::from(weft);
    path.push(":");
    path.push(programs::find("vnicd").unwrap().parent().unwrap());
    path.push(":");
    path.push(std::env::var_os("PATH").unwrap_or_default());
    path
}
