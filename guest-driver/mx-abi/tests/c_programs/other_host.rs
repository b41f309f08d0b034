//! A network namespace that stands for another host.

use std::{
    fs,
    path::Path,
    process::{Child, Command, Stdio},
};

use crate::kit::Kit;

/// Runs `ip`.
pub fn ip(args: &[&str]) {
    assert!(Command::new("ip").args(args).status().unwrap().success(), "ip {args:?}");
}

pub struct OtherHost {
    holder: Child,
}

impl OtherHost {
    /// A namespace with an interface of this one, switched on.
    pub fn with(interface: &str) -> Self {
        // `cat` waits until this end of its input is closed.
        let mut unshare = Command::new("unshare");
        let holder = unshare.args(["--net", "cat"]).stdin(Stdio::piped()).spawn().unwrap();
        let pid = holder.id().to_string();
        let own = fs::read_link("/proc/self/ns/net").unwrap();
        while fs::read_link(format!("/proc/{pid}/ns/net")).is_ok_and(|theirs| theirs == own) {
            std::thread::yield_now();
        }
        ip(&["link", "set", interface, "netns", &pid]);
        let other = Self { holder };
        let mut up = other.enter();
        let up = up.args(["ip", "link", "set", interface, "up"]).status();
        assert!(up.unwrap().success());
        other
    }

    fn enter(&self) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["-t", &self.holder.id().to_string(), "-n"]);
        command
    }

    /// [`Kit::command`] of a program there.
    pub fn command(&self, kit: &Kit, program: &Path, boards: &str) -> Command {
        let mut command = self.enter();
        kit.prepare(&mut command, boards);
        command.arg(program);
        command
    }
}

impl Drop for OtherHost {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}
