//! What a guest's serial line reveals of its fate: a kernel that panics, a machine with nothing to boot, a login
//! prompt. This module reads no file and ends nothing; memory is bounded, whatever a guest prints.

/// Number of bytes of a line that are examined: the rest reveals nothing about a guest's fate.
const LINE_LEN_MAX: usize = 512;

/// Start of the line in which Linux says why it cannot continue.
const PANIC: &str = "Kernel panic - not syncing: ";

/// Message of Linux, before it panics for want of a root, when its initramfs does not fit into memory or is damaged.
const UNPACKING_FAILED: &str = "Initramfs unpacking failed: ";

/// Message of the firmware when no disk contains a boot loader.
const NOTHING_TO_BOOT: &str = "No bootable device.";

/// Ends of a line that prompts for a login.
const LOGIN_PROMPTS: [&str; 2] = ["login:", "Login:"];

/// A sign on a guest's serial line about its fate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Sign {
    /// The guest cannot continue; one clause gives the reason.
    Dead(String),
    /// The guest prompts for a login.
    Login,
}

/// A parser of one guest's serial line from the start of its QEMU on.
#[derive(Debug, Default)]
pub(super) struct Console {
    line: Vec<u8>,
    unpacking_failed: Option<String>,
    /// Whether something was printed.
    spoke: bool,
}

impl Console {
    /// Returns whether anything readable was printed since the start.
    pub(super) fn spoke(&self) -> bool {
        self.spoke
    }

    /// Takes what was printed since the last call; returns the signs in it, in order.
    pub(super) fn feed(&mut self, bytes: &[u8]) -> Vec<Sign> {
        let mut signs = Vec::new();
        if bytes.is_empty() {
            return signs;
        }
        for &byte in bytes {
            match byte {
                b'\n' => {
                    signs.extend(self.line_ended());
                    self.line.clear();
                }
                byte if self.line.len() < LINE_LEN_MAX => self.line.push(byte),
                _ => {}
            }
        }
        // A prompt has no end of line behind it.
        if LOGIN_PROMPTS
            .iter()
            .any(|prompt| self.text().trim_end().ends_with(prompt))
        {
            signs.push(Sign::Login);
        }
        signs
    }

    fn text(&self) -> String {
        let text = String::from_utf8_lossy(&self.line);
        text.chars().filter(|c| !c.is_control()).collect()
    }

    fn line_ended(&mut self) -> Option<Sign> {
        let text = self.text();
        let text = text.trim();
        self.spoke |= !text.is_empty();
        let message = without_stamp(text);
        if let Some(why) = message.strip_prefix(UNPACKING_FAILED) {
            self.unpacking_failed = Some(why.to_owned());
        }
        if let Some(why) = message.strip_prefix(PANIC) {
            return Some(Sign::Dead(match self.unpacking_failed.take() {
                Some(unpacking) => {
                    format!(
                        "kernel panic: {why} (its initramfs could not be unpacked: {unpacking}; it may need more `memory`)"
                    )
                }
                None if why.contains("memory") => format!("kernel panic: {why} (it may need more `memory`)"),
                None => format!("kernel panic: {why}"),
            }));
        }
        (message == NOTHING_TO_BOOT).then(|| Sign::Dead("there is nothing to boot on its disk".to_owned()))
    }
}

/// Strips from a kernel's message the time, and the processor or thread, that may precede it.
fn without_stamp(mut text: &str) -> &str {
    while let Some(rest) = text.strip_prefix('[') {
        let Some((stamp, message)) = rest.split_once(']') else {
            break;
        };
        if !stamp.chars().all(|c| c.is_ascii_alphanumeric() || c == '.' || c == ' ') {
            break;
        }
        text = message.trim_start();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signs(text: &str) -> Vec<Sign> {
        // However the bytes are split, the signs are equal; a prompt may be seen more than once.
        let mut whole = Console::default();
        let signs = whole.feed(text.as_bytes());
        let mut console = Console::default();
        let mut single = Vec::new();
        for byte in text.as_bytes() {
            single.extend(console.feed(&[*byte]));
        }
        single.dedup();
        assert_eq!(signs, single, "{text:?}");
        assert_eq!(whole.spoke(), console.spoke());
        signs
    }

    fn dead(why: &str) -> Vec<Sign> {
        vec![Sign::Dead(why.to_owned())]
    }

    #[test]
    fn a_panic_is_known_by_its_own_line_with_or_without_a_stamp() {
        let why = "kernel panic: Attempted to kill init! exitcode=0x00000100";
        let line = "Kernel panic - not syncing: Attempted to kill init! exitcode=0x00000100";
        assert_eq!(signs(&format!("{line}\r\n")), dead(why));
        assert_eq!(
            signs(&format!("[    1.234567] {line}\r\nKernel Offset: 0x1\r\n")),
            dead(why)
        );
        assert_eq!(signs(&format!("[    1.234567][    T1] {line}\n")), dead(why));
        assert_eq!(
            signs(&format!("he wrote: {line}\n")),
            [],
            "a program prints about a panic"
        );
        assert_eq!(signs(line), [], "it may go on");
        assert_eq!(signs("---[ end Kernel panic - not syncing: x ]---\n"), []);
    }

    #[test]
    fn a_guest_with_too_little_memory_says_so() {
        let text = "[    2.1] Initramfs unpacking failed: write error\r\n[    2.3] Kernel panic - not syncing: VFS: Unable to \
                    mount root fs on unknown-block(0,0)\r\n";
        assert_eq!(
            signs(text),
            dead(
                "kernel panic: VFS: Unable to mount root fs on unknown-block(0,0) (its initramfs could not be unpacked: write \
                 error; it may need more `memory`)"
            )
        );
        let text = "Kernel panic - not syncing: System is deadlocked on memory\n";
        assert_eq!(
            signs(text),
            dead("kernel panic: System is deadlocked on memory (it may need more `memory`)")
        );
    }

    #[test]
    fn an_empty_disk_and_a_login_prompt_are_known() {
        let text =
            "\x1bc\x1b[?7l\x1b[2JSeaBIOS (version 1.16.2)\r\nBooting from Hard Disk...\r\n\r\nNo bootable device.\r\n";
        assert_eq!(signs(text), dead("there is nothing to boot on its disk"));
        assert_eq!(
            signs("\r\nDebian GNU/Linux 12 n1 ttyS0\r\n\r\nn1 login: "),
            [Sign::Login]
        );
        let mut console = Console::default();
        assert_eq!(console.feed(b"last login: yesterday\r\n"), []);
        assert_eq!(console.feed(b"n1 login: "), [Sign::Login]);
        assert_eq!(console.feed(b""), [], "nothing was printed since");
    }

    #[test]
    fn silence_is_told_from_speech_and_long_lines_cost_no_memory() {
        let mut console = Console::default();
        console.feed(b"\r\n\x1b\r\n");
        assert!(!console.spoke());
        for _ in 0..100 {
            console.feed(&[b'x'; 10_000]);
        }
        assert_eq!(console.line.len(), LINE_LEN_MAX);
        console.feed(b"\n");
        assert!(console.spoke());
    }
}
