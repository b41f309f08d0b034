//! Connections by number. A number is used again; its generation tells one use from the next.

use alloc::{boxed::Box, vec::Vec};

use crate::{ConnectionId, connection::Connection};

#[derive(Debug, Default)]
pub(super) struct Slots {
    slots: Vec<(u32, Option<Box<Connection>>)>,
    free: Vec<u32>,
}

impl Slots {
    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub(super) fn add(&mut self, connection: Connection) -> u32 {
        let connection = Some(Box::new(connection));
        match self.free.pop() {
            Some(slot) => {
                self.slots[slot as usize].1 = connection;
                slot
            }
            None => {
                self.slots.push((0, connection));
                (self.slots.len() - 1) as u32
            }
        }
    }

    pub(super) fn remove(&mut self, slot: u32) -> Option<Box<Connection>> {
        let (generation, connection) = self.slots.get_mut(slot as usize)?;
        let removed = connection.take()?;
        *generation = generation.wrapping_add(1);
        self.free.push(slot);
        Some(removed)
    }

    pub(super) fn id(&self, slot: u32) -> ConnectionId {
        ConnectionId {
            slot,
            generation: self.slots[slot as usize].0,
        }
    }

    #[inline]
    pub(super) fn get(&self, slot: u32) -> Option<&Connection> {
        self.slots.get(slot as usize)?.1.as_deref()
    }

    #[inline]
    pub(super) fn get_mut(&mut self, slot: u32) -> Option<&mut Connection> {
        self.slots.get_mut(slot as usize)?.1.as_deref_mut()
    }

    /// Takes a connection out of its slot for a moment.
    pub(super) fn take(&mut self, slot: u32) -> Option<Box<Connection>> {
        self.slots.get_mut(slot as usize)?.1.take()
    }

    /// Puts a connection back that was taken for a moment.
    pub(super) fn put(&mut self, slot: u32, connection: Box<Connection>) {
        self.slots[slot as usize].1 = Some(connection);
    }

    /// The slot of a connection that the program has a name for.
    #[inline]
    pub(super) fn find(&self, id: ConnectionId) -> Option<u32> {
        let (generation, connection) = self.slots.get(id.slot as usize)?;
        let connection = connection.as_deref()?;
        (*generation == id.generation && !connection.flags.is_orphan).then_some(id.slot)
    }

    /// Slots in use, in their order.
    pub(super) fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.slots.len() as u32).filter(|slot| self.slots[*slot as usize].1.is_some())
    }
}
