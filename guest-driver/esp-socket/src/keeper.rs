//! Keepers: programs that serve a connection which several programs share, or one that does not have this library. The keeper has the
//! connection in its engine, and moves the bytes between it and the pair of local sockets of which the programs have one end.
//!
//! A connection is given to a keeper when its descriptor goes to another program, by `exec` or in a message.

use std::{
    ffi::CString,
    fs::File,
    io::{Read, Seek, Write},
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd},
        unix::net::UnixStream,
    },
    ptr,
    sync::{Arc, atomic::Ordering},
};

use esp::ConnectionId;
use libc::{c_int, pollfd};
use rustix::fs::{MemfdFlags, memfd_create};

use crate::{
    counters::{self, Count},
    errno::Errno,
    host::{Host, now},
    links, own_fds,
    passed::Passed,
    report::Ends,
    settings,
    stream::Stream,
    system,
    table::{self, Entry},
};

/// The variable that names the program which is a keeper when it is started so ([`run`]).
pub const PROGRAM_VARIABLE: &str = "ESP_RUN_PROGRAM";
/// The argument by which that program becomes one; the interface follows.
pub const ARGUMENT: &str = "--keep-connection";
/// The keeper's descriptors: its end of the pair, the connection, and a socket over which it says its port, is told that the connection is
/// there, and says that it has it.
const PAIR_FD: RawFd = 3;
const HANDOVER_FD: RawFd = 4;
pub(crate) const READY_FD: RawFd = 5;
/// So long a program waits for its keeper, in nanoseconds.
const READY_LIMIT_NS: u64 = 5_000_000_000;
/// Bytes that are moved at a time.
const MOVE_LEN: usize = 64 << 10;
/// A pair's send buffer in bytes: the kernel's default, which a set of epoll may have changed.
const PAIR_LEN: c_int = 212_992;

/// Gives a connection to a keeper. Its descriptors are the kernel's from then on.
pub(crate) fn pass(stream: &Arc<Stream>) {
    if stream.is_passed.swap(true, Ordering::Relaxed) {
        return;
    }
    let passed = Entry::Passed(Arc::new(Passed { names: stream.names }));
    let is_its = |entry: &Entry| matches!(entry, Entry::Stream(known) if Arc::ptr_eq(known, stream));
    let numbers = table::pick(|entry| is_its(entry).then_some(()));
    let Ok(starting) = start_for(stream) else {
        // It stays this program's.
        stream.is_passed.store(false, Ordering::Relaxed);
        counters::count(Count::Losses);
        return;
    };
    let handover = stream.host.take_out(stream.id, starting.port);
    if let Some((near, ())) = numbers.first() {
        let _ = system::set_option(*near, libc::SOL_SOCKET, libc::SO_SNDBUF, &PAIR_LEN);
    }
    let given = handover.is_some_and(|handover| {
        let mut described = format!("{}\n", stream.ends()).into_bytes();
        described.extend_from_slice(&handover);
        starting.give(&described).is_ok()
    });
    counters::count(if given { Count::Passes } else { Count::Losses });
    for (fd, ()) in numbers {
        table::replace(fd, Some(passed.clone()));
    }
}

fn start_for(stream: &Stream) -> std::io::Result<Starting> {
    let far = stream.pair.far().ok_or(std::io::ErrorKind::NotConnected)?;
    start(ARGUMENT, &stream.host, far)
}

/// A keeper that waits for what it is to take over.
pub(crate) struct Starting {
    /// The wire port at which a connection will be there.
    port: u16,
    /// Holds what it takes over, once that is given.
    file: File,
    /// What both say to each other.
    words: UnixStream,
}

/// Starts this program's keeper as `argument` says, and waits until it is there.
pub(crate) fn start(argument: &str, host: &Host, pair: RawFd) -> std::io::Result<Starting> {
    let file = File::from(memfd_create("esp-handover", MemfdFlags::CLOEXEC)?);
    let text = |text: &str| CString::new(text).map_err(|_| std::io::ErrorKind::InvalidInput);
    let program = text(&settings::get().keeper.to_string_lossy())?;
    let arguments = [program.clone(), text(argument)?, text(&host.interface.name)?];
    let run_dir = weft_authority::run_dir().to_string_lossy();
    let variables = [text(&format!("OMX_RUN_DIR={run_dir}"))?];
    let (words, its_end) = UnixStream::pair()?;
    let fds = [pair, file.as_raw_fd(), its_end.as_raw_fd()];
    spawn_apart(&program, &arguments, &variables, fds)?;
    drop(its_end);
    let port = u16::from_le_bytes([word(words.as_fd())?, word(words.as_fd())?]);
    Ok(Starting { port, file, words })
}

impl Starting {
    /// Gives the keeper what it takes over, and waits until the peers know where that is.
    ///
    /// # Errors
    /// `TimedOut`: it is there, and may yet take it over. All others: no keeper has it.
    pub(crate) fn give(mut self, handover: &[u8]) -> std::io::Result<()> {
        self.file.write_all(handover)?;
        self.file.rewind()?;
        system::send_now(self.words.as_raw_fd(), &[1]).map_err(|error| std::io::Error::from_raw_os_error(error.0))?;
        // A peer sends to this process until the keeper has told it otherwise, and would be refused if this process ended before.
        word(self.words.as_fd()).map(drop)
    }
}

/// Waits for a byte of a keeper.
///
/// # Errors
/// `TimedOut`: it is there, and may yet say it; `BrokenPipe`: it ended before.
fn word(from: BorrowedFd<'_>) -> std::io::Result<u8> {
    let mut fds = [pollfd {
        fd: from.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    }];
    let mut word = [0; 1];
    if !matches!(system::poll(&mut fds, Some(READY_LIMIT_NS), ptr::null()), Ok(1)) {
        Err(std::io::ErrorKind::TimedOut.into())
    } else if system::read(from.as_raw_fd(), &mut word) == Ok(1) {
        Ok(word[0])
    } else {
        Err(std::io::ErrorKind::BrokenPipe.into())
    }
}

/// Waits until a keeper or an authority says that it is ready; `false`: it ended before, or takes too long.
pub(crate) fn is_ready(ready: BorrowedFd<'_>) -> bool {
    word(ready).is_ok()
}

/// Starts a program that is no child of this one, with three descriptors.
pub(crate) fn spawn_apart(
    program: &CString,
    arguments: &[CString],
    variables: &[CString],
    fds: [RawFd; 3],
) -> std::io::Result<()> {
    let pointers = |texts: &[CString]| -> Vec<*const libc::c_char> {
        texts.iter().map(|text| text.as_ptr()).chain([ptr::null()]).collect()
    };
    let (arguments, variables) = (pointers(arguments), pointers(variables));
    let mut copies = Vec::new();
    for fd in fds {
        copies.push(own_fds::OwnFd::copy_of(fd).ok_or_else(std::io::Error::last_os_error)?);
    }
    let high: Vec<RawFd> = copies.iter().map(AsRawFd::as_raw_fd).collect();
    // SAFETY: the child makes system calls alone, on memory of its own; it never returns.
    let child = unsafe { libc::syscall(libc::SYS_clone, 0, 0, 0, 0, 0) };
    match child {
        ..0 => Err(std::io::Error::last_os_error()),
        // SAFETY: as above.
        0 => unsafe {
            libc::syscall(libc::SYS_setsid);
            if libc::syscall(libc::SYS_clone, 0, 0, 0, 0, 0) == 0 {
                // The copies have numbers above those.
                libc::syscall(libc::SYS_dup3, high[0], PAIR_FD, 0);
                libc::syscall(libc::SYS_dup3, high[1], HANDOVER_FD, 0);
                libc::syscall(libc::SYS_dup3, high[2], READY_FD, 0);
                libc::syscall(libc::SYS_close_range, READY_FD + 1, u32::MAX, 0);
                for fd in 0..3 {
                    let null = libc::syscall(libc::SYS_open, c"/dev/null".as_ptr(), libc::O_RDWR) as RawFd;
                    libc::syscall(libc::SYS_dup2, null, fd);
                    if null > 2 {
                        libc::syscall(libc::SYS_close, null);
                    }
                }
                // Signals that the program ignores or blocks are nothing to the keeper.
                let none = 0_u64;
                libc::syscall(
                    libc::SYS_rt_sigprocmask,
                    libc::SIG_SETMASK,
                    &raw const none,
                    0_usize,
                    8_usize,
                );
                libc::syscall(
                    libc::SYS_execve,
                    program.as_ptr(),
                    arguments.as_ptr(),
                    variables.as_ptr(),
                );
            }
            libc::syscall(libc::SYS_exit_group, 0);
            libc::abort()
        },
        child => {
            // The first child ends at once; it sends no signal, and the program's own `wait` does not find it.
            // SAFETY: no status is asked for.
            unsafe { libc::syscall(libc::SYS_wait4, child, 0, libc::__WCLONE, 0) };
            Ok(())
        }
    }
}

/// What a keeper gets from the program that starts it.
pub(crate) struct Given {
    pub(crate) pair: OwnedFd,
    handover: File,
    words: UnixStream,
}

impl Given {
    /// Takes it from the descriptors that a keeper has.
    pub(crate) fn take() -> Self {
        // SAFETY: the program that starts a keeper gives it these, and this is called once.
        unsafe {
            Self {
                pair: OwnedFd::from_raw_fd(PAIR_FD),
                handover: File::from_raw_fd(HANDOVER_FD),
                words: UnixStream::from_raw_fd(READY_FD),
            }
        }
    }

    /// Waits for what there is to take over, at this host.
    ///
    /// # Errors
    /// The kernel's; `BrokenPipe`: the program has ended before.
    pub(crate) fn receive(&mut self, host: &Host) -> std::io::Result<Vec<u8>> {
        // The program's engine tells a peer that moves at the same time: neither would find the other.
        self.words.write_all(&host.upcoming_port().to_le_bytes())?;
        word(self.words.as_fd())?;
        let mut handover = Vec::new();
        self.handover.read_to_end(&mut handover)?;
        Ok(handover)
    }

    /// Says that this keeper has it.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn confirm(&mut self) -> std::io::Result<()> {
        self.words.write_all(&[1])
    }
}

/// Is a keeper: takes a connection up at an interface, and serves it until it is over.
///
/// # Errors
/// When the descriptors are not those of a keeper, or there is no authority.
pub fn run(interface: &str) -> Result<(), Box<dyn std::error::Error>> {
    let mut given = Given::take();
    let link = links::link(interface).ok_or("no authority speaks ESP on the interface")?;
    let host = link.host()?;
    let handover = given.receive(&host)?;
    let line = handover
        .iter()
        .position(|byte| *byte == b'\n')
        .ok_or("the connection is not described")?;
    let (ends, handover) = handover.split_at(line + 1);
    let id = host.attach(handover).ok_or("the connection cannot be taken up")?;
    Ends::of_line(&String::from_utf8_lossy(ends)).note(&host, id);
    host.await_settled(id);
    given.confirm()?;
    let Given { pair, .. } = given;
    Keeper {
        host: &host,
        id,
        pair: pair.as_raw_fd(),
        buffer: vec![0; MOVE_LEN],
        from_program: Some(Vec::new()),
        to_program: true,
    }
    .serve();
    drop(pair);
    host.run(|state, now| state.close(id, false, now));
    host.deliver(now().plus_nanos(60_000_000_000));
    Ok(())
}

/// A connection that is served.
struct Keeper<'a> {
    host: &'a Host,
    id: ConnectionId,
    pair: RawFd,
    buffer: Vec<u8>,
    /// Bytes of the programs that the engine has not taken; `None` after their end.
    from_program: Option<Vec<u8>>,
    /// The peer's stream goes on to the programs.
    to_program: bool,
}

/// What a turn found.
#[derive(Default)]
struct Turn {
    moved: bool,
    wants_to_write: bool,
    wants_to_read: bool,
    is_over: bool,
}

impl Keeper<'_> {
    fn serve(&mut self) {
        loop {
            let seen = self.host.changes();
            let turn = self.turn();
            if turn.is_over {
                return;
            }
            if turn.moved {
                continue;
            }
            let mut events = 0;
            if turn.wants_to_write {
                events |= libc::POLLOUT;
            }
            if turn.wants_to_read {
                events |= libc::POLLIN;
            }
            let mut fds = Vec::new();
            if events != 0 {
                fds.push(pollfd {
                    fd: self.pair,
                    events,
                    revents: 0,
                });
            }
            // Signals end the keeper or mean nothing.
            let _ = self.host.sleep(seen, &[self.id], &mut fds, None, ptr::null());
        }
    }

    fn turn(&mut self) -> Turn {
        let mut turn = Turn::default();
        self.take_from_program(&mut turn);
        let (id, pair) = (self.id, self.pair);
        let Self {
            host,
            buffer,
            from_program,
            to_program,
            ..
        } = self;
        host.run(|state, now| {
            if let Some(bytes) = from_program.as_mut().filter(|bytes| !bytes.is_empty()) {
                match state.engine.send(id, bytes, true, now) {
                    Ok(taken) => {
                        bytes.drain(..taken);
                        turn.moved |= taken > 0;
                    }
                    Err(esp::Error::WouldBlock) => {}
                    Err(_) => bytes.clear(),
                }
            }
            if *to_program {
                let len = state.engine.peek(id, 0, buffer).unwrap_or(0);
                if len > 0 {
                    match system::send_now(pair, &buffer[..len]) {
                        Ok(put) => {
                            let _ = state.engine.discard(id, put, now);
                            turn.moved |= put > 0;
                            turn.wants_to_write = put < len;
                        }
                        Err(Errno(libc::EAGAIN)) => turn.wants_to_write = true,
                        Err(_) => turn.is_over = true,
                    }
                } else if state.connection(id).is_over() {
                    *to_program = false;
                    // SAFETY: a plain call.
                    unsafe { libc::syscall(libc::SYS_shutdown, pair, libc::SHUT_WR) };
                }
            }
            if from_program.is_none() && !state.connection(id).is_shut {
                state.connection(id).is_shut = true;
                let _ = state.engine.shutdown_write(id, now);
            }
            let connection = state.connection(id);
            turn.is_over |= !*to_program && (connection.is_ended || from_program.is_none());
        });
        turn
    }

    /// Reads what the programs sent, if the engine took all before.
    fn take_from_program(&mut self, turn: &mut Turn) {
        let Some(bytes) = self.from_program.as_mut().filter(|bytes| bytes.is_empty()) else {
            return;
        };
        match system::receive_now(self.pair, &mut self.buffer) {
            Ok(0) | Err(Errno(libc::ECONNRESET)) => {
                self.from_program = None;
                turn.moved = true;
            }
            Ok(len) => {
                bytes.extend_from_slice(&self.buffer[..len]);
                turn.moved = true;
            }
            Err(_) => turn.wants_to_read = true,
        }
    }
}
