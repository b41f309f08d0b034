//! Sleeping on descriptors with a deadline; signals do not wake the caller, a stop descriptor does.

use std::{io, os::fd::BorrowedFd, time::Instant};

use rustix::event::{PollFd, PollFlags, Timespec};

/// What a sleep ended with.
pub(crate) enum Readiness {
    /// These events came up on one of the port's descriptors.
    Port(PollFlags),
    /// The stop descriptor is readable.
    Stop,
    /// Time is up.
    Deadline,
}

/// Sleeps until one of `ports` (at most two) has one of its events or an error, `stop` is readable, or `deadline`.
pub(crate) fn poll(
    ports: &[(BorrowedFd<'_>, PollFlags)],
    deadline: Instant,
    stop: Option<BorrowedFd<'_>>,
) -> io::Result<Readiness> {
    loop {
        // Allocates, which is little beside going to sleep.
        let mut fds = Vec::with_capacity(3);
        fds.extend(stop.as_ref().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)));
        fds.extend(ports.iter().map(|(fd, events)| PollFd::from_borrowed_fd(*fd, *events)));
        let first_port = fds.len() - ports.len();
        // What is too long for the kernel is no limit.
        let left = Timespec::try_from(deadline.saturating_duration_since(Instant::now())).ok();
        match rustix::event::poll(&mut fds, left.as_ref()) {
            Ok(0) => return Ok(Readiness::Deadline),
            Ok(_) if stop.is_some() && !fds[0].revents().is_empty() => return Ok(Readiness::Stop),
            Ok(_) => {
                let events = fds[first_port..]
                    .iter()
                    .fold(PollFlags::empty(), |all, fd| all | fd.revents());
                return Ok(Readiness::Port(events));
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}
