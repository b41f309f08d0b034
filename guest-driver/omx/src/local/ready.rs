//! The watched sockets that are ready, found without waiting.

use std::{
    io,
    os::fd::{AsRawFd, BorrowedFd},
};

/// Returns the names of the watched descriptors that are readable or over now, `names_max` of them at most.
///
/// It does not use `rustix`, whose call has one argument more, left uninitialised as the kernel has no use for it;
/// memory checkers such as valgrind report that as an error of the program.
pub(super) fn ready(watched: BorrowedFd<'_>, names_max: usize) -> io::Result<Vec<u64>> {
    let mut events = vec![libc::epoll_event { events: 0, u64: 0 }; names_max];
    let room = i32::try_from(events.len()).unwrap_or(i32::MAX);
    // SAFETY: `events` has as many places as is said and lives through the call; the descriptor is open, as it is borrowed.
    let count = unsafe { libc::epoll_wait(watched.as_raw_fd(), events.as_mut_ptr(), room, 0) };
    let count = usize::try_from(count).map_err(|_| io::Error::last_os_error())?;
    Ok(events[..count].iter().map(|event| event.u64).collect())
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use rustix::event::epoll;

    use super::*;

    #[test]
    fn those_that_have_something_are_named_and_no_others() {
        let watched = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        let (reader, writer) = std::os::unix::net::UnixStream::pair().unwrap();
        let (silent, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        for (name, socket) in [(7, &reader), (1 << 32, &silent)] {
            epoll::add(&watched, socket, epoll::EventData::new_u64(name), epoll::EventFlags::IN).unwrap();
        }
        assert!(ready(watched.as_fd(), 2).unwrap().is_empty());
        drop(writer);
        assert_eq!(ready(watched.as_fd(), 2).unwrap(), [7]);
        assert!(ready(watched.as_fd(), 0).is_err(), "the kernel wants room for one");
        assert!(ready(reader.as_fd(), 1).is_err());
    }
}
