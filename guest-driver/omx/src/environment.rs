//! The environment of a program (mx-api 9): variables under their Open-MX names and, unless `OMX_IGNORE_MX_ENV=1`,
//! their MX names; and the lines that a program asked for with `OMX_VERBOSE`. Unknown variables are harmless.

use std::{
    env,
    io::{self, Write},
    os::fd::AsFd,
    str::FromStr,
};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::Board;

/// Returns the value of the first of these variables that is set. Names that begin with `MX_` count only where they are
/// to be honoured.
fn value(names: &[&str]) -> Option<String> {
    let ignores_mx = env::var("OMX_IGNORE_MX_ENV").is_ok_and(|value| value.trim() == "1");
    let honoured = |name: &&&str| !(ignores_mx && name.starts_with("MX_"));
    names.iter().filter(honoured).find_map(|name| env::var(name).ok())
}

/// Whether the first of these variables that is set says yes (anything but 0); `default` if none is.
pub fn flag(names: &[&str], default: bool) -> bool {
    value(names).map_or(default, |value| value.trim() != "0")
}

/// Returns the number in the first of these variables that is set, within these bounds; `None` if it is not set or no
/// number.
pub(crate) fn number<T: FromStr + Ord>(names: &[&str], min: T, max: T) -> Option<T> {
    let number: T = value(names)?.trim().parse().ok()?;
    Some(number.clamp(min, max))
}

/// Whether the program's user wants to be told what happens (`OMX_VERBOSE`, `MX_VERBOSE`).
pub fn verbose() -> bool {
    flag(&["OMX_VERBOSE", "MX_VERBOSE"], false)
}

/// Writes a line to stderr, behind the prefix that `OMX_VERBOSE_PREFIX` asks for.
pub fn say(endpoint: Option<(u8, &Board)>, line: &str) {
    let format = env::var("OMX_VERBOSE_PREFIX").unwrap_or_else(|_| "OMX: ".to_owned());
    let format = if format.trim() == "1" { "OMX:%H:%p " } else { &format };
    let line = format!("{}{line}\n", prefix(format, endpoint));
    // Closed or full: the line is lost, the program goes on.
    if has_room(&io::stderr()) {
        let _ = io::stderr().write_all(line.as_bytes());
    }
}

fn node_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Returns a board's name as `omx_info` shows it; where its authority does not say, the name that it has by default.
fn board_name(board: &Board) -> String {
    board.status().map_or_else(
        |_| format!("{}:{}", node_name(), board.board_number()),
        |(status, _)| status.name,
    )
}

/// Whether a line can be written without waiting for the reader: a pipe that says so has room for a page.
fn has_room(out: &impl AsFd) -> bool {
    let mut fds = [PollFd::new(out, PollFlags::OUT)];
    // Nothing else: if the pipe has no reader any more, writing would end the program.
    matches!(poll(&mut fds, Some(&Timespec::default())), Ok(1)) && fds[0].revents() == PollFlags::OUT
}

/// Fills in a format: `%p` process, `%e` endpoint, `%b` board, `%B` its name, `%H` node; the last two may be followed by
/// `[first-last]`, a range of characters.
fn prefix(format: &str, endpoint: Option<(u8, &Board)>) -> String {
    let mut text = String::new();
    let mut rest = format;
    while let Some((before, after)) = rest.split_once('%') {
        text.push_str(before);
        let mut letters = after.chars();
        let letter = letters.next();
        rest = letters.as_str();
        let whole = match letter {
            Some('p') => std::process::id().to_string(),
            Some('e') => endpoint.map_or_else(String::new, |(number, _)| number.to_string()),
            Some('b') => endpoint.map_or_else(String::new, |(_, board)| board.board_number().to_string()),
            Some('B') => endpoint.map_or_else(String::new, |(_, board)| board_name(board)),
            Some('H') => node_name(),
            Some(other) => format!("%{other}"),
            None => "%".to_owned(),
        };
        match letter {
            Some('B' | 'H') => {
                let (range, behind) = take_range(rest);
                rest = behind;
                let (first, last) = range.unwrap_or((0, usize::MAX));
                text.extend(whole.chars().take(last.saturating_add(1)).skip(first));
            }
            _ => text.push_str(&whole),
        }
    }
    text.push_str(rest);
    text
}

/// Splits a `[first-last]` from the beginning of a text.
fn take_range(text: &str) -> (Option<(usize, usize)>, &str) {
    let parsed = text.strip_prefix('[').and_then(|inner| {
        let (range, behind) = inner.split_once(']')?;
        let (first, last) = range.split_once('-')?;
        Some(((first.parse().ok()?, last.parse().ok()?), behind))
    });
    match parsed {
        Some((range, behind)) => (Some(range), behind),
        None => (None, text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_waits_for_nobody_who_does_not_read() {
        let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::NONBLOCK).unwrap();
        assert!(has_room(&writer));
        while rustix::io::write(&writer, &[0; 4096]).is_ok() {}
        assert!(!has_room(&writer));
        drop(reader);
        assert!(!has_room(&writer));
        assert!(has_room(
            &std::fs::File::options().write(true).open("/dev/null").unwrap()
        ));
    }

    #[test]
    fn a_prefix_names_process_and_node_and_takes_ranges() {
        let pid = std::process::id();
        assert_eq!(prefix("x:%p> ", None), format!("x:{pid}> "));
        let node = prefix("%H", None);
        let first: String = node.chars().take(2).collect();
        assert_eq!(prefix("%H[0-1]|", None), format!("{first}|"));
        assert_eq!(prefix("%e%b%B[1-2]%%q", None), "%%q");
        assert_eq!(prefix("%H[bad", None), format!("{node}[bad"));
        assert_eq!(prefix("100%", None), "100%");
    }
}
