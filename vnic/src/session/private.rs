//! Connected pairs of sockets for the published daemon, which only takes connections from a listener.
//!
//! A process has one listener, bound in a private folder and unlinked at once, so that no other process ever finds it: the process
//! itself still reaches it through the descriptor of its inode.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Mutex;

use rustix::fs::{Mode, OFlags};
use vhost::vhost_user::Listener;

/// The hidden listener.
pub struct PrivateListener {
    /// Held from connecting to accepting, so that two ports that start at once get their own ends.
    listener: Mutex<Listener>,
    inode: OwnedFd,
}

impl PrivateListener {
    /// Binds it in a folder of its own under the system's folder for temporary files, and removes both.
    pub fn new() -> io::Result<PrivateListener> {
        let folder = tempfile::Builder::new().prefix("vnicd-").tempdir()?;
        // Through the descriptor of the folder: its own path may be longer than a socket address can be.
        let opened = File::open(folder.path())?;
        let listener = UnixListener::bind(format!("/proc/self/fd/{}/s", opened.as_raw_fd()))?;
        let inode = rustix::fs::openat(
            &opened,
            "s",
            OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        folder.close()?;
        Ok(PrivateListener {
            listener: Mutex::new(Listener::from(listener)),
            inode,
        })
    }

    /// Connects a fresh socket and has `accept` take its other end out of the listener.
    pub fn connect<T, E: From<io::Error>>(
        &self,
        accept: impl FnOnce(&mut Listener) -> Result<T, E>,
    ) -> Result<(UnixStream, T), E> {
        // A panic or an error in `accept` leaves no state of ours behind, so a poisoned lock can be used on.
        let mut listener = self.listener.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        Self::forget_the_dead(&listener)?;
        let stream = UnixStream::connect(format!("/proc/self/fd/{}", self.inode.as_raw_fd()))?;
        let accepted = accept(&mut listener)?;
        Ok((stream, accepted))
    }

    /// Takes connections out of the queue that an earlier `accept` failed to take (out of file descriptors, say): left there,
    /// they would come first and every later pair would be mixed up.
    fn forget_the_dead(listener: &Listener) -> io::Result<()> {
        listener.set_nonblocking(true).map_err(io::Error::other)?;
        while listener.accept().map_err(io::Error::other)?.is_some() {}
        listener.set_nonblocking(false).map_err(io::Error::other)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;

    #[test]
    fn pairs_belong_together_even_after_a_failed_accept() {
        let private = PrivateListener::new().unwrap();
        assert!(private.connect(|_| Err::<(), _>(io::Error::other("no"))).is_err());
        for word in [b"one", b"two"] {
            let (mut near, mut far) = private
                .connect(|listener| listener.accept().map_err(io::Error::other))
                .map(|(a, b)| (a, b.unwrap()))
                .unwrap();
            near.write_all(word).unwrap();
            let mut heard = [0; 3];
            far.read_exact(&mut heard).unwrap();
            assert_eq!(&heard, word);
        }
    }
}
