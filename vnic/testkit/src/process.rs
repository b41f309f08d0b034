//! Backend processes under test: started so that they die with this process, measured through
//! /proc, and asked over `vnicd`'s control socket. It knows no rings.

use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{CpuSet, sched_setaffinity};

/// Longest wait for a process to end after SIGTERM before it is killed.
const TERM_WAIT: Duration = Duration::from_secs(5);
/// Longest wait for an answer on the control socket.
const CONTROL_WAIT: Duration = Duration::from_secs(10);

/// A backend process; killed when dropped.
#[derive(Debug)]
pub struct Service {
    child: Child,
    stdin: Option<ChildStdin>,
}

impl Service {
    /// Starts `command` on `cores` (all when empty), output to `log`. Its standard input stays open and silent.
    pub fn spawn(mut command: Command, cores: &[usize], log: &Path) -> io::Result<Self> {
        let log = fs::File::create(log)?;
        command.stdin(Stdio::piped()).stdout(log.try_clone()?).stderr(log);
        // Ctrl-C is for the program that started it, which ends it when its turn is over.
        command.process_group(0);
        let mut set = CpuSet::new();
        cores.iter().for_each(|core| set.set(*core));
        let pinned = !cores.is_empty();
        // SAFETY: only async-signal-safe system calls between fork and exec.
        unsafe {
            command.pre_exec(move || {
                rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
                if pinned {
                    sched_setaffinity(None, &set)?;
                }
                Ok(())
            })
        };
        let mut child = command.spawn()?;
        let stdin = child.stdin.take();
        Ok(Service { child, stdin })
    }

    /// Process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Writes `text` to the process's standard input.
    pub fn type_in(&mut self, text: &str) -> io::Result<()> {
        match &mut self.stdin {
            Some(stdin) => stdin.write_all(text.as_bytes()),
            None => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    fn signal(&self, signal: Signal) {
        // Fails only when the process is gone, which `wait` then tells.
        let _ = kill_process(Pid::from_child(&self.child), signal);
    }

    /// `kill -9`, and waits for the end.
    pub fn kill(&mut self) -> io::Result<ExitStatus> {
        self.signal(Signal::KILL);
        self.child.wait()
    }

    /// SIGTERM, and waits for the end (5 s, then `kill`).
    pub fn terminate(&mut self) -> io::Result<ExitStatus> {
        self.signal(Signal::TERM);
        let deadline = Instant::now() + TERM_WAIT;
        while Instant::now() < deadline {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        self.kill()
    }

    /// The exit status if the process has ended.
    pub fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    /// What the process uses now.
    pub fn usage(&self) -> io::Result<ProcessUse> {
        ProcessUse::of(self.pid())
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            // Nothing is left to do about a process that can be neither asked nor killed.
            let _ = self.terminate();
        }
    }
}

/// What a process uses, read from /proc.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessUse {
    /// Open file descriptors.
    pub fds: usize,
    /// Threads.
    pub threads: usize,
    /// Memory mappings (lines of /proc/PID/maps).
    pub mappings: usize,
    /// Bytes of private resident memory (RssAnon).
    pub anonymous_bytes: u64,
    /// Bytes of resident shared memory (RssShmem): mapped guests.
    pub shared_bytes: u64,
    /// CPU time of all threads so far, in nanoseconds (threads that ended not counted).
    pub cpu_ns: u64,
    /// Time that threads were ready to run and did not get a core, in nanoseconds.
    pub waited_ns: u64,
}

impl ProcessUse {
    /// Reads the figures of process `pid`.
    pub fn of(pid: u32) -> io::Result<Self> {
        let root = format!("/proc/{pid}");
        let status = fs::read_to_string(format!("{root}/status"))?;
        let kib = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok())
                .unwrap_or(0)
                * 1024
        };
        let (mut cpu_ns, mut waited_ns, mut threads) = (0, 0, 0);
        for task in fs::read_dir(format!("{root}/task"))? {
            // A thread that ends between the two calls is not counted.
            let Ok(text) = fs::read_to_string(task?.path().join("schedstat")) else {
                continue;
            };
            let mut words = text.split_whitespace().map(|word| word.parse::<u64>().unwrap_or(0));
            cpu_ns += words.next().unwrap_or(0);
            waited_ns += words.next().unwrap_or(0);
            threads += 1;
        }
        Ok(ProcessUse {
            fds: fs::read_dir(format!("{root}/fd"))?.count(),
            threads,
            mappings: fs::read_to_string(format!("{root}/maps"))?.lines().count(),
            anonymous_bytes: kib("RssAnon:"),
            shared_bytes: kib("RssShmem:"),
            cpu_ns,
            waited_ns,
        })
    }
}

/// A client of `vnicd`'s control socket (JSON lines).
#[derive(Debug)]
pub struct ControlClient {
    stream: BufReader<UnixStream>,
    next_id: u64,
}

impl ControlClient {
    /// Connects, waiting up to 10 s for the socket to appear.
    pub fn connect(path: &Path) -> io::Result<Self> {
        let deadline = Instant::now() + CONTROL_WAIT;
        loop {
            match UnixStream::connect(path) {
                Ok(stream) => {
                    stream.set_read_timeout(Some(CONTROL_WAIT))?;
                    return Ok(ControlClient {
                        stream: BufReader::new(stream),
                        next_id: 1,
                    });
                }
                Err(error) if Instant::now() > deadline => return Err(error),
                Err(_) => std::thread::sleep(Duration::from_millis(5)),
            }
        }
    }

    /// Sends `{"op": op, …fields}` and returns what came as `ok`; an `error` answer is an `Err` with its sentence.
    pub fn request(&mut self, op: &str, fields: serde_json::Value) -> io::Result<serde_json::Value> {
        let id = self.next_id;
        self.next_id += 1;
        let mut request = fields;
        if !request.is_object() {
            request = serde_json::json!({});
        }
        request["id"] = id.into();
        request["op"] = op.into();
        let line = format!("{request}\n");
        self.stream.get_mut().write_all(line.as_bytes())?;
        let mut answer = String::new();
        if self.stream.read_line(&mut answer)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut answer: serde_json::Value = serde_json::from_str(&answer)?;
        if answer["id"] != id {
            return Err(io::Error::other(format!("answer {answer} to request {id}")));
        }
        match answer["error"].as_str() {
            Some(sentence) => Err(io::Error::other(sentence.to_owned())),
            None => Ok(answer["ok"].take()),
        }
    }

    /// The entry of `port` in the answer to `stats`.
    pub fn port_stats(&mut self, port: &str) -> io::Result<serde_json::Value> {
        let mut answer = self.request("stats", serde_json::json!({ "port": port }))?;
        Ok(answer["ports"][0].take())
    }
}

/// Puts the calling thread on `core`.
pub fn pin_thread(core: usize) -> io::Result<()> {
    let mut set = CpuSet::new();
    set.set(core);
    Ok(sched_setaffinity(None, &set)?)
}
