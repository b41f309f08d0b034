//! The record of which program has which endpoint and which of ESP's wire ports, in the file whose lock makes an authority: the next authority gives
//! them back only to the program that had it. Only the authority's user can open that file.

use std::{
    fs::File,
    io,
    os::unix::fs::{FileExt, MetadataExt},
};

use weft_authority::ENDPOINTS;

/// Bytes of one record: four numbers.
const RECORD_LEN: u64 = 32;

/// A program as an authority sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Program {
    user: u32,
    pid: u32,
    /// The namespace in which `pid` is its number.
    namespace: u64,
    /// The time when it began, in ticks; 0 where that cannot be seen. Another program may have its number later.
    began: u64,
}

impl Program {
    /// Identifies the program that connected, as the system says.
    pub(crate) fn new(user: u32, pid: u32) -> Self {
        Self {
            user,
            pid,
            namespace: own_namespace(),
            began: began(pid).unwrap_or(0),
        }
    }

    /// Returns the program's number, as the authority saw it.
    pub(crate) const fn pid(&self) -> u32 {
        self.pid
    }

    /// Whether the program is seen to have ended. One of another namespace, or one that cannot be inspected, is not.
    pub(crate) fn has_ended(&self) -> bool {
        self.is_seen() && began(self.pid) != Some(self.began)
    }

    /// Whether it can be seen here that the program ends.
    pub(crate) fn is_seen(&self) -> bool {
        self.began != 0 && self.namespace == own_namespace()
    }

    /// Whether this is the program that an earlier authority saw as `before`, whichever user it has now. A program that
    /// was seen from another namespace had another number there: then any program of its user counts.
    pub(crate) fn is(&self, before: &Self) -> bool {
        if self.namespace == before.namespace {
            (self.pid, self.began) == (before.pid, before.began)
        } else {
            self.user == before.user
        }
    }
}

/// Returns the namespace in which this process sees the numbers of others; 0 where it cannot say.
fn own_namespace() -> u64 {
    std::fs::metadata("/proc/self/ns/pid").map_or(0, |namespace| namespace.ino())
}

/// Returns when a process began (`proc(5)`: field 22; the second one, its name in brackets, may contain anything).
fn began(pid: u32) -> Option<u64> {
    let line = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    line.rsplit_once(')')?.1.split_ascii_whitespace().nth(19)?.parse().ok()
}

/// What a program can have: its record is at a place of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owned {
    /// An endpoint.
    Endpoint(u8),
    /// A block of ESP's wire ports.
    Block(u8),
}

impl Owned {
    fn offset(self) -> u64 {
        let number = match self {
            Self::Endpoint(number) => u64::from(number),
            Self::Block(number) => u64::from(ENDPOINTS) + u64::from(number),
        };
        number * RECORD_LEN
    }
}

/// Reads which program has something. `None`: the earlier authority did not record it.
pub(crate) fn read(file: &File, owned: Owned) -> Option<Program> {
    let mut record = [0; RECORD_LEN as usize];
    file.read_exact_at(&mut record, owned.offset()).ok()?;
    let number = |at: usize| record[8 * at..].first_chunk().map(|bytes| u64::from_ne_bytes(*bytes));
    let (user, pid, namespace, began) = (number(0)?, number(1)?, number(2)?, number(3)?);
    // Users are stored from 1: 0 was never written.
    let user = u32::try_from(user.checked_sub(1)?).ok()?;
    let pid = u32::try_from(pid).ok()?;
    Some(Program {
        user,
        pid,
        namespace,
        began,
    })
}

/// Records that no program has it any more.
///
/// # Errors
/// Those of the file.
pub(crate) fn clear(file: &File, owned: Owned) -> io::Result<()> {
    file.write_all_at(&[0; RECORD_LEN as usize], owned.offset())
}

/// Records the program that has it from now on.
///
/// # Errors
/// Those of the file.
pub(crate) fn write(file: &File, owned: Owned, program: &Program) -> io::Result<()> {
    let mut record = [0; RECORD_LEN as usize];
    let numbers = [
        u64::from(program.user) + 1,
        program.pid.into(),
        program.namespace,
        program.began,
    ];
    for (place, number) in record.chunks_exact_mut(8).zip(numbers) {
        place.copy_from_slice(&number.to_ne_bytes());
    }
    file.write_all_at(&record, owned.offset())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_read_as_written_and_what_was_not_written_is_nobody() {
        let file = tempfile::tempfile().unwrap();
        let program = Program::new(0, std::process::id());
        assert!(program.began > 0);
        let (last, first) = (Owned::Endpoint(31), Owned::Block(0));
        write(&file, last, &program).unwrap();
        assert_eq!(read(&file, last), Some(program));
        assert_eq!(read(&file, Owned::Endpoint(30)), None);
        assert_eq!(read(&file, first), None);
        write(&file, Owned::Block(255), &program).unwrap();
        assert_eq!(read(&file, Owned::Block(255)), Some(program));
        clear(&file, Owned::Block(255)).unwrap();
        assert_eq!((read(&file, Owned::Block(255)), read(&file, first)), (None, None));
        let of_another_user = Program { user: 1, ..program };
        assert!(
            program.is(&program) && program.is(&of_another_user),
            "it gave up root meanwhile"
        );
        assert!(!program.has_ended() && !of_another_user.has_ended());
        let later = Program {
            began: program.began + 1,
            ..program
        };
        assert!(!program.is(&later) && !program.is(&Program { pid: 1, ..program }));
        let elsewhere = Program {
            namespace: 1,
            pid: 1,
            ..program
        };
        assert!(program.is(&elsewhere) && !of_another_user.is(&elsewhere));
        let unseen = Program { began: 0, ..later };
        assert!(later.has_ended() && !elsewhere.has_ended() && !unseen.has_ended());
    }
}
