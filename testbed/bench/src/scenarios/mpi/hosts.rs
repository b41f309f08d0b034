//! The two hosts that ranks run on: the network namespaces of the comparison of Open-MX, and how `mpirun` and other programs
//! start something in them.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use anyhow::{Context, Result, ensure};

use crate::scenarios::openmx::{Setting, THERE, World, run};
use testbed::harness::Stop;

/// Names of the hosts, as `mpirun --host` is given them.
pub const NAMES: [&str; 2] = ["here", "there"];

/// Folder of files that live as long as the comparison, in its private mount.
const FOLDER: &str = "/run/mpi";

/// Two hosts, each of which is a network namespace.
pub struct Hosts {
    world: World,
    cores: Vec<usize>,
    stop: Stop,
}

impl Hosts {
    /// Makes the namespaces, joined by a veth pair, and the program that starts ranks in them.
    pub fn build(cores: &[usize], stop: &Stop) -> Result<Self> {
        let hosts = Self {
            world: World::build(cores)?,
            cores: cores.to_vec(),
            stop: stop.clone(),
        };
        // What ranks that were killed leave there ends with the comparison.
        run("mount", &["-t", "tmpfs", "weft", "/dev/shm"])?;
        fs::create_dir(FOLDER).with_context(|| format!("cannot make the folder {FOLDER}"))?;
        // Ranks of one host reach each other's TCP ports over the loopback interface.
        let up = ["ip", "link", "set", "lo", "up"];
        run(up[0], &up[1..])?;
        let [enter, arguments @ ..] = &hosts.in_other_namespace();
        let arguments: Vec<_> = arguments.iter().map(String::as_str).chain(up).collect();
        run(enter, &arguments)?;
        let agent = Self::agent();
        fs::write(&agent, hosts.agent_text()).context("cannot write the program that starts ranks")?;
        fs::set_permissions(&agent, fs::Permissions::from_mode(0o755))?;
        Ok(hosts)
    }

    /// Sets MTU and offloads of both interfaces, and starts their authorities where that ends them.
    pub fn prepare(&mut self, mtu: usize, offloads: bool) -> Result<()> {
        self.world.prepare(Setting::new(mtu, offloads))
    }

    /// Returns the path of a file that lives as long as the comparison.
    pub fn file(name: &str) -> PathBuf {
        Path::new(FOLDER).join(name)
    }

    /// Returns the path of the program that `mpirun` starts in place of ssh.
    pub fn agent() -> PathBuf {
        Self::file("agent")
    }

    /// Returns the text of the program that takes options, a host and a command line, as ssh does. Each host has a name of its own,
    /// since Open MPI takes ranks whose hosts have one name for ranks of one host.
    fn agent_text(&self) -> String {
        let [here, there] = NAMES;
        let enter = self.in_other_namespace().join(" ");
        format!(
            "#!/bin/sh\nwhile [ \"${{1#-}}\" != \"$1\" ]; do shift; done\nhost=$1\nshift\ncase $host in\n\
             {here}) enter= ;;\n{there}) enter='{enter}' ;;\n*) echo \"there is no host $host\" >&2; exit 1 ;;\nesac\n\
             exec $enter unshare --uts /bin/sh -c 'hostname \"$0\" && exec /bin/sh -c \"$1\"' \"$host\" \"$*\"\n"
        )
    }

    /// Returns the words before a command line that is run on the other host.
    fn in_other_namespace(&self) -> [String; 4] {
        ["nsenter", "-t", &self.world.away().to_string(), "-n"].map(str::to_owned)
    }

    /// Makes a command for the other host's interface that runs on that host's core.
    pub fn command_there(&self, program: &Path) -> Command {
        let mut command = self.command(1, program);
        command.args(["--interface", THERE.0]);
        command
    }

    /// Makes a command for a host that runs on that host's core.
    pub fn command(&self, host: usize, program: &Path) -> Command {
        let on_core = ["taskset", "-c", &self.core(host)].map(str::to_owned);
        let words: Vec<_> = match host {
            0 => on_core.to_vec(),
            _ => self.in_other_namespace().into_iter().chain(on_core).collect(),
        };
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).arg(program);
        command
    }

    /// Returns the core of a host, as `taskset` is given it.
    pub fn core(&self, host: usize) -> String {
        self.cores[host].to_string()
    }

    /// Returns the cores of both hosts, as `taskset` is given them.
    pub fn all_cores(&self) -> String {
        [self.core(0), self.core(1)].join(",")
    }

    /// Makes a command that may run on the cores of both hosts, for a program that starts others.
    pub fn command_on_all_cores(&self, program: &str) -> Command {
        let mut command = Command::new("taskset");
        command.args(["-c", &self.all_cores()]).arg(program);
        command
    }

    /// Runs a command until it ends, or until a signal ends the comparison.
    pub fn output(&self, command: &mut Command) -> Result<Output> {
        let command = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let what = command.get_program().to_string_lossy().into_owned();
        let child = command.spawn().with_context(|| format!("cannot run {what}"))?;
        self.stop.also_end(child.id())?;
        let output = child.wait_with_output()?;
        self.stop.check()?;
        Ok(output)
    }
}

/// Returns the path of a program that `scripts/bench mpi` builds beside this one.
pub fn built(name: &str) -> Result<PathBuf> {
    let path = std::env::current_exe()?.with_file_name(name);
    ensure!(
        path.exists(),
        "{} is missing: `scripts/bench mpi` builds it",
        path.display()
    );
    Ok(path)
}
