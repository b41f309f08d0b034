//! The memory of one queue of an interface, and the sockets that send from it. A process with CAP_NET_RAW makes them
//! for others.

use std::{
    io, mem,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
};

use libc::{sockaddr_xdp, xdp_umem_reg};
use rustix::{
    fs::{MemfdFlags, SealFlags, fcntl_add_seals, fstat, ftruncate, memfd_create},
    mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap},
    net::{AddressFamily, SocketFlags, SocketType, socket_with},
};

use super::{FRAME_LEN_MAX, PART_LEN, RING_ENTRIES, socket::Rings};
use crate::{
    Interface,
    socket_options::{self, set_option_of},
};

/// The queue that frames are handed to. Every interface has it.
const QUEUE: u32 = 0;
/// The entries of the ring in which the kernel names completed frames. They are many, since the process that sends next
/// takes all of them back.
const COMPLETIONS: u32 = 2048;
/// Entries of the ring of memory to receive into, which the kernel wants to be there.
const NOT_RECEIVED: u32 = 2;

/// Bytes of what `stat` counts.
const STAT_BLOCK_LEN: i64 = 512;

/// Drivers, as they call themselves, for which the kernel copies a frame of an AF_XDP socket while the system call lasts: for others, of
/// which virtio's is one, a frame may stay in the memory until the driver is done with it.
const COPIED_FOR: [&str; 3] = ["veth", "bridge", "macvlan"];

/// A socket that sends frames directly to the driver, for a port here or in another process
/// ([`crate::AfPacket::from_prepared`]).
#[derive(Debug)]
pub struct PreparedDirect {
    /// The socket.
    pub socket: OwnedFd,
    /// The socket's part of the queue's memory.
    pub memory: OwnedFd,
    /// Which part that is.
    pub part: u32,
}

/// The memory for frames to one queue of an interface, which several sockets share.
#[derive(Debug)]
pub struct DirectPool {
    /// This socket owns the queue as long as any socket of the pool is open.
    first: OwnedFd,
    /// One file for each part: a process that has one sees no other part.
    parts: Vec<OwnedFd>,
    interface_index: u32,
}

impl DirectPool {
    /// Whether frames that sockets of a pool of this interface sent are over when the call is.
    pub fn copies_frames_of(interface: &Interface) -> bool {
        let driver = interface.driver();
        driver.is_some_and(|driver| COPIED_FOR.contains(&driver.as_str()))
    }

    /// Takes the first queue of the interface, for `parts` sockets. The kernel keeps 64 KiB for each in memory, which count against
    /// the user's limit of locked memory.
    ///
    /// # Errors
    /// [`io::ErrorKind::Unsupported`] for an interface whose driver [may still have](Self::copies_frames_of) what was sent.
    /// Otherwise the kernel's error: `EPERM` without CAP_NET_RAW, `EBUSY` if another socket has the queue, `ENOBUFS`
    /// beyond the limit, and others where it has no such sockets. `Unsupported` as well before Linux 6.4: there a ring
    /// can only be mapped before its socket is bound, so not by another process, which could bind it to anything.
    pub fn new(interface: &Interface, parts: u32) -> io::Result<Self> {
        if !Self::copies_frames_of(interface) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let interface_index = interface.index.cast_unsigned();
        let parts: Vec<_> = (0..parts).map(|_| part()).collect::<io::Result<_>>()?;
        let len = parts.len() * PART_LEN;
        let first = open()?;
        // SAFETY: a fresh mapping at an address of the kernel's choice.
        let base = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )?
        };
        let mapped = parts.iter().enumerate().try_for_each(|(number, part)| {
            // SAFETY: `number` is below the parts, so this replaces a part of the mapping made above, to which there is no reference; of
            // the file's bytes exactly.
            let mapped = unsafe {
                mmap(
                    base.byte_add(number * PART_LEN),
                    PART_LEN,
                    ProtFlags::READ | ProtFlags::WRITE,
                    MapFlags::SHARED | MapFlags::FIXED,
                    part,
                    0,
                )
            };
            mapped.map(|_| ()).map_err(io::Error::from)
        });
        // SAFETY: plain data for which all zeros are valid.
        let mut register: xdp_umem_reg = unsafe { mem::zeroed() };
        register.addr = base as u64;
        register.len = len as u64;
        register.chunk_size = FRAME_LEN_MAX as u32;
        let registered =
            mapped.and_then(|()| set_option_of(first.as_fd(), libc::SOL_XDP, libc::XDP_UMEM_REG, &register));
        // SAFETY: exactly the mappings made above, of which nothing was borrowed. The kernel holds the pages themselves.
        unsafe { munmap(base, len)? };
        registered?;
        for (ring, entries) in [
            (libc::XDP_UMEM_FILL_RING, NOT_RECEIVED),
            (libc::XDP_UMEM_COMPLETION_RING, COMPLETIONS),
            // One that never sends, since the kernel binds none without a ring.
            (libc::XDP_TX_RING, NOT_RECEIVED),
        ] {
            set_option_of(first.as_fd(), libc::SOL_XDP, ring, &entries)?;
        }
        bind(first.as_fd(), interface_index, libc::XDP_COPY, None)?;
        if Rings::map(first.as_fd(), NOT_RECEIVED).is_err() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        Ok(Self {
            first,
            parts,
            interface_index,
        })
    }

    /// Makes a socket that sends from this part of the memory. There should be no other one for the part.
    ///
    /// # Errors
    /// The kernel's error; [`io::ErrorKind::InvalidInput`] for a part that does not exist,
    /// [`io::ErrorKind::InvalidData`] for one whose file was emptied by a process that had it: the kernel would go on
    /// sending its former contents.
    pub fn socket(&self, part: u32) -> io::Result<PreparedDirect> {
        let memory = self.parts.get(part as usize).ok_or(io::ErrorKind::InvalidInput)?;
        if fstat(memory)?.st_blocks * STAT_BLOCK_LEN < PART_LEN as i64 {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let socket = open()?;
        set_option_of(socket.as_fd(), libc::SOL_XDP, libc::XDP_TX_RING, &RING_ENTRIES)?;
        bind(
            socket.as_fd(),
            self.interface_index,
            libc::XDP_SHARED_UMEM,
            Some(self.first.as_fd()),
        )?;
        Ok(PreparedDirect {
            socket,
            memory: memory.try_clone()?,
            part,
        })
    }
}

/// Makes the memory of one part. Its length is sealed, because the processes that map it rely on it.
fn part() -> io::Result<OwnedFd> {
    let memory = memfd_create("omx-frames", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    ftruncate(&memory, PART_LEN as u64)?;
    fcntl_add_seals(&memory, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(memory)
}

fn open() -> rustix::io::Result<OwnedFd> {
    socket_with(AddressFamily::XDP, SocketType::RAW, SocketFlags::CLOEXEC, None)
}

fn bind(socket: BorrowedFd<'_>, interface: u32, flags: u16, shared: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let address = sockaddr_xdp {
        sxdp_family: libc::AF_XDP as u16,
        sxdp_flags: flags,
        sxdp_ifindex: interface,
        sxdp_queue_id: QUEUE,
        sxdp_shared_umem_fd: shared.map_or(0, |fd| fd.as_raw_fd().cast_unsigned()),
    };
    socket_options::bind(socket, &address)
}
