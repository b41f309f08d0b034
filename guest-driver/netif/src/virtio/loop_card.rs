//! A card that is wired to itself, as the engine of copies: its owner forms the chains.

use std::{
    fs::File,
    io,
    ptr::NonNull,
    time::{Duration, Instant},
};

use super::{
    CardAddress, CardFacts, Route, VirtioError, card,
    device::{self, Bar, Device, Pin},
    doorbells::Doorbells,
    fork_mark::ForkMark,
    layout::PAGE,
    loop_ring::{FRAME_HEADER_LEN, LoopFrame, LoopRings, RING_SIZE_MIN, Reaped, Side},
    memory::SharedMemory,
    negotiation::{OF_CHAINS, Wanted, negotiate},
    registers::{Common, MappedRegisters, status},
    uio::{self, Uio},
    vfio::Vfio,
};
use crate::mapping::Mapping;

/// A device that has not let itself be reset by then never will.
const RESET_LIMIT: Duration = Duration::from_secs(5);

/// What keeps memory known to the card; [`LoopCard::unpin`] takes it.
pub struct Hold(Pin);

/// Memory that the card knows.
pub struct Pinned {
    /// The card's addresses of the pages, in their order.
    pub pages: Vec<u64>,
    /// What keeps them known.
    pub hold: Hold,
}

/// A card with one queue pair, whose output is wired to its input, and which this process alone drives.
///
/// A frame's data goes from the memory that its sender names to the memory that the same frame names as its destination. Which
/// memory that is says the caller: see [`LoopCard::post`].
pub struct LoopCard {
    address: CardAddress,
    // Before the memory, which the device uses until it is reset.
    common: Common<MappedRegisters>,
    device: Box<dyn Device>,
    rings: LoopRings,
    doorbells: Doorbells,
    facts: CardFacts,
    /// Bytes of the longest frame.
    frame_len_max: usize,
    stopped: bool,
    page_map: Option<File>,
    /// The card is the process's that opened it, and none of its children's.
    mark: ForkMark,
}

impl LoopCard {
    /// Takes the card at `address` and starts it. It takes frames of up to `frame_len_max` bytes, as it has said of itself.
    ///
    /// # Errors
    /// [`VirtioError`]: no such card, with another driver, in use, no privilege, or unusable. Whether its output is wired to its
    /// input only the card itself knows: ask it before.
    pub fn open(address: CardAddress, frame_len_max: usize) -> Result<Self, VirtioError> {
        let mut device: Box<dyn Device> = match device::route_of(address)? {
            Route::Uio => Box::new(Uio::open(address)?),
            Route::Vfio => Box::new(Vfio::open_patiently(address, || false)?),
        };
        let windows = *device.windows();
        let (registers, base, len) = device.registers();
        let fail = |what| VirtioError::io(address, what);
        let mapping = Mapping::shared(registers, base, len).map_err(fail("map the registers"))?;
        let doorbell_registers = registers.try_clone_to_owned().map_err(fail("duplicate a descriptor"))?;
        let (common, network) = card::registers(address, &Bar::new(mapping, len), &windows)?;
        device.enable().map_err(fail("switch on access to memory"))?;
        let wanted = Wanted {
            address,
            pairs: 1,
            behind_iommu: device.route() == Route::Vfio,
            understood: OF_CHAINS,
        };
        let negotiated =
            negotiate(&common, &network, wanted).map_err(|what| VirtioError::Unusable { address, what })?;
        let size = LoopRings::size(negotiated.ring_size);
        if size < RING_SIZE_MIN {
            let what = "its rings are too short for the chains of copies";
            return Err(VirtioError::Unusable { address, what });
        }
        let memory = SharedMemory::new("weft-loop-card", LoopRings::len(size)).map_err(fail("make the memory"))?;
        let bus = device.attach(&memory).map_err(fail("pin the memory"))?;
        let rings = LoopRings::new(memory, size, &bus);
        let numbers = [(Side::Receive, 0), (Side::Transmit, 1)]
            .map(|(side, queue)| common.start_queue(queue, size, LoopRings::addresses(side, &bus)));
        let at = numbers.map(|number| {
            base + u64::from(windows.notify.offset) + u64::from(number) * u64::from(windows.notify_multiplier)
        });
        let doorbells = Doorbells::map(&doorbell_registers, at).map_err(fail("map the doorbells"))?;
        let mark = ForkMark::new().map_err(fail("make memory that tells it from its children"))?;
        let running = status::ACKNOWLEDGE | status::DRIVER | status::FEATURES_OK | status::DRIVER_OK;
        common.set_status(running);
        let mut card = Self {
            address,
            common,
            device,
            rings,
            doorbells,
            facts: negotiated.facts,
            frame_len_max,
            stopped: false,
            page_map: uio::page_map().ok(),
            mark,
        };
        // The device may begin with a ring only after its first doorbell.
        for (which, queue) in [(0, 0), (1, 1)] {
            card.doorbells.ring(which, queue);
        }
        Ok(card)
    }

    /// Returns what the card said of itself when it was opened.
    pub const fn facts(&self) -> &CardFacts {
        &self.facts
    }

    /// Whether this is the process that opened the card. A child that it forked has the same memory, but is to leave the card alone.
    pub fn is_own(&self) -> bool {
        self.mark.is_own()
    }

    /// Returns the route to the card.
    pub fn route(&self) -> Route {
        self.device.route()
    }

    /// Returns how many bytes a frame has behind its header at most: data, and 8 if there is a notification.
    pub const fn frame_data_max(&self) -> usize {
        self.frame_len_max.saturating_sub(FRAME_HEADER_LEN)
    }

    /// Keeps whole pages of this process where they are and makes them known to the card.
    ///
    /// # Errors
    /// The system's: memory that is not there or cannot be written, or more than may be locked.
    pub fn pin(&mut self, base: NonNull<u8>, len: usize) -> io::Result<Pinned> {
        if len == 0 || !len.is_multiple_of(PAGE) || !(base.as_ptr() as usize).is_multiple_of(PAGE) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let (bus, pin) = self.device.pin(base, len)?;
        Ok(Pinned {
            pages: bus.into_pages(),
            hold: Hold(pin),
        })
    }

    /// Lets memory go; the card does not know it any more.
    ///
    /// # Errors
    /// The system's; the memory stays known then.
    pub fn unpin(&mut self, hold: Hold) -> io::Result<()> {
        self.device.unpin(hold.0)
    }

    /// Returns the physical addresses of whole pages of this process as they are now; `None` without the privilege to know.
    pub fn physical_pages(&self, base: NonNull<u8>, len: usize) -> Option<Vec<u64>> {
        uio::physical_of(self.page_map.as_ref()?, base, len).ok()
    }

    /// Returns how many frames can be posted now.
    pub fn room(&self) -> u16 {
        self.rings.room()
    }

    /// Returns how many frames the card has.
    pub fn in_flight(&self) -> u16 {
        self.rings.in_flight()
    }

    /// Returns the number of the next frame, which wraps: the index of both its chains.
    pub const fn next_number(&self) -> u16 {
        self.rings.next_number()
    }

    /// Gives the card a frame, with the next [`LoopCard::publish`].
    ///
    /// # Panics
    /// Without [room](LoopCard::room), and for a frame without data or with more pieces than [`super::PIECES_MAX`].
    ///
    /// # Safety
    /// All pieces, and the notification's variable, are in memory that was [pinned](LoopCard::pin) and stays so until
    /// [`LoopCard::reap`] has counted the frame, or the card was [stopped](LoopCard::stop); until then the program takes into account
    /// that the card reads and writes there. The destination has as many bytes as the source.
    pub unsafe fn post(&mut self, frame: &LoopFrame<'_>) {
        self.rings.post(frame);
    }

    /// Lets the card begin with what was posted.
    pub fn publish(&mut self) {
        if self.rings.publish() {
            self.doorbells.ring(1, 1);
        }
    }

    /// Rings both doorbells, whether or not the card asks for that: what emulates it may have been started again, and would not
    /// know that there is work. Frames that were lost meanwhile are sent again. For a program that has seen no progress for a while.
    pub fn remind(&mut self) {
        self.rings.repeat_lost();
        for (which, queue) in [(0, 0), (1, 1)] {
            self.doorbells.ring(which, queue);
        }
    }

    /// Sees how many frames the card is done with since the last call, in the order in which they were posted.
    ///
    /// # Errors
    /// [`VirtioError::Broken`]: the card broke a rule of its rings. It is stopped then.
    pub fn reap(&mut self) -> Result<Reaped, VirtioError> {
        if self.rings.wants_late_doorbell() {
            self.doorbells.ring(1, 1);
        }
        self.rings.reap().map_err(|what| {
            self.stop();
            VirtioError::Broken {
                address: self.address,
                what,
            }
        })
    }

    /// Resets the card: when this returns it neither reads nor writes memory any more, and does nothing until it is opened anew. In a
    /// child of the process that opened it this does nothing: the card goes on.
    pub fn stop(&mut self) {
        if self.is_own() && !std::mem::replace(&mut self.stopped, true) {
            self.common.set_status(0);
            // The device is reset when it says so; ours do at once.
            let until = Instant::now() + RESET_LIMIT;
            while self.common.status() != 0 && Instant::now() < until {
                std::thread::yield_now();
            }
        }
    }
}

impl Drop for LoopCard {
    fn drop(&mut self) {
        self.stop();
    }
}
