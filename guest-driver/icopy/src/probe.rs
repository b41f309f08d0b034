//! Asks a card in band whether it is wired to itself, before its rings are used for copies.

use std::os::{fd::AsFd, unix::net::UnixStream};

use ether::EtherType;
use firmware::control::Request;
use netif::{
    VirtioPort,
    virtio::{Card, CardAddress, VirtioError},
};
use weft_card_control::{Card as Conversation, ask};

use crate::CopyError;

/// Returns the length of the longest frame that the card takes, in bytes; fails for a card that is not.
pub(crate) fn check(address: CardAddress) -> Result<usize, CopyError> {
    let refused = |why: String| CopyError::NotLoopback { address, why };
    let card = Card::open(address, 1, &[])?;
    let mut port =
        VirtioPort::from_prepared(card.prepare(0)?, EtherType::CARD_CONTROL).map_err(|error| match error {
            netif::NetifError::Virtio(error) => CopyError::Card(error),
            other => refused(other.to_string()),
        })?;
    // Never readable: there is nothing to stop for.
    let (never, _open) = UnixStream::pair().map_err(|source| VirtioError::Io {
        address,
        what: "open a socket to ask",
        source,
    })?;
    let mut conversation = Conversation::new(&mut port, never.as_fd());
    let answer = ask!(conversation, &Request::GetCopyEngine, GetCopyEngine);
    answer
        .map(|report| report.mtu as usize)
        .map_err(|error| refused(error.to_string()))
}
