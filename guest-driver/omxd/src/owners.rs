//! Which programs have the endpoints, in the file whose lock makes an authority: the next one gives an endpoint back to the program
//! that had it and to nobody else. Only the authority's user can open that file.

use std::{
    fs::File,
    io,
    os::unix::fs::{FileExt, MetadataExt},
};

/// Bytes of one endpoint: three numbers.
const RECORD_LEN: u64 = 24;

/// A program as an authority sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Program {
    user: u32,
    pid: u32,
    /// The namespace in which `pid` is its number.
    namespace: u64,
}

impl Program {
    /// Who connected, as the system says.
    pub(crate) fn new(user: u32, pid: u32) -> Self {
        let namespace = std::fs::metadata("/proc/self/ns/pid").map_or(0, |namespace| namespace.ino());
        Self { user, pid, namespace }
    }

    /// Whether this is the program that an earlier authority saw as `before`. What that one saw from another namespace had another
    /// number there: then it is a program of the same user.
    pub(crate) fn is(&self, before: &Self) -> bool {
        self.user == before.user && (self.namespace != before.namespace || self.pid == before.pid)
    }
}

/// The program that has an endpoint. `None`: an authority that did not say so.
pub(crate) fn read(file: &File, endpoint: u8) -> Option<Program> {
    let mut record = [0; RECORD_LEN as usize];
    file.read_exact_at(&mut record, u64::from(endpoint) * RECORD_LEN).ok()?;
    let number = |at: usize| record[8 * at..].first_chunk().map(|bytes| u64::from_ne_bytes(*bytes));
    let (user, pid, namespace) = (number(0)?, number(1)?, number(2)?);
    // Users are stored from 1: what was never written is nobody.
    let user = u32::try_from(user.checked_sub(1)?).ok()?;
    let pid = u32::try_from(pid).ok()?;
    Some(Program { user, pid, namespace })
}

/// The program that has an endpoint from now on.
///
/// # Errors
/// Those of the file.
pub(crate) fn write(file: &File, endpoint: u8, program: &Program) -> io::Result<()> {
    let mut record = [0; RECORD_LEN as usize];
    let numbers = [u64::from(program.user) + 1, program.pid.into(), program.namespace];
    for (place, number) in record.chunks_exact_mut(8).zip(numbers) {
        place.copy_from_slice(&number.to_ne_bytes());
    }
    file.write_all_at(&record, u64::from(endpoint) * RECORD_LEN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_read_as_written_and_what_was_not_written_is_nobody() {
        let file = tempfile::tempfile().unwrap();
        let program = Program::new(0, 7);
        write(&file, 31, &program).unwrap();
        assert_eq!(read(&file, 31), Some(program));
        assert_eq!(read(&file, 30), None);
        assert_eq!(read(&file, 32), None);
        assert!(program.is(&program) && !program.is(&Program::new(1, 7)) && !program.is(&Program::new(0, 8)));
        let elsewhere = Program {
            namespace: 1,
            ..Program::new(0, 8)
        };
        assert!(program.is(&elsewhere));
    }
}
