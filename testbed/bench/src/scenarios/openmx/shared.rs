//! The baseline of what one host can do: a flag and a message in shared memory, and long messages copied once by
//! `process_vm_readv`. There is no protocol.

use std::{
    fs::File,
    io,
    sync::atomic::{AtomicU64, Ordering},
    time::Instant,
};

use anyhow::{Context, ensure};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use super::{
    turns::End,
    work::{PATIENCE, Trip},
};

/// The file of the shared memory, on a file system that only this benchmark's processes see.
const FILE: &str = "/run/bare-memory";
const LEN: usize = 8192;
/// Length of the longest message that goes through the memory.
const MESSAGE_LEN_MAX: usize = 1024;

/// The words that both sides poll, each on cache lines of its own, before the room for a message in either direction.
#[repr(C)]
struct Words {
    ping: Line,
    pong: Line,
    /// Address of the long message in the process that measures; `pid` names that process.
    address: Line,
    pid: Line,
}

#[repr(C, align(256))]
struct Line(AtomicU64);

struct Memory {
    start: *mut u8,
}

impl Memory {
    fn map(file: &File) -> anyhow::Result<Self> {
        // SAFETY: a new mapping, which nothing else in this process refers to.
        let start = unsafe {
            mmap(
                std::ptr::null_mut(),
                LEN,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                file,
                0,
            )
        }
        .context("cannot map memory")?;
        Ok(Self { start: start.cast() })
    }

    const fn words(&self) -> &Words {
        // SAFETY: the mapping is longer than `Words` and begins at a page; atomics may be anything and are shared.
        unsafe { &*self.start.cast() }
    }

    /// Returns the room of the message to (`answer` false) or from the side that serves.
    const fn room(&self, answer: bool) -> *mut u8 {
        // SAFETY: both lie within the mapping, behind the words.
        unsafe {
            self.start
                .add(size_of::<Words>() + if answer { MESSAGE_LEN_MAX } else { 0 })
        }
    }

    fn write(&self, answer: bool, data: &[u8]) {
        assert!(data.len() <= MESSAGE_LEN_MAX);
        // SAFETY: the room is as long, and the other side reads it only when the flag says so.
        unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), self.room(answer), data.len()) };
    }

    fn read(&self, answer: bool, data: &mut [u8]) {
        assert!(data.len() <= MESSAGE_LEN_MAX);
        // SAFETY: as in `write`, in the other direction.
        unsafe { std::ptr::copy_nonoverlapping(self.room(answer), data.as_mut_ptr(), data.len()) };
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: mapped by `map`, and no reference outlives `self`.
        _ = unsafe { munmap(self.start.cast(), LEN) };
    }
}

/// Polls for `number`, which a partner that died never writes.
fn await_number(word: &Line, number: u64) -> anyhow::Result<()> {
    let began = Instant::now();
    loop {
        for _ in 0..1 << 16 {
            if word.0.load(Ordering::Acquire) == number {
                return Ok(());
            }
            std::hint::spin_loop();
        }
        anyhow::ensure!(began.elapsed() < PATIENCE, "the other side does not answer");
    }
}

/// Copies memory from another process.
fn copy_from(pid: i32, address: u64, into: &mut [u8]) -> anyhow::Result<()> {
    let own = libc::iovec {
        iov_base: into.as_mut_ptr().cast(),
        iov_len: into.len(),
    };
    let theirs = libc::iovec {
        iov_base: address as *mut libc::c_void,
        iov_len: into.len(),
    };
    // SAFETY: `into` is borrowed for this call; the kernel checks the other process's memory.
    let copied = unsafe { libc::process_vm_readv(pid, &raw const own, 1, &raw const theirs, 1, 0) };
    ensure!(
        usize::try_from(copied) == Ok(into.len()),
        "process_vm_readv: {}",
        io::Error::last_os_error()
    );
    Ok(())
}

/// One end of messages there and back.
struct RoundTrips {
    memory: Memory,
    data: Vec<u8>,
    number: u64,
    answers: bool,
    /// Whether the message is copied from the other process.
    long: bool,
}

impl End for RoundTrips {
    fn trip(&mut self) -> anyhow::Result<()> {
        let words = self.memory.words();
        self.number += 1;
        if self.answers {
            await_number(&words.ping, self.number)?;
            if self.long {
                let pid = words.pid.0.load(Ordering::Relaxed) as i32;
                copy_from(pid, words.address.0.load(Ordering::Relaxed), &mut self.data)?;
            } else {
                self.memory.read(false, &mut self.data);
                self.memory.write(true, &self.data);
            }
            words.pong.0.store(self.number, Ordering::Release);
            return Ok(());
        }
        if !self.long {
            self.memory.write(false, &self.data);
        }
        words.ping.0.store(self.number, Ordering::Release);
        await_number(&words.pong, self.number)?;
        if !self.long {
            self.memory.read(true, &mut self.data);
        }
        Ok(())
    }
}

/// Opens an end; with `answers` it is the one that replies, which makes the memory.
pub fn open_end(trip: Trip, answers: bool) -> anyhow::Result<Box<dyn End>> {
    let mut options = File::options();
    options.read(true).write(true);
    if answers {
        options.create(true).truncate(true);
    }
    let file = options.open(FILE)?;
    if answers {
        file.set_len(LEN as u64)?;
    }
    let memory = Memory::map(&file)?;
    let data = vec![0x5a; trip.length];
    if !answers {
        let words = memory.words();
        words.pid.0.store(std::process::id().into(), Ordering::Relaxed);
        words.address.0.store(data.as_ptr() as u64, Ordering::Relaxed);
    }
    Ok(Box::new(RoundTrips {
        memory,
        data,
        number: 0,
        answers,
        long: trip.length > MESSAGE_LEN_MAX,
    }))
}
