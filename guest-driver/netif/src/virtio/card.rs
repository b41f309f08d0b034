//! A card and the process that owns it: it sets the device up with all queue pairs, prepares them for other processes,
//! and takes them back from processes that ended, however they did.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

use rustix::fs::{FlockOperation, flock};

use super::{
    CardAddress, CardFacts, PairLayout, PreparedPair, Route, VirtioError,
    adopt::{self, Description},
    capabilities::Windows,
    control,
    device::{self, Bar, Device, duplicate},
    interrupts::Interrupts,
    layout::{PAGE, RingPlace},
    memory::{BusAddresses, SharedMemory},
    negotiation::{LINK_UP, MTU, MTU_DEFAULT, OF_PORTS, PAIRS_MAX, STATUS, Wanted, facts, negotiate},
    prepared::PairPlace,
    registers::{COMMON_LEN, Common, MappedRegisters, NETWORK_LEN, Network, QueueAddresses, Registers, status},
    ring::{Direction, Ring},
    uio::{self, Uio},
    vfio::Vfio,
    waiting,
};
use crate::mapping::Mapping;

/// All ones are no MTU (`look_at`).
const PLAUSIBLE_MTU_MAX: usize = 65_534;
/// Before the pairs stand a page for the control queue.
const CONTROL_PAGE: usize = 0;
const PAIRS_OFFSET: usize = PAGE;

/// A card that this process owns.
pub struct Card {
    address: CardAddress,
    // Before the memory, which the device uses until it is reset.
    common: Common<MappedRegisters>,
    network: Network<MappedRegisters>,
    device: Box<dyn Device>,
    windows: Windows,
    memory: SharedMemory,
    layout: PairLayout,
    facts: CardFacts,
    pairs: u16,
    features: u64,
    /// The number of the control queue, which is used once.
    control: Option<u16>,
    /// The numbers of the doorbells of all queues.
    doorbells: Vec<u16>,
    /// The card's addresses of what programs tell it, by pair.
    told: Vec<u64>,
    life: Life,
}

/// How an owner came to its card, and what is to be done at the end.
#[derive(Default)]
struct Life {
    /// It runs since before.
    goes_on: bool,
    /// It is left running.
    left: bool,
    /// The file in which its address is published.
    published: Option<PathBuf>,
}

impl Card {
    /// Takes the card at `address` and sets it up with at most `pairs_wanted` queue pairs, all of which hold buffers to
    /// receive.
    ///
    /// Waits for a few seconds where an `omxd` has the card, which lets it go when it is not asked for anything.
    ///
    /// A card that runs, whose owner was killed and of which one of `programs` has a queue pair, goes on as it is
    /// ([`Card::goes_on`]).
    ///
    /// # Errors
    /// [`VirtioError`]: no such card, with another driver, in use, no privilege, or unusable.
    pub fn open(address: CardAddress, pairs_wanted: u16, programs: &[u32]) -> Result<Self, VirtioError> {
        let mut device = waiting::open_after_authority(|| -> Result<Box<dyn Device>, VirtioError> {
            Ok(match device::route_of(address)? {
                Route::Uio => Box::new(Uio::open(address)?),
                Route::Vfio => Box::new(Vfio::open_patiently(address, || false)?),
            })
        })?;
        let windows = *device.windows();
        let (fd, offset, len) = device.registers();
        let mapping = Mapping::shared(fd, offset, len).map_err(VirtioError::io(address, "map the registers"))?;
        let bar = Bar::new(mapping, len);
        let (common, network) = registers(address, &bar, &windows)?;
        if runs(common.status())
            && let Some(Adopted {
                memory,
                description,
                doorbells,
                told,
            }) = adopt(&common, &mut *device, programs)
        {
            return Ok(Self {
                address,
                facts: facts(address, &network, description.features),
                common,
                network,
                device,
                windows,
                memory,
                layout: description.layout,
                pairs: description.pairs,
                features: description.features,
                control: None,
                doorbells,
                told,
                life: Life {
                    goes_on: true,
                    ..Life::default()
                },
            });
        }
        let mut card = Self::set_up(address, (common, network), device, windows, pairs_wanted)?;
        match card.start(&bar) {
            Ok(()) => Ok(card),
            Err(error) => {
                card.common.set_status(status::FAILED);
                Err(error)
            }
        }
    }

    /// Resets the card, negotiates and makes its memory; no queue is started yet.
    fn set_up(
        address: CardAddress,
        (common, network): (Common<MappedRegisters>, Network<MappedRegisters>),
        device: Box<dyn Device>,
        windows: Windows,
        pairs_wanted: u16,
    ) -> Result<Self, VirtioError> {
        device
            .enable()
            .map_err(VirtioError::io(address, "switch on access to memory"))?;
        let behind_iommu = device.route() == Route::Vfio;
        let wanted = Wanted {
            address,
            pairs: pairs_wanted.max(1),
            behind_iommu,
            understood: OF_PORTS,
        };
        let negotiated =
            negotiate(&common, &network, wanted).map_err(|what| VirtioError::Unusable { address, what })?;
        let layout = PairLayout::new(negotiated.facts.mtu, negotiated.ring_size, device.scatters());
        let memory = SharedMemory::new(adopt::MEMORY_NAME, memory_len(layout, negotiated.pairs))
            .map_err(VirtioError::io(address, "make the memory"))?;
        Ok(Self {
            address,
            common,
            network,
            device,
            windows,
            memory,
            layout,
            facts: negotiated.facts,
            pairs: negotiated.pairs,
            features: negotiated.features,
            control: negotiated.control,
            doorbells: Vec::new(),
            told: Vec::new(),
            life: Life::default(),
        })
    }

    /// Whether the card was running when it was taken, and goes on with its queue pairs as they were.
    pub const fn goes_on(&self) -> bool {
        self.life.goes_on
    }

    /// Leaves the card running for the next owner, when this value is dropped: programs have queue pairs of it.
    pub const fn leave_running(&mut self) {
        self.life.left = true;
    }

    /// Whether a program owns the card whose PCI configuration is at this path.
    ///
    /// # Errors
    /// The system's, where it cannot be found out.
    pub fn is_driven(configuration: &Path) -> io::Result<bool> {
        match flock(File::open(configuration)?, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(false),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(true),
            Err(error) => Err(error.into()),
        }
    }

    fn start(&mut self, bar: &Bar) -> Result<(), VirtioError> {
        let address = self.address;
        let bus = self
            .device
            .attach(&self.memory)
            .map_err(VirtioError::io(address, "pin the memory"))?;
        for pair in 0..self.pairs {
            let (memory, layout) = (self.part(pair)?, self.layout);
            let bus = bus.part(self.offset(pair), layout.len());
            self.told.push(bus.of(layout.told()));
            for (place, direction, queue) in [
                (layout.receive(), Direction::Receive, 2 * pair),
                (layout.transmit(), Direction::Transmit, 2 * pair + 1),
            ] {
                Ring::lay_out(&memory, layout, place, direction, &bus);
                let doorbell = self
                    .common
                    .start_queue(queue, layout.ring_size, ring_addresses(&bus, place));
                self.doorbells.push(doorbell);
            }
            self.refill(pair)?;
        }
        let description = Description {
            layout: self.layout,
            pairs: self.pairs,
            features: self.features,
        };
        description.write(&self.memory);
        let control = self.control.map(|queue| {
            let addresses = control::addresses(&bus, CONTROL_PAGE);
            (queue, self.common.start_queue(queue, control::SIZE, addresses))
        });
        let running = status::ACKNOWLEDGE | status::DRIVER | status::FEATURES_OK | status::DRIVER_OK;
        self.common.set_status(running);
        let registers = bar.window(self.windows.notify, 2).ok_or(VirtioError::Unusable {
            address,
            what: "its doorbells are not where it says",
        })?;
        let ring = |queue: u16, doorbell: u16| {
            let offset = doorbell as usize * self.windows.notify_multiplier as usize;
            // A doorbell that is not there is not rung.
            if offset.is_multiple_of(2) && offset + 2 <= self.windows.notify.len as usize {
                registers.write(offset, 2, queue.into());
            }
        };
        if let Some((queue, doorbell)) = control {
            control::set_pairs(&self.memory, &bus, CONTROL_PAGE, self.pairs, || ring(queue, doorbell))
                .map_err(|what| VirtioError::Unusable { address, what })?;
        }
        // The device may begin with a ring only after its first doorbell.
        for (queue, doorbell) in (0..).zip(&self.doorbells) {
            ring(queue, *doorbell);
        }
        Ok(())
    }

    fn offset(&self, pair: u16) -> usize {
        PAIRS_OFFSET + usize::from(pair) * self.layout.len()
    }

    /// Maps the memory of a pair.
    fn part(&self, pair: u16) -> Result<SharedMemory, VirtioError> {
        let file = self.memory.file().try_clone_to_owned();
        file.and_then(|file| SharedMemory::of_file(file, self.offset(pair) as u64, self.layout.len()))
            .map_err(VirtioError::io(self.address, "map the memory"))
    }

    /// Gives the card all receive buffers of a pair that it does not have.
    fn refill(&self, pair: u16) -> Result<(), VirtioError> {
        let memory = self.part(pair)?;
        let broken = |what| VirtioError::Broken {
            address: self.address,
            what,
        };
        let mut ring = Ring::attach(&memory, self.layout, self.layout.receive(), Direction::Receive).map_err(broken)?;
        for slot in 0..self.layout.slots {
            if !ring.is_with_card(slot) {
                ring.post(slot);
            }
        }
        ring.publish();
        Ok(())
    }

    /// Takes a pair back from a process that ended: what it received and has not seen is dropped, and the card gets all
    /// receive buffers. No process may be using the pair.
    ///
    /// # Errors
    /// [`VirtioError::Broken`] where the pair cannot be used any more until the card is opened anew.
    pub fn take_back(&self, pair: u16) -> Result<(), VirtioError> {
        self.refill(pair)
    }

    /// Returns how many queue pairs there are; the first is the owner's.
    pub const fn pairs(&self) -> u16 {
        self.pairs
    }

    /// Returns the route to the card.
    pub fn route(&self) -> Route {
        self.device.route()
    }

    /// Returns what the card says of itself now.
    pub fn facts(&self) -> CardFacts {
        let up = self.features & STATUS == 0 || self.network.status() & LINK_UP != 0;
        CardFacts { up, ..self.facts }
    }

    /// Publishes address, MTU and link in a folder, for programs that cannot [look at](look_at) the card. It is removed
    /// with this value.
    ///
    /// # Errors
    /// [`VirtioError::Io`].
    pub fn publish(&mut self, folder: &Path) -> Result<(), VirtioError> {
        let CardFacts { mac, mtu, up, .. } = self.facts();
        let path = published_file(self.address, folder);
        fs::write(&path, format!("{mac} {mtu} {}\n", if up { "up" } else { "down" }))
            .map_err(VirtioError::io(self.address, "publish the address"))?;
        self.life.published = Some(path);
        Ok(())
    }

    /// Whether the device says that it cannot go on without a reset, or was reset by another.
    pub fn has_failed(&self) -> bool {
        !runs(self.common.status())
    }

    /// Returns the card's address of what a program tells it of itself by a pair ([`crate::VirtioPort::told`]).
    ///
    /// # Panics
    /// For a pair that does not exist.
    pub fn told_address(&self, pair: u16) -> u64 {
        self.told[usize::from(pair)]
    }

    /// Has the card's interrupts delivered here, those for a pair from when they are wanted on ([`Interrupts::want`]).
    ///
    /// # Errors
    /// [`VirtioError::NoInterrupts`]; [`VirtioError::Io`] if the system refuses.
    pub fn interrupts(&self, pair: u16) -> Result<Interrupts, VirtioError> {
        let address = self.address;
        let missing = || VirtioError::NoInterrupts { address };
        let window = self.windows.isr.ok_or_else(missing)?;
        let open = || -> io::Result<_> {
            let (fd, offset, len) = self.device.registers();
            let bar = Bar::new(Mapping::shared(fd, offset, len)?, len);
            Ok((self.device.interrupts()?, bar))
        };
        let (line, bar) = open().map_err(|error| match error.kind() {
            io::ErrorKind::Unsupported => missing(),
            _ => VirtioError::io(address, "have interrupts delivered")(error),
        })?;
        let reasons = bar.window(window, 1).ok_or_else(missing)?;
        let interrupts = Interrupts::new(line, reasons, self.part(pair)?, self.layout.receive());
        interrupts
            .try_take()
            .map_err(VirtioError::io(address, "have interrupts delivered"))?;
        Ok(interrupts)
    }

    /// Prepares a pair for one process.
    ///
    /// # Errors
    /// [`VirtioError::Io`] when this process has no descriptors left.
    ///
    /// # Panics
    /// For a pair that does not exist.
    pub fn prepare(&self, pair: u16) -> Result<PreparedPair, VirtioError> {
        assert!(pair < self.pairs);
        let address = self.address;
        let prepare = || -> io::Result<_> {
            let (registers, base, _) = self.device.registers();
            let doorbell = |queue: u16| {
                let number = u64::from(self.doorbells[usize::from(queue)]);
                base + u64::from(self.windows.notify.offset) + number * u64::from(self.windows.notify_multiplier)
            };
            Ok(PreparedPair {
                facts: self.facts(),
                route: self.route(),
                place: PairPlace {
                    layout: self.layout,
                    memory_offset: self.offset(pair) as u64,
                    queue: 2 * pair,
                    doorbells: [doorbell(2 * pair), doorbell(2 * pair + 1)],
                },
                memory: self.memory.file().try_clone_to_owned()?,
                doorbells: registers.try_clone_to_owned()?,
                keep: duplicate(&self.device.keep())?,
            })
        };
        prepare().map_err(VirtioError::io(address, "hand out a queue pair"))
    }
}

impl Drop for Card {
    fn drop(&mut self) {
        // The device lets go of the memory before it is unmapped and unpinned. Programs that have a pair keep both.
        if !self.life.left {
            self.common.set_status(0);
        }
        if let Some(path) = &self.life.published {
            let _ = fs::remove_file(path);
        }
    }
}

const fn runs(status: u8) -> bool {
    status & status::DRIVER_OK != 0 && status & (status::NEEDS_RESET | status::FAILED) == 0
}

fn memory_len(layout: PairLayout, pairs: u16) -> usize {
    PAIRS_OFFSET + usize::from(pairs) * layout.len()
}

/// What is found of a running card.
struct Adopted {
    memory: SharedMemory,
    description: Description,
    doorbells: Vec<u16>,
    told: Vec<u64>,
}

/// Finds the memory of a running card among what programs have, with the doorbells of its queues. `None`: there is none,
/// or it is not where the card has its queues.
fn adopt(common: &Common<MappedRegisters>, device: &mut dyn Device, programs: &[u32]) -> Option<Adopted> {
    let found = programs
        .iter()
        .find_map(|program| adopt::search(*program, adopt::MEMORY_NAME, device.path()).ok())?;
    let memory = SharedMemory::of_file(found.memory, 0, found.memory_len).ok()?;
    let description = Description::read(&memory)?;
    let Description { layout, pairs, .. } = description;
    if pairs > PAIRS_MAX || memory_len(layout, pairs) != found.memory_len {
        return None;
    }
    let bus = device.attach(&memory).ok()?;
    let (mut doorbells, mut told) = (Vec::new(), Vec::new());
    for pair in 0..pairs {
        let bus = bus.part(PAIRS_OFFSET + usize::from(pair) * layout.len(), layout.len());
        told.push(bus.of(layout.told()));
        for (place, queue) in [(layout.receive(), 2 * pair), (layout.transmit(), 2 * pair + 1)] {
            let (addresses, doorbell) = common.queue(queue);
            if addresses != ring_addresses(&bus, place) {
                return None;
            }
            doorbells.push(doorbell);
        }
    }
    device.adopt(found.device);
    Some(Adopted {
        memory,
        description,
        doorbells,
        told,
    })
}

fn ring_addresses(bus: &BusAddresses, place: RingPlace) -> QueueAddresses {
    QueueAddresses {
        descriptors: bus.of(place.descriptors),
        available: bus.of(place.available),
        used: bus.of(place.used),
    }
}

/// Finds the registers of a device.
pub(super) fn registers(
    address: CardAddress,
    bar: &Bar,
    windows: &Windows,
) -> Result<(Common<MappedRegisters>, Network<MappedRegisters>), VirtioError> {
    let what = "its registers are not where it says";
    let missing = || VirtioError::Unusable { address, what };
    let common = bar.window(windows.common, COMMON_LEN).ok_or_else(missing)?;
    let network = bar.window(windows.device, NETWORK_LEN).ok_or_else(missing)?;
    Ok((Common(common), Network(network)))
}

/// Looks at a card without owning it: its address, MTU and link, while any process drives it. A card with vfio shows them to its
/// owner alone, who [publishes](Card::publish) them in the folder `published`.
///
/// # Errors
/// [`VirtioError`]: no such card, with another driver, or no privilege.
pub fn look_at(address: CardAddress, published: &Path) -> Result<CardFacts, VirtioError> {
    let (network, _open) = match device::route_of(address)? {
        Route::Uio => {
            let (windows, bar) = uio::look_at(address)?;
            (registers(address, &bar, &windows)?.1, None)
        }
        Route::Vfio => match Vfio::open_patiently(address, || published_file(address, published).exists()) {
            Ok(device) => {
                let (fd, offset, len) = device.registers();
                let mapping =
                    Mapping::shared(fd, offset, len).map_err(VirtioError::io(address, "map the registers"))?;
                let (_, network) = registers(address, &Bar::new(mapping, len), device.windows())?;
                (network, Some(device))
            }
            Err(error) => return read_published(address, published).ok_or(error),
        },
    };
    // Which features the device has cannot be asked without disturbing its driver; a card without them has zeros or ones
    // in place of MTU and status.
    let mut facts = facts(address, &network, MTU | STATUS);
    if facts.mtu > PLAUSIBLE_MTU_MAX {
        facts.mtu = MTU_DEFAULT;
    }
    Ok(facts)
}

fn published_file(address: CardAddress, folder: &Path) -> PathBuf {
    folder.join(format!("card-{address}"))
}

/// Reads what the owner of a card wrote: address, MTU and whether the link is up.
fn read_published(address: CardAddress, folder: &Path) -> Option<CardFacts> {
    let text = fs::read_to_string(published_file(address, folder)).ok()?;
    let mut words = text.split_ascii_whitespace();
    let facts = CardFacts {
        address,
        mac: words.next()?.parse().ok()?,
        mtu: words.next()?.parse().ok().filter(|mtu| *mtu <= PLAUSIBLE_MTU_MAX)?,
        up: words.next()? == "up",
    };
    words.next().is_none().then_some(facts)
}
