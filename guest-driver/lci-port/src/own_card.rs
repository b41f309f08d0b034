//! A card that this program drives itself: nothing takes packets but the program, so the card knows how far it is, and keeps what it has
//! no room for.

use std::{
    io::IoSlice,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    thread,
    time::{Duration, Instant},
};

use ether::{EtherType, MacAddr};
use firmware::{
    control::{GroupReport, Request},
    multicast::RELIABLE_GROUP_MIN,
};
use netif::{
    Interest, Netif, NetifCounters, NetifError, VirtioPort, Wake,
    virtio::{Card, CardAddress},
};
use rustix::event::{EventfdFlags, eventfd};
use weft_card_control::{CardError, ask};

use crate::LciError;

/// How long to wait before asking again who has joined.
const ASK_AGAIN: Duration = Duration::from_millis(5);

/// A card, and a port on its only queue pair.
pub(crate) struct OwnCard {
    // Before the card is reset.
    port: VirtioPort,
    _card: Card,
}

impl OwnCard {
    /// Takes the card.
    pub(crate) fn open(address: CardAddress) -> Result<Self, NetifError> {
        let card = Card::open(address, 1, &[])?;
        let port = VirtioPort::from_prepared(card.prepare(0)?, EtherType::CARD_TO_CARD)?;
        Ok(Self { port, _card: card })
    }

    /// Makes the card a member of `group`, and of no other reliable one, and waits until it has `members`.
    pub(crate) fn join(&mut self, group: u16, members: usize, timeout: Duration) -> Result<(), LciError> {
        self.port.also_receive(Some(EtherType::CARD_CONTROL));
        let stop = eventfd(0, EventfdFlags::CLOEXEC).map_err(|error| LciError::System {
            what: "make an event descriptor",
            source: error.into(),
        })?;
        let joined = join(&mut self.port, &stop, group, members, timeout);
        self.port.also_receive(None);
        joined
    }
}

fn join(port: &mut VirtioPort, stop: &OwnedFd, group: u16, members: usize, timeout: Duration) -> Result<(), LciError> {
    let deadline = Instant::now() + timeout;
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
    let _: GroupReport = ask!(card, &Request::JoinGroup { group }, JoinGroup)?;
    loop {
        let report: GroupReport = ask!(card, &Request::GetGroups { after: group - 1 }, GetGroups)?;
        if report.group == group && usize::from(report.members) == members {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(LciError::CardGroup {
                joined: report.members.into(),
                members,
                seconds: timeout.as_secs(),
            });
        }
        thread::sleep(ASK_AGAIN);
    }
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
