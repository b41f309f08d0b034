//! A card that this program drives itself: nothing takes packets but the program, so the card knows how far it is, and keeps what it has
//! no room for.

use std::{
    io::IoSlice,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    time::{Duration, Instant},
};

use ether::{EtherType, MacAddr};
use firmware::{
    HostRecordPlace, TimerKind,
    control::{GroupReport, HostRecordReport, Request, TimerReport, WatchdogReport, ability},
    host_record::field,
    multicast::RELIABLE_GROUP_MIN,
};
use netif::{
    Interest, Netif, NetifCounters, NetifError, VirtioPort, Wake,
    virtio::{Card, CardAddress, Interrupts, VirtioError},
};
use rustix::event::{EventfdFlags, eventfd};
use weft_card_control::{CardError, ask};

use crate::{LciError, Options, clock, host_state::HostState};

/// The only queue pair.
const PAIR: u16 = 0;
/// The card's timer for the soft timers of the node.
const CLOCK: u16 = 0;

/// A card, and a port on its only queue pair.
pub(crate) struct OwnCard {
    // Before the card is reset.
    port: VirtioPort,
    card: Card,
}

/// How the card looks after its node: it interrupts a program that does not poll, knowing its state exactly.
pub(crate) struct Watched {
    pub(crate) state: HostState,
    pub(crate) interrupts: Interrupts,
}

impl OwnCard {
    /// Takes the card.
    pub(crate) fn open(address: CardAddress) -> Result<Self, NetifError> {
        let card = Card::open(address, 1, &[])?;
        let port = VirtioPort::from_prepared(card.prepare(PAIR)?, EtherType::CARD_TO_CARD)?;
        Ok(Self { port, card })
    }

    /// Has the card look after this node: it reads the node's state from the port's memory, and has a watchdog and a clock as `options`
    /// say, or the next that it allows. `None` where the card knows nothing of such a state, or has no interrupts.
    pub(crate) fn watch(&mut self, options: &Options) -> Result<Option<Watched>, LciError> {
        let interrupts = match self.card.interrupts(PAIR) {
            Ok(interrupts) => interrupts,
            Err(VirtioError::NoInterrupts { .. }) => return Ok(None),
            Err(error) => return Err(NetifError::from(error).into()),
        };
        let address = self.card.told_address(PAIR);
        self.port.also_receive(Some(EtherType::CARD_CONTROL));
        let state = watch(&mut self.port, address, options);
        self.port.also_receive(None);
        Ok(state?.map(|state| Watched { state, interrupts }))
    }

    /// Makes the card a member of `group`, which has at most `members`, and of no other reliable one.
    pub(crate) fn join(&mut self, group: u16, members: usize) -> Result<(), LciError> {
        self.port.also_receive(Some(EtherType::CARD_CONTROL));
        let stop = never()?;
        let joined = join(&mut self.port, &stop, group, members);
        self.port.also_receive(None);
        joined
    }
}

/// A descriptor that never becomes readable.
fn never() -> Result<OwnedFd, LciError> {
    eventfd(0, EventfdFlags::CLOEXEC).map_err(|error| LciError::System {
        what: "make an event descriptor",
        source: error.into(),
    })
}

fn watch(port: &mut VirtioPort, address: u64, options: &Options) -> Result<Option<HostState>, LciError> {
    let stop = never()?;
    let able = match weft_card_control::Card::new(port, stop.as_fd()).hello() {
        Ok(abilities) => abilities.bits,
        // An ordinary card.
        Err(CardError::NoAnswer) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let needed = ability::HOST_RECORD | ability::WATCHDOG | ability::TIMERS;
    if able & needed != needed {
        return Ok(None);
    }
    // Another one at each start, so that what the last program left is not taken for this one's.
    let key = (clock::now().as_nanos() as u32 ^ std::process::id().rotate_left(16)) | 1;
    let state = HostState::new(port.told(field::PROCESSED), key);
    let mut card = weft_card_control::Card::new(port, stop.as_fd());
    let place = Some(HostRecordPlace { address, key });
    let _: HostRecordReport = ask!(card, &Request::SetHostRecord { queue: PAIR, place }, SetHostRecord)?;
    let queue = Some(PAIR);
    let allowed: WatchdogReport = ask!(card, &Request::GetWatchdog { queue }, GetWatchdog)?;
    let delay_ns = within(options.watchdog, allowed.delay_ns_min, allowed.delay_ns_max);
    let _: WatchdogReport = ask!(card, &Request::SetWatchdog { queue, delay_ns }, SetWatchdog)?;
    let allowed: TimerReport = ask!(card, &Request::DisarmTimer { timer: Some(CLOCK) }, DisarmTimer)?;
    let time_ns = within(options.clock_period, allowed.shortest_ns, allowed.longest_ns);
    if time_ns != 0 {
        let (timer, kind) = (CLOCK, TimerKind::Clock);
        let _: TimerReport = ask!(card, &Request::ArmTimer { timer, kind, time_ns }, ArmTimer)?;
    }
    Ok(Some(state))
}

/// The next time that the card allows; none stays none.
fn within(wanted: Duration, min_ns: u32, max_ns: u32) -> u64 {
    let wanted_ns = u64::try_from(wanted.as_nanos()).unwrap_or(u64::MAX);
    if wanted_ns == 0 {
        return 0;
    }
    wanted_ns.max(min_ns.into()).min(max_ns.into())
}

fn join(port: &mut VirtioPort, stop: &OwnedFd, group: u16, members: usize) -> Result<(), LciError> {
    let mut card = weft_card_control::Card::new(port, stop.as_fd());
    // What an earlier program of this card has left behind.
    let mut after = RELIABLE_GROUP_MIN - 1;
    loop {
        let found: GroupReport = ask!(card, &Request::GetGroups { after }, GetGroups)?;
        if found.group == 0 {
            break;
        }
        after = found.group;
        let _: GroupReport = ask!(card, &Request::LeaveGroup { group: after }, LeaveGroup)?;
    }
    let report: GroupReport = ask!(card, &Request::JoinGroup { group }, JoinGroup)?;
    let joined = usize::from(report.members);
    if joined > members {
        return Err(LciError::CardGroup { joined, members });
    }
    Ok(())
}

impl From<CardError> for LciError {
    fn from(error: CardError) -> Self {
        Self::Card(Box::new(error))
    }
}

impl AsFd for OwnCard {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.port.as_fd()
    }
}

impl Netif for OwnCard {
    fn mac(&self) -> MacAddr {
        self.port.mac()
    }

    fn mtu(&self) -> usize {
        self.port.mtu()
    }

    fn poll_receive(&mut self) -> Result<Option<&[u8]>, NetifError> {
        self.port.poll_receive()
    }

    fn send_burst(&mut self, frames: &[&[IoSlice<'_>]]) -> Result<usize, NetifError> {
        self.port.send_burst(frames)
    }

    fn wait(
        &mut self,
        interest: Interest,
        deadline: Instant,
        stop: Option<BorrowedFd<'_>>,
    ) -> Result<Wake, NetifError> {
        self.port.wait(interest, deadline, stop)
    }

    fn counters(&mut self) -> NetifCounters {
        self.port.counters()
    }
}
