//! Cards of virtio 1.0 that a program drives itself, without the kernel (OS-bypass): the card reads and writes the
//! rings in the program's memory, and sending or receiving a frame costs no system call.
//!
//! One process owns a card ([`Card`]): it sets the device up with all its queue pairs and keeps their rings and buffers
//! in memory that it shares. Other processes get a pair each ([`PreparedPair`]) and drive it alone ([`VirtioPort`]).
//! What a pair is doing is recorded in its memory, so that the next process can go on where one was killed.
//!
//! Why own code: the crate `virtio-drivers` has one queue pair per network card, keeps the state of its rings in the
//! memory of the process that drives them and maps memory by functions without a device, so that neither a pair of
//! another process nor one whose process was killed can be driven, nor two cards with an IOMMU each; `virtio-queue` has
//! the device's side alone. What this module understands of virtio is small: split rings, no merged buffers (a buffer
//! holds the longest frame, and is lent as one slice), no offloads, flags instead of event indices.

mod adopt;
mod capabilities;
mod card;
mod control;
mod device;
mod doorbells;
mod facts;
mod fork_mark;
mod interrupts;
mod layout;
mod loop_card;
mod loop_ring;
#[cfg(test)]
mod loop_tests;
mod memory;
#[cfg(test)]
mod model;
mod negotiation;
mod port;
mod prepared;
mod registers;
mod ring;
#[cfg(test)]
mod tests;
mod told;
mod uio;
mod vfio;
mod waiting;

pub use card::{Card, look_at};
pub use device::{Route, check_kind, driver_of, may_own, route_of};
pub use facts::CardFacts;
pub use fork_mark::ForkMark;
pub use interrupts::Interrupts;
pub use layout::{PAGE, PairLayout};
pub use loop_card::{Hold, LoopCard, Pinned};
pub use loop_ring::{FRAME_HEADER_LEN, HeaderStart, LoopFrame, PIECES_MAX, Piece, Reaped};
pub use negotiation::PAIRS_MAX;
pub use port::{CardFaults, VirtioPort};
pub use prepared::{PairPlace, PreparedPair};
pub use told::Told;

pub use crate::{card_address::CardAddress, card_error::VirtioError, card_holder::Holder};
