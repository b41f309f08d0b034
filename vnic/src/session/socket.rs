//! Claims sockets by path: a file left behind is replaced, a socket in use is not, and at the end only what was claimed is removed.
//! Vhost-user, control and metrics sockets are claimed alike.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use rustix::fs::Mode;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

/// Longest path of a Unix socket (`sun_path` of unix(7) without its closing NUL).
pub const PATH_LEN_MAX: usize = 107;

/// Connections that may wait to be accepted: as many as the control plane has clients at most, so that all may come at once.
pub const BACKLOG: u16 = 256;

/// Why a path cannot be claimed. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum ClaimError {
    /// The path is longer than [`PATH_LEN_MAX`].
    #[error("the socket path {path} has {len} bytes, more than the {PATH_LEN_MAX} that a socket path can have")]
    TooLong {
        /// The path.
        path: String,
        /// The length of the path in bytes.
        len: usize,
    },
    /// Another process listens on the path.
    #[error("the socket {0} is in use by another process")]
    InUse(String),
    /// The path names something that is not a socket.
    #[error("{0} exists and is not a socket")]
    NotASocket(String),
    /// The system does not allow it.
    #[error("cannot listen on {path}: {reason}")]
    System {
        /// The path.
        path: String,
        /// What the system says.
        reason: io::Error,
    },
}

impl ClaimError {
    /// What the system says of `path`.
    pub fn system(path: &Path) -> impl Fn(io::Error) -> ClaimError + use<> {
        let path = path.display().to_string();
        move |reason| ClaimError::System {
            path: path.clone(),
            reason,
        }
    }
}

/// A listening socket with its file, if it has one, which is removed on drop if it still is the one that was made here.
#[derive(Debug)]
pub struct ClaimedSocket {
    listener: OwnedFd,
    path: PathBuf,
    identity: Option<(u64, u64)>,
}

/// Refuses a path that no socket can have.
pub fn check_path(path: &Path) -> Result<(), ClaimError> {
    let len = path.as_os_str().len();
    if len > PATH_LEN_MAX {
        return Err(ClaimError::TooLong {
            path: path.display().to_string(),
            len,
        });
    }
    Ok(())
}

/// A socket on which nothing waits.
fn stream_socket() -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
}

/// Connects to `path`, unless that would have to wait for a listener that takes no more connections.
pub fn connect(path: &Path) -> io::Result<UnixStream> {
    let socket = stream_socket()?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    let stream = UnixStream::from(socket);
    stream.set_nonblocking(false)?;
    Ok(stream)
}

impl ClaimedSocket {
    /// Listens on `path`. With `mode`, the file has these permissions from its first moment on; without, those of the umask.
    pub fn bind(path: &Path, mode: Option<u32>) -> Result<ClaimedSocket, ClaimError> {
        check_path(path)?;
        let system = ClaimError::system(path);
        match std::fs::symlink_metadata(path) {
            Ok(found) if !found.file_type().is_socket() => {
                return Err(ClaimError::NotASocket(path.display().to_string()));
            }
            Ok(_) => match connect(path) {
                // No process listens: the socket was left behind.
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                    std::fs::remove_file(path).map_err(&system)?;
                }
                Ok(_) => return Err(ClaimError::InUse(path.display().to_string())),
                // A full backlog is a sign of life too.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Err(ClaimError::InUse(path.display().to_string()));
                }
                Err(error) => return Err(system(error)),
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(system(error)),
        }
        let socket = Self::listen(path, mode).map_err(|error| system(error.into()))?;
        let identity = std::fs::symlink_metadata(path)
            .ok()
            .map(|found| (found.dev(), found.ino()));
        Ok(ClaimedSocket {
            listener: socket,
            path: path.to_owned(),
            identity,
        })
    }

    fn listen(path: &Path, mode: Option<u32>) -> rustix::io::Result<OwnedFd> {
        let socket = stream_socket()?;
        if let Some(mode) = mode {
            // Linux gives the file that bind() makes the mode of the socket, less the umask.
            rustix::fs::fchmod(&socket, Mode::from_raw_mode(mode))?;
        }
        rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
        rustix::net::listen(&socket, BACKLOG.into())?;
        Ok(socket)
    }

    /// Listens on a TCP port.
    pub fn bind_tcp(address: SocketAddr) -> Result<ClaimedSocket, ClaimError> {
        let bind = || {
            let listener = TcpListener::bind(address)?;
            listener.set_nonblocking(true)?;
            Ok(ClaimedSocket {
                path: PathBuf::from(listener.local_addr()?.to_string()),
                listener: listener.into(),
                identity: None,
            })
        };
        bind().map_err(ClaimError::system(Path::new(&address.to_string())))
    }

    /// The listening socket, on which no call waits.
    pub fn listener(&self) -> &OwnedFd {
        &self.listener
    }

    /// Where it listens.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for ClaimedSocket {
    fn drop(&mut self) {
        let now = std::fs::symlink_metadata(&self.path)
            .ok()
            .map(|found| (found.dev(), found.ino()));
        if now.is_some() && now == self.identity {
            // Nothing is lost if it fails: a file that no process listens on is replaced by the next owner.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn files_left_behind_are_replaced_and_live_sockets_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.sock");
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        let claimed = ClaimedSocket::bind(&path, None).unwrap();
        let error = ClaimedSocket::bind(&path, None).unwrap_err().to_string();
        assert!(error.ends_with("a.sock is in use by another process"), "{error}");
        assert!(UnixStream::connect(&path).is_ok());
        drop(claimed);
        assert!(!path.exists());
    }

    #[test]
    fn two_hundred_and_fifty_six_clients_connect_at_once_before_one_is_accepted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.sock");
        let _claimed = ClaimedSocket::bind(&path, None).unwrap();
        let clients: Vec<_> = (0..256).map(|_| connect(&path)).collect();
        assert!(clients.iter().all(io::Result::is_ok));
    }

    #[test]
    fn a_successors_socket_is_not_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.sock");
        let first = ClaimedSocket::bind(&path, None).unwrap();
        std::fs::rename(&path, folder.path().join("b.sock")).unwrap();
        let _second = ClaimedSocket::bind(&path, None).unwrap();
        drop(first);
        assert!(path.exists());
    }

    #[test]
    fn long_paths_and_other_files_are_refused_with_one_sentence() {
        let folder = tempfile::tempdir().unwrap();
        let long = folder.path().join("x".repeat(PATH_LEN_MAX));
        assert!(
            ClaimedSocket::bind(&long, None)
                .unwrap_err()
                .to_string()
                .contains("more than the 107")
        );
        let file = folder.path().join("file");
        std::fs::write(&file, "kept").unwrap();
        assert!(
            ClaimedSocket::bind(&file, None)
                .unwrap_err()
                .to_string()
                .ends_with("exists and is not a socket")
        );
        assert_eq!(std::fs::read(&file).unwrap(), b"kept");
        let nowhere = folder.path().join("no/such");
        assert!(
            ClaimedSocket::bind(&nowhere, None)
                .unwrap_err()
                .to_string()
                .contains("cannot listen on")
        );
    }

    #[test]
    fn mode_0600_holds() {
        let folder = tempfile::tempdir().unwrap();
        let claimed = ClaimedSocket::bind(&folder.path().join("c.sock"), Some(0o600)).unwrap();
        assert_eq!(
            std::fs::metadata(claimed.path()).unwrap().permissions().mode() & 0o777,
            0o600
        );
    }
}
