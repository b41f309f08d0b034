//! The blocks of wire ports and the programs that have them. Blocks from an earlier authority are kept as long as their programs live:
//! their sockets still receive what is sent to those ports.

use ether::Time;
use weft_authority::{
    Refusal,
    esp::{BLOCK_FIRST, SESSION_BLOCKS_MAX},
};

use super::{Asking, Refused, filter::BlockSet};
use crate::owners::Program;

/// Blocks there are.
const BLOCKS: usize = 256;
/// Blocks that one user other than root can have: half of them.
const USER_BLOCKS_MAX: usize = (BLOCKS - BLOCK_FIRST as usize) / 2;
/// A block of an earlier authority is kept so long for a program that cannot be seen to have ended.
const UNSEEN_GRACE_NS: u64 = 60_000_000_000;

/// The owner of a block.
#[derive(Clone, Debug, Default)]
enum Owner {
    #[default]
    Free,
    /// A program of an earlier authority.
    Before { program: Program, until: Time },
    /// The program behind a connection.
    Client { connection: u64, user: u32 },
}

/// All blocks of an interface.
#[derive(Debug)]
pub(crate) struct Blocks {
    owners: Vec<Owner>,
    /// Where the search for a free one begins: a block that was freed is given again as late as can be, when its frames have ceased.
    next: u8,
}

impl Blocks {
    /// Keeps the blocks that `program_of` says an earlier authority gave to programs.
    pub(crate) fn new(now: Time, program_of: impl Fn(u8) -> Option<Program>) -> Self {
        let until = now.plus_nanos(UNSEEN_GRACE_NS);
        let owner = |block: u8| match program_of(block) {
            Some(program) if block >= BLOCK_FIRST && !program.has_ended() => Owner::Before { program, until },
            _ => Owner::Free,
        };
        Self {
            owners: (0..=255).map(owner).collect(),
            next: BLOCK_FIRST,
        }
    }

    fn owner(&self, block: u8) -> &Owner {
        &self.owners[usize::from(block)]
    }

    /// Returns the blocks that are taken.
    pub(crate) fn taken(&self) -> BlockSet {
        let mut set = BlockSet::default();
        for (block, owner) in self.owners.iter().enumerate() {
            if !matches!(owner, Owner::Free) {
                set[block / 32] |= 1 << (block % 32);
            }
        }
        set
    }

    /// Returns how many blocks are taken.
    pub(crate) fn count(&self) -> usize {
        self.taken().iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Returns the blocks of a connection.
    pub(crate) fn of(&self, connection: u64) -> Vec<u8> {
        let is_its =
            |block: &u8| matches!(self.owner(*block), Owner::Client { connection: of, .. } if *of == connection);
        (BLOCK_FIRST..=255).filter(is_its).collect()
    }

    fn check_limits(&self, connection: u64, user: u32, privileged: bool) -> Result<(), Refused> {
        if self.of(connection).len() >= SESSION_BLOCKS_MAX {
            let sentence = format!("this program has {SESSION_BLOCKS_MAX} blocks of ports for ESP, as many as one may");
            return Err((Refusal::Busy, sentence));
        }
        let is_users = |owner: &&Owner| matches!(owner, Owner::Client { user: of, .. } if *of == user);
        if !privileged && self.owners.iter().filter(is_users).count() >= USER_BLOCKS_MAX {
            let sentence = format!(
                "user {user} has {USER_BLOCKS_MAX} blocks of ports for ESP, as many as one user may; end some of its programs"
            );
            return Err((Refusal::Busy, sentence));
        }
        Ok(())
    }

    /// Gives a free block to a connection.
    pub(crate) fn give(&mut self, connection: u64, user: u32, privileged: bool) -> Result<u8, Refused> {
        self.check_limits(connection, user, privileged)?;
        let order = (self.next..=255).chain(BLOCK_FIRST..self.next);
        let free = order
            .into_iter()
            .find(|block| matches!(self.owner(*block), Owner::Free))
            .ok_or_else(|| {
                let sentence = "all blocks of ports for ESP are taken; end some programs that use it".to_owned();
                (Refusal::Busy, sentence)
            })?;
        self.next = free.checked_add(1).unwrap_or(BLOCK_FIRST);
        self.owners[usize::from(free)] = Owner::Client { connection, user };
        Ok(free)
    }

    /// Gives a block back to the program that had it from an earlier authority, unless it became another's.
    pub(crate) fn take_back(&mut self, block: u8, who: &Asking, program: &Program) -> Result<(), Refused> {
        let (connection, user) = (who.connection, who.user);
        let refused = |sentence| Err((Refusal::Busy, sentence));
        match self.owner(block) {
            _ if block < BLOCK_FIRST => refused(format!("block {block} is not for programs")),
            Owner::Before { program: before, .. } if !program.is(before) => {
                refused(format!("block {block} belongs to another program"))
            }
            Owner::Client { .. } => refused(format!("block {block} has been given to another program meanwhile")),
            Owner::Free | Owner::Before { .. } => {
                self.check_limits(connection, user, who.privileged)?;
                self.owners[usize::from(block)] = Owner::Client { connection, user };
                Ok(())
            }
        }
    }

    /// Takes one block from a connection.
    pub(crate) fn take_from(&mut self, connection: u64, block: u8) {
        if matches!(self.owner(block), Owner::Client { connection: of, .. } if *of == connection) {
            self.owners[usize::from(block)] = Owner::Free;
        }
    }

    /// Expects a program to take a block back, after another one could not be.
    pub(crate) fn give_back(&mut self, block: u8, program: &Program) {
        self.owners[usize::from(block)] = Owner::Before {
            program: *program,
            until: Time::MAX,
        };
    }

    fn free_if(&mut self, is_over: impl Fn(&Owner) -> bool) -> Vec<u8> {
        let mut freed = Vec::new();
        for (block, owner) in (0..=255).zip(&mut self.owners) {
            if is_over(owner) {
                *owner = Owner::Free;
                freed.push(block);
            }
        }
        freed
    }

    /// Frees the blocks of a connection, and returns them.
    pub(crate) fn release(&mut self, connection: u64) -> Vec<u8> {
        self.free_if(|owner| matches!(owner, Owner::Client { connection: of, .. } if *of == connection))
    }

    /// Frees blocks of an earlier authority whose programs have ended, or were not seen and have not come back; returns them.
    pub(crate) fn expire(&mut self, now: Time) -> Vec<u8> {
        self.free_if(|owner| match owner {
            Owner::Before { program, until } => program.has_ended() || (*until <= now && !program.is_seen()),
            _ => false,
        })
    }

    /// Says whether a program of an earlier authority has not come back yet.
    pub(crate) fn expects(&self) -> bool {
        self.owners.iter().any(|owner| matches!(owner, Owner::Before { .. }))
    }

    /// Says whether a block is taken.
    #[cfg(test)]
    pub(crate) fn is_taken(&self, block: u8) -> bool {
        super::filter::has(&self.taken(), block)
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    const fn asking(connection: u64) -> Asking {
        Asking {
            connection,
            pid: 1,
            user: 0,
            privileged: true,
        }
    }

    fn none() -> Blocks {
        Blocks::new(Time::ZERO, |_| None)
    }

    #[test]
    fn blocks_are_given_in_turn_up_to_the_limits_and_free_again_with_their_connection() {
        let mut blocks = none();
        assert_eq!(blocks.give(1, 7, false), Ok(BLOCK_FIRST));
        assert_eq!(blocks.release(1), [BLOCK_FIRST]);
        // Not the one that was just freed.
        assert_eq!(blocks.give(1, 7, false), Ok(BLOCK_FIRST + 1));
        for _ in 1..SESSION_BLOCKS_MAX {
            blocks.give(1, 7, false).unwrap();
        }
        assert_eq!(blocks.give(1, 7, false).unwrap_err().0, Refusal::Busy);
        let mut connection = 2;
        while let Ok(block) = blocks.give(connection, 7, false) {
            assert!(block >= BLOCK_FIRST && blocks.is_taken(block));
            connection += 1;
        }
        assert_eq!(blocks.count(), USER_BLOCKS_MAX);
        while blocks.give(connection, 8, true).is_ok() {
            connection += 1;
        }
        assert_eq!(blocks.count(), BLOCKS - usize::from(BLOCK_FIRST));
        assert_eq!(blocks.release(2).len(), 1);
        assert!(blocks.give(connection, 9, false).is_ok());
    }

    #[test]
    fn a_block_of_an_earlier_authority_is_kept_for_its_program_as_long_as_it_lives() {
        let mut ended = Command::new("sleep").arg("1000").spawn().unwrap();
        let own = Program::new(0, std::process::id());
        let other = Program::new(0, ended.id());
        let mut blocks = Blocks::new(Time::ZERO, |block| match block {
            20 => Some(own),
            21 => Some(other),
            _ => None,
        });
        assert!(blocks.expects() && blocks.is_taken(20) && blocks.is_taken(21));
        assert!(blocks.take_back(21, &asking(1), &own).is_err());
        ended.kill().unwrap();
        ended.wait().unwrap();
        let late = Time::from_nanos(UNSEEN_GRACE_NS);
        assert_eq!(blocks.expire(late), [21]);
        blocks.take_back(20, &asking(1), &own).unwrap();
        assert!(blocks.take_back(20, &asking(2), &own).is_err());
        assert!(blocks.take_back(3, &asking(2), &own).is_err());
        assert_eq!(blocks.of(1), [20]);
        assert!(!blocks.expects());
    }
}
