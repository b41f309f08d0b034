//! What the program sends and reads.

use ether::Time;

use super::Engine;
use crate::{ConnectionId, Counter, Error, connection::Phase, event};

impl Engine {
    /// Takes bytes to be sent, as many as there is room for, and returns how many. With `push` the last of them go at once; without, less
    /// than a whole packet waits for more, for up to [`crate::Timing::hold_ns`].
    ///
    /// # Errors
    /// [`Error::WouldBlock`] without room ([`crate::Event::Writable`] follows), [`Error::Shutdown`], [`Error::NotConnected`],
    /// [`Error::Frozen`], [`Error::Ended`] or [`Error::Unknown`].
    #[inline]
    pub fn send(&mut self, id: ConnectionId, bytes: &[u8], push: bool, now: Time) -> Result<usize, Error> {
        self.send_slices(id, &[bytes], push, now)
    }

    /// [`send`](Self::send) of bytes that lie in several places.
    ///
    /// # Errors
    /// As [`send`](Self::send)'s.
    pub fn send_slices(&mut self, id: ConnectionId, parts: &[&[u8]], push: bool, now: Time) -> Result<usize, Error> {
        let (connection, shared) = self.connection_mut(id)?;
        connection.check_send()?;
        let mut taken = 0;
        let mut is_whole = true;
        let mut is_starved = false;
        for part in parts {
            let wanted = part.len().min(connection.send.space());
            let len = connection.send.give(&part[..wanted], &mut shared.memory);
            taken += len;
            is_starved = len < wanted;
            if len < part.len() {
                is_whole = false;
                break;
            }
        }
        if push || !is_whole {
            connection.send.push_all();
        }
        if !is_whole {
            is_starved &= !core::mem::replace(&mut connection.flags.wants_room, true);
        }
        if is_starved {
            self.starved.push_back(id);
        }
        if taken == 0 && !is_whole {
            return Err(Error::WouldBlock);
        }
        self.settle(id.slot, now);
        Ok(taken)
    }

    /// Sends what waits for more bytes.
    ///
    /// # Errors
    /// [`Error::Unknown`] if there is no such connection.
    pub fn push(&mut self, id: ConnectionId, now: Time) -> Result<(), Error> {
        self.connection_mut(id)?.0.send.push_all();
        self.settle(id.slot, now);
        Ok(())
    }

    /// Reads bytes in order, as many as are there and have room, and returns how many; 0 at the end of the peer's stream.
    ///
    /// # Errors
    /// [`Error::WouldBlock`] if nothing is there, [`Error::Ended`] once all is read of a connection that did not end in order,
    /// [`Error::NotConnected`], [`Error::Frozen`] or [`Error::Unknown`].
    #[inline]
    pub fn receive(&mut self, id: ConnectionId, room: &mut [u8], now: Time) -> Result<usize, Error> {
        let len = self.peek(id, 0, room)?;
        self.discard(id, len, now)?;
        Ok(len)
    }

    /// Reads as [`receive`](Self::receive) does, from `offset` bytes on, and leaves the bytes where they are.
    ///
    /// # Errors
    /// As [`receive`](Self::receive)'s.
    #[inline]
    pub fn peek(&self, id: ConnectionId, offset: usize, room: &mut [u8]) -> Result<usize, Error> {
        let connection = self.connection(id)?;
        if connection.flags.is_frozen {
            return Err(Error::Frozen);
        }
        let len = connection.receive.ring.copy_to(offset, room);
        if len == 0 && !room.is_empty() {
            return connection.end_of_bytes();
        }
        Ok(len)
    }

    /// The bytes that can be read, where they are, in two parts.
    ///
    /// # Errors
    /// [`Error::Unknown`] or [`Error::Frozen`].
    pub fn readable(&self, id: ConnectionId) -> Result<(&[u8], &[u8]), Error> {
        let connection = self.connection(id)?;
        if connection.flags.is_frozen {
            return Err(Error::Frozen);
        }
        Ok(connection.receive.ring.slices(0, usize::MAX))
    }

    /// Forgets the first `len` bytes that can be read, or all if there are fewer, and returns how many.
    ///
    /// # Errors
    /// [`Error::Unknown`] or [`Error::Frozen`].
    #[inline]
    pub fn discard(&mut self, id: ConnectionId, len: usize, now: Time) -> Result<usize, Error> {
        let (connection, shared) = self.connection_mut(id)?;
        if connection.flags.is_frozen {
            return Err(Error::Frozen);
        }
        let len = len.min(connection.receive.ring.len());
        if len == 0 {
            return Ok(0);
        }
        connection.receive.ring.consume(len, &mut shared.memory);
        if connection.receive.ring.is_empty() {
            connection.events &= !event::READABLE;
        }
        if connection.phase == Phase::Open && connection.receive.is_window_news() {
            connection.receive.ack_now = true;
            self.settle(id.slot, now);
        }
        Ok(len)
    }

    /// Bytes that can be read.
    ///
    /// # Errors
    /// [`Error::Unknown`] if there is no such connection.
    pub fn available(&self, id: ConnectionId) -> Result<usize, Error> {
        self.connection(id).map(|connection| connection.receive.ring.len())
    }

    /// Bytes that there is room for to be sent; 0 where sending fails.
    ///
    /// # Errors
    /// [`Error::Unknown`] if there is no such connection.
    pub fn space(&self, id: ConnectionId) -> Result<usize, Error> {
        let connection = self.connection(id)?;
        let can_send = connection.check_send().is_ok();
        Ok(if can_send { connection.send.space() } else { 0 })
    }

    /// Whether [`receive`](Self::receive) would not block: bytes, the end of the stream, or an error are there.
    ///
    /// # Errors
    /// [`Error::Unknown`] if there is no such connection.
    pub fn is_readable(&self, id: ConnectionId) -> Result<bool, Error> {
        let connection = self.connection(id)?;
        let is_handshake = matches!(connection.phase, Phase::SynSent | Phase::SynReceived);
        let has_end = connection.end_of_bytes() != Err(Error::WouldBlock);
        Ok(!connection.receive.ring.is_empty() || has_end && !is_handshake)
    }

    /// Asks for [`crate::Event::Writable`] as soon as there is room to send, as a [`send`](Self::send) without room does.
    ///
    /// # Errors
    /// [`Error::Unknown`] if there is no such connection.
    pub fn want_room(&mut self, id: ConnectionId) -> Result<(), Error> {
        self.connection_mut(id)?.0.flags.wants_room = true;
        Ok(())
    }

    /// The program sends no more: the peer's stream ends behind what was sent. Reading goes on.
    ///
    /// # Errors
    /// [`Error::NotConnected`], [`Error::Frozen`], [`Error::Ended`] or [`Error::Unknown`]; a second call is none.
    pub fn shutdown_write(&mut self, id: ConnectionId, now: Time) -> Result<(), Error> {
        let (connection, _) = self.connection_mut(id)?;
        match connection.check_send() {
            Err(Error::Shutdown) => return Ok(()),
            other => other?,
        }
        connection.finish();
        self.settle(id.slot, now);
        Ok(())
    }

    pub(super) fn count_readable(&mut self, slot: u32, len: usize) {
        self.shared.counters.add(Counter::BytesReceived, len as u64);
        if let Some(connection) = self.slots.get_mut(slot) {
            connection.tally.bytes_received += len as u64;
        }
    }
}
