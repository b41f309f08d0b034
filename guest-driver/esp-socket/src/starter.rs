//! Starting an authority where none runs, as the library of MX does: for programs of root, by a separate process, so that the program gets
//! no child that it does not know of.

use std::{
    ffi::CString,
    fs::File,
    io::{self, ErrorKind, Write},
    os::{
        fd::{AsFd, AsRawFd, FromRawFd},
        unix::ffi::OsStrExt,
    },
};

use netif::Interface;
use weft_authority::Session;

use crate::{
    keeper::{READY_FD, is_ready, spawn_apart},
    settings,
};

/// The argument by which the program that is a keeper starts an authority; the interface follows.
pub const ARGUMENT: &str = "--start-authority";

/// Starts the authority of an interface, if this process may, and waits until it listens.
pub(crate) fn start(interface: &str) -> io::Result<()> {
    // SAFETY: a plain call.
    if unsafe { libc::geteuid() } != 0 {
        return Err(ErrorKind::PermissionDenied.into());
    }
    let settings = settings::get();
    let text = |bytes: &[u8]| CString::new(bytes).map_err(|_| io::Error::from(ErrorKind::InvalidInput));
    let program = text(settings.keeper.as_os_str().as_bytes())?;
    let arguments = [program.clone(), text(ARGUMENT.as_bytes())?, text(interface.as_bytes())?];
    let variables: Vec<_> = settings
        .of_authority
        .iter()
        .map(|one| text(one.as_bytes()))
        .collect::<Result<_, _>>()?;
    let (ready, its_end) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    spawn_apart(&program, &arguments, &variables, [its_end.as_raw_fd(); 3])?;
    drop(its_end);
    if is_ready(ready.as_fd()) {
        Ok(())
    } else {
        Err(ErrorKind::NotFound.into())
    }
}

/// Is the separate process: starts the authority of an interface, and says when it listens.
///
/// # Errors
/// When there is no such interface, or its authority does not start.
pub fn run(interface: &str) -> Result<(), Box<dyn std::error::Error>> {
    // SAFETY: whoever starts this gives it the descriptor.
    let mut ready = unsafe { File::from_raw_fd(READY_FD) };
    // It lives on for some seconds without this session: until the program has one of its own.
    let _session = Session::connect(&Interface::find(interface)?)?;
    ready.write_all(&[1])?;
    Ok(())
}
