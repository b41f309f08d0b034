//! The engine: it checks copies, cuts them into frames, and sees what the card is done with.

use std::{
    collections::VecDeque,
    hint,
    ops::Range,
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use ether::MacAddr;
use firmware::copy_engine::{self, CopyHeader, CopyRequest, NOTIFICATION_LEN, Notification};
use netif::virtio::{CardAddress, LoopCard, LoopFrame, PAGE, PIECES_MAX, Piece};

use crate::{
    CacheCounters, CopyError, Memory, Use,
    backend::Backend,
    limits::{COPIES_MAX, COPY_LEN_MAX},
    probe,
    registrations::{Place, Registrations},
};

mod list;

pub use list::ListedCopy;

/// A card that has done nothing for so long is told again that there is work.
const REMINDER_INTERVAL: Duration = Duration::from_millis(20);
/// A waiting program looks at its variable so often before it looks at the clock and at the rings.
const LOOKS: u32 = 64;

/// How an engine behaves.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// Without any progress for so long the card is given up; 10 s.
    pub timeout: Duration,
    /// Bytes of memory that stay known to the card after they were unregistered; 64 MiB.
    pub cache_len_max: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(10),
            cache_len_max: 64 << 20,
        }
    }
}

/// A copy of which frames are still to be posted.
struct Copy {
    source: Place,
    destination: Place,
    left: usize,
    notification: Option<Stored>,
    /// It may be in a frame with the copy before it.
    joins: bool,
}

/// A value that is stored behind a copy.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Stored {
    place: Place,
    /// The variable's address in this process.
    variable: usize,
    value: u64,
}

/// What an engine did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Copies that were accepted.
    pub copies: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Notifications that were asked for.
    pub notifications: u64,
    /// Pieces of memory that the frames consist of, on both sides.
    pub pieces: u64,
    /// Frames that were posted.
    pub frames: u64,
    /// Those that the card is done with.
    pub frames_done: u64,
}

/// A card that is wired to itself, as an engine of copies between parts of this process's memory (M-CI1 … M-CI3).
///
/// Copies are done one after the other, in the order of the calls, so a copy may read what an earlier one writes, and a
/// notification says that all before it are done, too. The card works by itself; but it has room for a limited number of frames
/// (256, of up to 252 KiB), and what is behind that is posted with the next call of any kind.
pub struct Engine<B: Backend = LoopCard> {
    // Before the registrations: it is stopped before their memory is let go.
    card: B,
    registrations: Registrations<B::Hold>,
    waiting: VecDeque<Copy>,
    /// What the card is to store, and has perhaps stored, but without giving the frame back: each with the number of that.
    notifying: VecDeque<(u64, Stored)>,
    options: Options,
    mac: MacAddr,
    /// Bytes of data in a frame.
    frame_len: usize,
    counters: Counters,
    /// Room for the pieces of a frame's source and destination.
    pieces: Box<[[Piece; PIECES_MAX]; 2]>,
    /// When it was first seen that the card has done nothing since it last did something, or had nothing to do: asking for a copy
    /// reads no clock.
    quiet_since: Option<Instant>,
    /// How often it was reminded since.
    reminders: u32,
    given_up: Option<String>,
}

impl Engine {
    /// Takes the card at `address`, which programs drive (`nicctl bind`) and which is wired to itself.
    ///
    /// # Errors
    /// [`CopyError::Card`], [`CopyError::NotLoopback`].
    pub fn open(address: CardAddress, options: &Options) -> Result<Self, CopyError> {
        let frame_len_max = probe::check(address)?;
        Ok(Self::with(LoopCard::open(address, frame_len_max)?, options))
    }
}

impl<B: Backend> Engine<B> {
    /// An engine over a card.
    pub fn with(card: B, options: &Options) -> Self {
        let behind = card.frame_data_max().saturating_sub(NOTIFICATION_LEN as usize);
        // Whole pages, so that frames begin where pages do if the copy does; and no more than a frame has pieces for.
        let frame_len = if behind >= PAGE {
            (behind / PAGE).min(PIECES_MAX - 1) * PAGE
        } else {
            behind
        };
        Self {
            mac: card.mac(),
            frame_len: frame_len.max(1),
            card,
            registrations: Registrations::new(options.cache_len_max),
            waiting: VecDeque::new(),
            notifying: VecDeque::new(),
            options: options.clone(),
            counters: Counters::default(),
            pieces: Box::new([[Piece::default(); PIECES_MAX]; 2]),
            quiet_since: None,
            reminders: 0,
            given_up: None,
        }
    }

    /// Returns the card.
    pub const fn card(&self) -> &B {
        &self.card
    }

    /// Returns what was counted.
    pub const fn counters(&self) -> Counters {
        self.counters
    }

    /// Returns what the cache of registrations counted.
    pub const fn cache(&self) -> CacheCounters {
        self.registrations.counters()
    }

    /// Returns how many bytes of a copy a frame carries.
    pub const fn frame_len(&self) -> usize {
        self.frame_len
    }

    /// Makes memory and registers it.
    ///
    /// # Errors
    /// [`CopyError::Pin`], [`CopyError::TooManyRegistrations`], [`CopyError::GivenUp`].
    pub fn allocate(&mut self, len: usize, kind: Use) -> Result<Memory, CopyError> {
        let fail = |reason| CopyError::Pin {
            address: 0,
            len,
            reason,
        };
        let memory = Memory::new(len.max(1)).map_err(fail)?;
        let bytes = bytes(memory.as_ptr(), memory.len());
        self.alive()?;
        // SAFETY: the registration keeps the memory mapped, and no Rust reference to it exists.
        unsafe {
            let (card, done) = (&mut self.card, self.counters.frames_done);
            self.registrations
                .register(card, bytes, kind, Some(memory.clone()), done)?;
        }
        Ok(memory)
    }

    /// Makes memory of this process known to the card: locks its pages, and looks up where they are. All but the copy itself of a
    /// byte must be inside one registration.
    ///
    /// # Errors
    /// [`CopyError::NoMemory`], [`CopyError::Pin`], [`CopyError::TooManyRegistrations`], [`CopyError::Replaced`],
    /// [`CopyError::GivenUp`].
    ///
    /// # Safety
    /// Until it is [unregistered](Engine::unregister) or the engine is dropped, the memory stays mapped at this address; and the program
    /// reckons with it being read and written whenever a copy that names it runs, as by another thread: no Rust reference
    /// to it is used meanwhile.
    pub unsafe fn register(&mut self, first: *mut u8, len: usize, kind: Use) -> Result<(), CopyError> {
        self.alive()?;
        let address = first as usize;
        if len == 0 || address.checked_add(len).is_none() {
            return Err(CopyError::NoMemory { address, len });
        }
        // SAFETY: this function's contract.
        unsafe {
            let (card, done) = (&mut self.card, self.counters.frames_done);
            self.registrations.register(card, bytes(first, len), kind, None, done)
        }
    }

    /// Takes a registration back, with the same first byte and length; waits until the card is done with copies that touch it. The pages
    /// stay known to the card for a while, so that registering them again is quick.
    ///
    /// # Errors
    /// [`CopyError::NotRegistered`]; those of [`Engine::wait`].
    pub fn unregister(&mut self, first: *mut u8, len: usize) -> Result<(), CopyError> {
        let missing = CopyError::NotRegistered {
            what: "registration",
            address: first as usize,
            len,
        };
        let Some(registration) = self.registrations.of_bytes(&bytes(first, len)) else {
            return Err(missing);
        };
        if self.given_up.is_none() {
            self.spin(|engine| Ok(!engine.registrations.is_busy(registration, engine.counters.frames_done)))?;
        }
        // A card that was given up touches no memory any more.
        let done = if self.given_up.is_none() {
            self.counters.frames_done
        } else {
            u64::MAX
        };
        self.registrations.remove(&mut self.card, registration, done);
        Ok(())
    }

    /// Copies `len` bytes.
    ///
    /// # Errors
    /// [`CopyError`] but for [`CopyError::Pin`]; nothing moves then.
    pub fn icopy(&mut self, destination: *mut u8, source: *const u8, len: usize) -> Result<(), CopyError> {
        self.copy((destination, source, len), Use::Program, None)
    }

    /// Copies `len` bytes, which may be 0, and then stores `value` in `variable`, whose address is a multiple of 8.
    ///
    /// # Errors
    /// As [`Engine::icopy`].
    pub fn icopy_notif(
        &mut self,
        destination: *mut u8,
        source: *const u8,
        len: usize,
        variable: *mut u64,
        value: u64,
    ) -> Result<(), CopyError> {
        self.copy((destination, source, len), Use::Program, Some((variable, value)))
    }

    /// Copies out of a receive buffer ([`Use::Receive`]).
    ///
    /// # Errors
    /// As [`Engine::icopy`].
    pub fn icopy_k2u(&mut self, destination: *mut u8, source: *const u8, len: usize) -> Result<(), CopyError> {
        self.copy((destination, source, len), Use::Receive, None)
    }

    /// Copies out of a receive buffer, and then stores `value` in `variable`.
    ///
    /// # Errors
    /// As [`Engine::icopy`].
    pub fn icopy_k2u_notif(
        &mut self,
        destination: *mut u8,
        source: *const u8,
        len: usize,
        variable: *mut u64,
        value: u64,
    ) -> Result<(), CopyError> {
        self.copy((destination, source, len), Use::Receive, Some((variable, value)))
    }

    /// Checks a copy and begins with it.
    fn copy(
        &mut self,
        bytes: (*mut u8, *const u8, usize),
        kind: Use,
        notification: Option<(*mut u64, u64)>,
    ) -> Result<(), CopyError> {
        self.alive()?;
        let copy = self.checked(bytes, kind, notification)?;
        self.progress()?;
        if self.waiting.len() >= COPIES_MAX {
            return Err(copy_engine::CopyError::QueueFull.into());
        }
        self.waiting.push_back(copy);
        self.accept(self.waiting.len() - 1);
        self.post();
        Ok(())
    }

    /// Checks a copy.
    fn checked(
        &self,
        (destination, source, len): (*mut u8, *const u8, usize),
        kind: Use,
        notification: Option<(*mut u64, u64)>,
    ) -> Result<Copy, CopyError> {
        if len > COPY_LEN_MAX {
            return Err(CopyError::TooLong { len });
        }
        let place = |address: usize| copy_engine::Place::user(address as u64);
        let mut request = CopyRequest::new(place(destination as usize), place(source as usize), len as u32);
        if let Some((variable, value)) = notification {
            request = request.notifying(Notification {
                variable: place(variable as usize),
                value,
            });
        }
        request.checked()?;
        let find = |what, address, len, kind| self.registrations.find(what, address, len, kind);
        let notification = notification
            .map(|(variable, value)| {
                let variable = variable as usize;
                let place = find("notification variable", variable, 8, Use::Program)?;
                Ok::<_, CopyError>(Stored { place, variable, value })
            })
            .transpose()?;
        let (source, destination) = match (len, notification) {
            // A notification alone has no data, wherever that would be.
            (0, Some(stored)) => (stored.place, stored.place),
            _ => (
                find("source", source as usize, len, kind)?,
                find("destination", destination as usize, len, Use::Program)?,
            ),
        };
        Ok(Copy {
            source,
            destination,
            left: len,
            notification,
            joins: false,
        })
    }

    /// Notes a copy that waits until it is posted.
    fn accept(&mut self, waiting: usize) {
        let copy = &self.waiting[waiting];
        for place in [copy.source, copy.destination] {
            self.registrations.begin(place);
        }
        if let Some(stored) = copy.notification {
            self.registrations.begin(stored.place);
            self.counters.notifications += 1;
        }
        self.counters.copies += 1;
        self.counters.bytes += copy.left as u64;
    }

    /// Posts frames as long as there is room.
    fn post(&mut self) {
        let mut unpublished = 0;
        let mut room = self.card.room();
        while room > 0 && !self.waiting.is_empty() {
            let pieces = &mut *self.pieces;
            let (mut counts, mut filled, mut done, mut notification) = ([0; 2], 0, 0, None);
            // A part of the first copy or all of it, and behind it those that may be with it.
            while notification.is_none()
                && let Some(copy) = self.waiting.get_mut(done)
            {
                let [source, destination] = [copy.source, copy.destination].map(|place| self.registrations.runs(place));
                let len = copy.left.min(self.frame_len);
                let fits = || {
                    copy.joins
                        && len == copy.left
                        && filled + len <= self.frame_len
                        && counts[0] + source.count(copy.source.cursor, len) <= PIECES_MAX
                        && counts[1] + destination.count(copy.destination.cursor, len) <= PIECES_MAX
                };
                if done > 0 && !fits() {
                    break;
                }
                counts[0] += source.take(&mut copy.source.cursor, len as u32, &mut pieces[0][counts[0]..]);
                counts[1] += destination.take(&mut copy.destination.cursor, len as u32, &mut pieces[1][counts[1]..]);
                filled += len;
                copy.left -= len;
                if copy.left > 0 {
                    break;
                }
                notification = copy.notification;
                done += 1;
            }
            if let Some(stored) = notification {
                self.notifying.push_back((self.counters.frames + 1, stored));
            }
            let header = CopyHeader {
                notifies: notification.is_some(),
                index: self.card.next_number(),
            };
            let frame = LoopFrame {
                header: header.encode(self.mac),
                source: &pieces[0][..counts[0]],
                destination: &pieces[1][..counts[1]],
                notification: notification.map(|stored| (self.registrations.address(stored.place), stored.value)),
            };
            // SAFETY: all of it is in registered memory (`Engine::checked` found it there), which is not let go before the frame is done
            // (`is_busy`, `is_idle`), nor before the card is stopped (the order of the fields). Both sides took as many bytes.
            unsafe { self.card.post(&frame) };
            self.counters.frames += 1;
            self.counters.pieces += (counts[0] + counts[1]) as u64;
            room -= 1;
            unpublished += 1;
            for _ in 0..done {
                if let Some(copy) = self.waiting.pop_front() {
                    self.all_posted(&copy);
                }
            }
            // The card begins with the first one while the others are being posted.
            if unpublished == 1 {
                self.card.publish();
            }
        }
        if unpublished > 1 {
            self.card.publish();
        }
    }

    fn all_posted(&mut self, copy: &Copy) {
        let frame = self.counters.frames;
        let variable = copy.notification.map(|stored| stored.place);
        for place in [copy.source, copy.destination].into_iter().chain(variable) {
            self.registrations.posted(place, frame);
        }
    }

    fn alive(&self) -> Result<(), CopyError> {
        match &self.given_up {
            _ if !self.card.is_own() => Err(CopyError::Forked),
            Some(why) => Err(CopyError::GivenUp { why: why.clone() }),
            None => Ok(()),
        }
    }

    /// Stops the card for good.
    #[cold]
    fn give_up(&mut self, error: CopyError) -> CopyError {
        self.card.stop();
        self.waiting.clear();
        self.notifying.clear();
        self.given_up = Some(error.to_string());
        error
    }

    /// Sees what the card is done with, and posts what waits. Every other call does so, too; a program that makes none for a long time
    /// calls this if its copies are longer than the rings.
    ///
    /// # Errors
    /// [`CopyError::Card`], [`CopyError::Lost`], [`CopyError::Stalled`], [`CopyError::GivenUp`].
    pub fn progress(&mut self) -> Result<(), CopyError> {
        self.alive()?;
        let idle = self.counters.frames_done == self.counters.frames;
        if idle && self.waiting.is_empty() {
            self.has_progress();
            return Ok(());
        }
        let reaped = match self.card.reap() {
            Ok(reaped) => reaped,
            Err(error) => return Err(self.give_up(error.into())),
        };
        if reaped.failed {
            return Err(self.give_up(CopyError::Lost));
        }
        if reaped.frames > 0 {
            self.counters.frames_done += u64::from(reaped.frames);
            let done = self.counters.frames_done;
            while self.notifying.pop_front_if(|(frame, _)| *frame <= done).is_some() {}
            self.has_progress();
            self.post();
        } else {
            self.wait_on()?;
        }
        Ok(())
    }

    fn has_progress(&mut self) {
        self.quiet_since = None;
        self.reminders = 0;
    }

    /// The card has done nothing since the last look.
    fn wait_on(&mut self) -> Result<(), CopyError> {
        let quiet = self.quiet_since.get_or_insert_with(Instant::now).elapsed();
        if quiet > self.options.timeout {
            let after = self.options.timeout;
            return Err(self.give_up(CopyError::Stalled { after }));
        }
        // Nothing else tells a card that was started again in the middle of a copy.
        if quiet > REMINDER_INTERVAL * (self.reminders + 1) {
            self.reminders += 1;
            self.card.remind();
        }
        Ok(())
    }

    /// Whether `variable` has `value`, and the card has given back the frame that stored it: all copies up to that are done, and will
    /// not be done again. The variable alone does not say that: a `vnicd` that is killed between the two leaves the frame to the
    /// next one.
    ///
    /// # Errors
    /// [`CopyError::NotRegistered`], [`CopyError::WrongUse`]; those of [`Engine::progress`].
    pub fn test(&mut self, variable: *const u64, value: u64) -> Result<bool, CopyError> {
        let what = "notification variable";
        self.registrations.find(what, variable as usize, 8, Use::Program)?;
        if !(variable as usize).is_multiple_of(8) {
            return Err(copy_engine::CopyError::Misaligned.into());
        }
        if self.is_notified(variable, value) {
            return Ok(true);
        }
        self.progress()?;
        Ok(self.is_notified(variable, value))
    }

    fn is_notified(&self, variable: *const u64, value: u64) -> bool {
        let is_this = |(_, stored): &(u64, Stored)| stored.variable == variable as usize && stored.value == value;
        look(variable) == value && !self.notifying.iter().any(is_this)
    }

    /// Waits until `variable` has `value`.
    ///
    /// # Errors
    /// As [`Engine::test`]; [`CopyError::NotAwaited`] if all copies are done and it has not.
    pub fn wait(&mut self, variable: *const u64, value: u64) -> Result<(), CopyError> {
        self.spin(|engine| {
            if engine.test(variable, value)? {
                return Ok(true);
            }
            if engine.is_idle() && look(variable) != value {
                // Nothing runs that could store it.
                let variable = variable as usize;
                return Err(CopyError::NotAwaited { variable, value });
            }
            for _ in 0..LOOKS {
                if look(variable) == value {
                    break;
                }
                hint::spin_loop();
            }
            Ok(false)
        })
    }

    /// Whether the card is done with all copies.
    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.counters.frames_done == self.counters.frames
    }

    /// Waits until all copies are done.
    ///
    /// # Errors
    /// Those of [`Engine::progress`].
    pub fn finish(&mut self) -> Result<(), CopyError> {
        self.spin(|engine| Ok(engine.is_idle()))
    }

    fn spin(&mut self, mut is_done: impl FnMut(&mut Self) -> Result<bool, CopyError>) -> Result<(), CopyError> {
        while !is_done(self)? {
            self.progress()?;
            hint::spin_loop();
        }
        Ok(())
    }
}

impl<B: Backend> Drop for Engine<B> {
    fn drop(&mut self) {
        self.card.stop();
    }
}

fn bytes(first: *mut u8, len: usize) -> Range<usize> {
    let first = first as usize;
    first..first.saturating_add(len)
}

/// Looks at a notification variable.
#[inline]
fn look(variable: *const u64) -> u64 {
    // SAFETY: aligned, and inside registered memory, which is mapped (`test` checks both before the first look).
    unsafe { AtomicU64::from_ptr(variable.cast_mut()) }.load(Ordering::Acquire)
}
