//! Starts child processes that cannot outlive this one, QEMU first of all. The supervisor decides when a process is
//! restarted.

use std::fs::{self, File};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{OnceLock, mpsc};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::{Machine, Qemu, QemuError};
use crate::log_tail::read_tail;

/// Longest part of a process's log that is shown in an error, in bytes: its last lines tell why it ended.
const LOG_TAIL_MAX: u64 = 2048;

type Request = (Command, mpsc::SyncSender<io::Result<Child>>);

/// Starts `command` so that the kernel kills it (SIGKILL) when this process ends, however it ends. The child gets a
/// process group of its own: a Ctrl-C at the terminal reaches only this process.
///
/// # Errors
/// Fails as [`Command::spawn`] does.
pub fn spawn_bound(mut command: Command) -> io::Result<Child> {
    let parent = std::process::id();
    command.process_group(0);
    let bind = move || {
        rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
        // The parent may have died before the line above: then nothing would ever end this process.
        let born_to = rustix::process::getppid().map_or(0, |pid| pid.as_raw_nonzero().get().unsigned_abs());
        if born_to == parent {
            Ok(())
        } else {
            Err(io::Error::other("its parent has ended"))
        }
    };
    // SAFETY: between fork and exec `bind` makes two system calls and compares integers; it takes no lock. Only its
    // error path allocates, in a child whose parent is gone and which ends there.
    unsafe { command.pre_exec(bind) };
    // The death signal is sent when the *thread* that forked ends. So all children are forked by one thread that never
    // does; any thread may send it a request.
    static SPAWNER: OnceLock<mpsc::Sender<Request>> = OnceLock::new();
    let spawner = SPAWNER.get_or_init(|| {
        let (sender, requests) = mpsc::channel::<Request>();
        std::thread::Builder::new()
            .name("spawner".into())
            .spawn(move || {
                for (mut command, answer) in requests {
                    // A requester that is gone does not want the child either; dropping it here leaves it to its
                    // parent.
                    let _ = answer.send(command.spawn());
                }
            })
            .expect("a thread can be started");
        sender
    });
    let (answer, child) = mpsc::sync_channel(1);
    let gone = |_| io::Error::other("the thread that starts processes has ended");
    spawner.send((command, answer)).map_err(|_| gone(()))?;
    child.recv().map_err(|_| gone(()))?
}

/// A running QEMU. Dropping it kills QEMU and waits for its end.
#[derive(Debug)]
pub struct QemuProcess {
    child: Child,
    log: PathBuf,
}

impl Qemu {
    /// Starts `machine`; QEMU's own output goes to the file `log`. Socket files that a former QEMU left at the
    /// machine's paths are removed before.
    ///
    /// # Errors
    /// Fails when the machine is impossible, or the process cannot be started. Mistakes that QEMU finds itself show as
    /// its exit.
    pub fn spawn(&self, machine: &Machine, log: &Path) -> Result<QemuProcess, QemuError> {
        let arguments = self.arguments(machine)?;
        for socket in machine.listening_sockets() {
            match fs::remove_file(socket) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(QemuError::Spawn(error)),
                _ => {}
            }
        }
        let output = File::options()
            .create(true)
            .append(true)
            .open(log)
            .map_err(QemuError::Spawn)?;
        let errors = output.try_clone().map_err(QemuError::Spawn)?;
        let mut command = Command::new(self.binary());
        command
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(errors);
        tracing::debug!(?command, "starting QEMU");
        let child = spawn_bound(command).map_err(QemuError::Spawn)?;
        Ok(QemuProcess {
            child,
            log: log.to_path_buf(),
        })
    }
}

impl QemuProcess {
    /// Returns the process identifier.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns how the process ended, if it did.
    ///
    /// # Errors
    /// Fails when the state of the process is not available.
    pub fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    /// Waits for the end of the process.
    ///
    /// # Errors
    /// Fails when the process cannot be waited for.
    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        self.child.wait()
    }

    /// Waits for the end of the process, but no longer than `patience`; `None` when it is still running.
    ///
    /// # Errors
    /// Fails when the process cannot be waited for.
    pub fn wait_timeout(&mut self, patience: Duration) -> io::Result<Option<ExitStatus>> {
        let pid = rustix::process::Pid::from_child(&self.child);
        let end = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty())?;
        let deadline = Instant::now() + patience;
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(Some(status));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            let left = Timespec::try_from(left).map_err(io::Error::other)?;
            match poll(&mut [PollFd::new(&end, PollFlags::IN)], Some(&left)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Kills the process and waits for its end.
    ///
    /// # Errors
    /// Fails when the process cannot be waited for.
    pub fn kill(&mut self) -> io::Result<ExitStatus> {
        self.child.kill()?;
        self.child.wait()
    }

    /// Returns the last lines that QEMU printed, which tell why it ended.
    #[must_use]
    pub fn last_words(&self) -> String {
        let tail = read_tail(&self.log, 0, LOG_TAIL_MAX).unwrap_or_default();
        String::from_utf8_lossy(&tail).trim().to_owned()
    }
}

impl Drop for QemuProcess {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            let _ = self.kill();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn a_child_outlives_the_thread_that_asked_for_it() {
        let mut cat = Command::new("cat");
        cat.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = std::thread::spawn(|| spawn_bound(cat)).join().unwrap().unwrap();
        drop(child.stdin.take());
        let mut out = String::new();
        child.stdout.take().unwrap().read_to_string(&mut out).unwrap();
        assert!(
            child.wait().unwrap().success(),
            "cat saw the end of its input, not a signal"
        );
    }

    #[test]
    fn a_program_that_is_missing_is_an_error() {
        let error = spawn_bound(Command::new("/no/such/program")).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_child_dies_with_a_parent_that_is_killed() {
        const CHILD: &str = "WEFT_TEST_PARENT_THAT_IS_KILLED";
        if std::env::var_os(CHILD).is_some() {
            let mut sleep = Command::new("sleep");
            sleep.arg("1000").stdout(Stdio::null());
            println!("pid {}", spawn_bound(sleep).unwrap().id());
            let own = rustix::process::getpid();
            rustix::process::kill_process(own, rustix::process::Signal::KILL).unwrap();
        }
        let mut parent = Command::new(std::env::current_exe().unwrap());
        let this = "qemu::process::tests::a_child_dies_with_a_parent_that_is_killed";
        let output = parent
            .args(["--exact", this, "--nocapture"])
            .env(CHILD, "1")
            .output()
            .unwrap();
        assert!(!output.status.success());
        let said = String::from_utf8(output.stdout).unwrap();
        let pid = said
            .lines()
            .find_map(|line| line.split_once("pid ")?.1.trim().parse().ok())
            .expect(&said);
        let pid = rustix::process::Pid::from_raw(pid).unwrap();
        // An error means that it is gone already.
        if let Ok(end) = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()) {
            let patience = Timespec::try_from(Duration::from_secs(20)).unwrap();
            assert_eq!(
                poll(&mut [PollFd::new(&end, PollFlags::IN)], Some(&patience)),
                Ok(1),
                "it lives on"
            );
        }
    }
}
