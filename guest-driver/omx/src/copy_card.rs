//! A card that is wired to itself as the engine that copies (papers.md M-CI4): the processor only says what is to be copied.
//!
//! Copies wait until some bytes have come together, a receive has all its packets, or the program goes on to do something else, and
//! are then told to the card as one list, with one doorbell at most. All of a list but the last are by `icopy_k2u`, the last
//! by `icopy_k2u_notif`: behind it the card stores the number of that copy, so that one variable says how far it is.

use std::{
    collections::VecDeque,
    hint,
    ops::Range,
    sync::{
        Once,
        atomic::{AtomicU64, Ordering},
    },
};

use icopy::{Backend, CardAddress, CopyError, Engine, ListedCopy, Memory, Options, Use};
use netif::virtio::LoopCard;

use crate::{CopyEngine, environment::say};

/// So many bytes are told to the card together while more come.
const BATCH_LEN: usize = 64 << 10;
/// The variable is looked at so often without news before the rings are: that finds what is to be posted, and a card that does nothing.
const LOOKS: u32 = 32;
/// At most so many copies wait or are with the card; more than the frames that a port lends.
const COPIES_MAX: usize = 256;

/// An engine whose copies a card makes. When it is no longer possible to use the card, the copies that it has not finished
/// are made by the processor, and later ones are refused.
pub(crate) struct CardEngine<B: Backend = LoopCard> {
    /// `None`: it cannot be used any more.
    engine: Option<Engine<B>>,
    /// Holds the number of the last copy that the card has made, as it says.
    made: Memory,
    /// Memory in which received frames lie.
    frames: Vec<Range<usize>>,
    /// The program's memory, by the names that were given out: its first byte and its length.
    known: Vec<(u64, *mut u8, usize)>,
    names: u64,
    /// Copies that the card was told and has not finished, then those that it was not told yet; the oldest first.
    running: VecDeque<ListedCopy>,
    batch: Vec<ListedCopy>,
    batch_len: usize,
    submitted: u64,
    finished: u64,
    /// Looks at the variable without news.
    looks: u32,
}

// SAFETY: the addresses are those of memory that its owners promise to keep while the engine knows it, on whatever thread.
unsafe impl<B: Backend + Send> Send for CardEngine<B> where B::Hold: Send {}

impl CardEngine {
    /// Takes the card at `address`.
    ///
    /// # Errors
    /// [`CopyError`].
    pub(crate) fn open(address: CardAddress) -> Result<Self, CopyError> {
        Self::with(Engine::open(address, &Options::default())?)
    }
}

impl<B: Backend> CardEngine<B> {
    /// # Errors
    /// [`CopyError`]: the card cannot know the variable.
    pub(crate) fn with(mut engine: Engine<B>) -> Result<Self, CopyError> {
        let made = engine.allocate(size_of::<u64>(), Use::Program)?;
        Ok(Self {
            engine: Some(engine),
            made,
            frames: Vec::new(),
            known: Vec::new(),
            names: 0,
            running: VecDeque::new(),
            batch: Vec::new(),
            batch_len: 0,
            submitted: 0,
            finished: 0,
            looks: 0,
        })
    }

    /// Tells the card the copies that wait.
    fn tell(&mut self) {
        if self.batch.is_empty() {
            return;
        }
        self.batch_len = 0;
        let (variable, number) = (self.made.variable(0), self.submitted);
        let told = match &mut self.engine {
            Some(engine) => engine.icopy_k2u_list(&self.batch, variable, number),
            None => Ok(()),
        };
        self.running.extend(self.batch.drain(..));
        if let Err(error) = told {
            self.give_up(&error);
        }
    }

    /// Looks how far the card is.
    #[inline]
    fn look(&mut self) {
        // SAFETY: aligned, and mapped as long as `made` is there.
        let number = unsafe { AtomicU64::from_ptr(self.made.variable(0)) }.load(Ordering::Acquire);
        self.looks += 1;
        if number != self.finished || self.looks >= LOOKS {
            self.look_closely(number);
        }
    }

    /// The variable has changed to `number`, or has not for long.
    fn look_closely(&mut self, number: u64) {
        self.looks = 0;
        let Some(engine) = &mut self.engine else { return };
        let variable = self.made.variable(0);
        let is_new = number > self.finished && number - self.finished <= self.running.len() as u64;
        let looked = if is_new {
            engine.test(variable, number)
        } else {
            engine.progress().map(|()| false)
        };
        match looked {
            Ok(true) => {
                self.running.drain(..(number - self.finished) as usize);
                self.finished = number;
            }
            Ok(false) => {}
            Err(error) => self.give_up(&error),
        }
    }

    /// Does without the card from now on: what it has not finished the processor copies.
    #[cold]
    fn give_up(&mut self, error: &CopyError) {
        static SAID: Once = Once::new();
        let is_own = self.engine.as_ref().is_some_and(|engine| engine.card().is_own());
        // Resets the card, so that it touches no memory any more.
        self.engine = None;
        let left = self.running.drain(..).chain(self.batch.drain(..));
        if !is_own {
            // A child of the process has a copy of the endpoint; the frames and perhaps the buffers are its parent's.
            left.for_each(drop);
            self.finished = self.submitted;
            return;
        }
        SAID.call_once(|| {
            say(
                None,
                &format!("the card that copies cannot be used any more, so the processor copies: {error}"),
            );
        });
        for ListedCopy {
            destination,
            source,
            len,
        } in left
        {
            // SAFETY: what `submit` was promised holds until the copy is finished, and the card does not write there any more.
            unsafe { std::ptr::copy_nonoverlapping(source, destination, len) };
        }
        self.finished = self.submitted;
    }
}

// SAFETY: a copy is finished when the card has stored its number or a later one and given back the frame that did so, all of which it
// does in order (`Engine::test`), or when `give_up` has made it after the card was stopped. Dropping the engine stops the card.
unsafe impl<B: Backend + Send> CopyEngine for CardEngine<B>
where
    B::Hold: Send,
{
    unsafe fn submit(&mut self, from: *const u8, to: *mut u8, len: usize) -> bool {
        let (begin, end) = (from.addr(), from.addr() + len);
        let is_in_frames = self.frames.iter().any(|known| known.start <= begin && end <= known.end);
        if self.engine.is_none() || !is_in_frames || self.running.len() + self.batch.len() >= COPIES_MAX {
            return false;
        }
        self.batch.push(ListedCopy {
            destination: to,
            source: from,
            len,
        });
        self.batch_len += len;
        self.submitted += 1;
        if self.batch_len >= BATCH_LEN {
            self.tell();
        }
        true
    }

    fn finished(&mut self) -> u64 {
        if !self.running.is_empty() {
            self.look();
        }
        self.finished
    }

    fn wait(&mut self, count: u64) {
        if self.finished < count {
            self.tell();
        }
        // The card is given up if it does nothing for long.
        while self.finished() < count {
            hint::spin_loop();
        }
    }

    fn start(&mut self) {
        self.tell();
    }

    fn needs_registrations(&self) -> bool {
        true
    }

    unsafe fn register(&mut self, memory: *mut u8, len: usize) -> Option<u64> {
        // SAFETY: what this function is promised.
        unsafe { self.engine.as_mut()?.register(memory, len, Use::Program) }.ok()?;
        self.names += 1;
        self.known.push((self.names, memory, len));
        Some(self.names)
    }

    fn unregister(&mut self, name: u64) {
        let Some(at) = self.known.iter().position(|(known, ..)| *known == name) else {
            return;
        };
        let (_, memory, len) = self.known.swap_remove(at);
        if let Some(engine) = &mut self.engine
            && let Err(error) = engine.unregister(memory, len)
        {
            // It is not known whether the card is done with it.
            self.give_up(&error);
        }
    }

    unsafe fn register_frames(&mut self, memory: *mut u8, len: usize) {
        let Some(engine) = &mut self.engine else { return };
        // SAFETY: what this function is promised.
        match unsafe { engine.register(memory, len, Use::Receive) } {
            Ok(()) => self.frames.push(memory.addr()..memory.addr() + len),
            Err(error) => say(
                None,
                &format!("the card that copies cannot reach received frames, so the processor copies: {error}"),
            ),
        }
    }
}

#[cfg(test)]
mod tests;
