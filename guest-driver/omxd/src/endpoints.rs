//! The endpoint numbers and the programs that have them; numbers from an earlier authority are kept for their programs
//! for a while.

use ether::Time;
use mxoe::finisher::Finishers;
use weft_authority::{ENDPOINTS, OpenEndpoint, Refusal};

use crate::owners::Program;

/// Programs take their endpoints back within this time after an authority was restarted.
pub(crate) const GRACE_NS: u64 = 5_000_000_000;

/// The owner of a number.
#[derive(Clone, Debug, Default)]
enum Owner {
    #[default]
    Free,
    /// A program of an earlier authority has the number until then: this program, if that authority said which.
    Before { until: Time, program: Option<Program> },
    /// The program behind a connection.
    Client { connection: u64, who: OpenEndpoint },
}

#[derive(Debug)]
pub(crate) struct Endpoints {
    owners: [Owner; ENDPOINTS as usize],
    /// Numbers from this one on are not given away.
    limit: u8,
    /// Closed endpoints whose peers still wait for something.
    pub(crate) finishers: Finishers,
}

impl Endpoints {
    /// Keeps the numbers that were open when an earlier authority ended: they are not given away.
    pub(crate) fn new(
        open_before: u32,
        now: Time,
        program_of: impl Fn(u8) -> Option<Program>,
        finishers: Finishers,
    ) -> Self {
        let mut endpoints = Self {
            owners: Default::default(),
            limit: ENDPOINTS,
            finishers,
        };
        for (number, owner) in (0..).zip(&mut endpoints.owners) {
            if open_before & (1 << number) != 0 {
                *owner = Owner::Before {
                    until: now.plus_nanos(GRACE_NS),
                    program: program_of(number),
                };
            }
        }
        endpoints
    }

    /// Limits the numbers; those that were open before stay.
    pub(crate) fn at_most(mut self, limit: u8) -> Self {
        self.limit = limit.min(ENDPOINTS);
        self
    }

    /// Returns how many endpoints there can be.
    pub(crate) const fn limit(&self) -> u8 {
        self.limit
    }

    /// Returns a bit for each number that is taken.
    pub(crate) fn open(&self) -> u32 {
        let taken = |owner: &Owner| !matches!(owner, Owner::Free);
        (0..ENDPOINTS)
            .filter(|number| taken(&self.owners[usize::from(*number)]))
            .fold(0, |open, number| open | 1 << number)
    }

    pub(crate) fn is_open(&self, number: u8) -> bool {
        number < ENDPOINTS && self.open() & (1 << number) != 0
    }

    /// Whether a program of an earlier authority has this number and may still take it back.
    pub(crate) fn is_expected(&self, number: u8) -> bool {
        matches!(self.owners.get(usize::from(number)), Some(Owner::Before { .. }))
    }

    /// Returns the connection that has this number.
    pub(crate) fn connection_of(&self, number: u8) -> Option<u64> {
        match self.owners.get(usize::from(number)) {
            Some(Owner::Client { connection, .. }) => Some(*connection),
            _ => None,
        }
    }

    /// Returns the number that this connection has.
    pub(crate) fn number_of(&self, connection: u64) -> Option<u8> {
        (0..ENDPOINTS).find(|number| self.connection_of(*number) == Some(connection))
    }

    /// Chooses a free number: this one, or the lowest. Numbers that are finished for come last: peers of the endpoints that had them
    /// still wait for something.
    pub(crate) fn choose(&self, number: Option<u8>) -> Result<u8, (Refusal, String)> {
        match number {
            Some(number) if number >= self.limit => Err((
                Refusal::BadEndpoint,
                format!("there is no endpoint {number}: the highest is {}", self.limit - 1),
            )),
            Some(number) => match &self.owners[usize::from(number)] {
                Owner::Free => Ok(number),
                Owner::Client { who, .. } => Err((
                    Refusal::Busy,
                    format!(
                        "endpoint {number} is open already, by process {} ({}); choose another",
                        who.pid, who.command
                    ),
                )),
                Owner::Before { program, .. } => {
                    let whose = program.as_ref().map_or_else(
                        || "a program".to_owned(),
                        |program| format!("process {}", program.pid()),
                    );
                    let seconds = GRACE_NS / 1_000_000_000;
                    Err((
                        Refusal::NotBack,
                        format!(
                            "endpoint {number} was open when omxd was restarted: {whose} has {seconds} s to come back for it; choose another, or wait"
                        ),
                    ))
                }
            },
            None => (0..self.limit).filter(|number| !self.is_open(*number)).min_by_key(|number| self.finishers.has(*number)).ok_or_else(|| {
                let sentence = format!("all {} endpoints of the interface are open; close one, or start omxd with a larger OMX_ENDPOINTS_MAX", self.limit);
                (Refusal::Busy, sentence)
            }),
        }
    }

    /// Gives the number to this connection.
    pub(crate) fn give(&mut self, connection: u64, who: OpenEndpoint) {
        let number = usize::from(who.endpoint);
        self.owners[number] = Owner::Client { connection, who };
    }

    /// Gives a number back to its program, if no other program got it meanwhile.
    pub(crate) fn take_back(
        &mut self,
        connection: u64,
        who: OpenEndpoint,
        program: &Program,
    ) -> Result<(), (Refusal, String)> {
        match self.owners.get(usize::from(who.endpoint)) {
            Some(Owner::Before {
                program: Some(before), ..
            }) if !program.is(before) => {
                let sentence = format!("endpoint {} belongs to another program", who.endpoint);
                Err((Refusal::Busy, sentence))
            }
            Some(Owner::Free | Owner::Before { .. }) => {
                self.give(connection, who);
                Ok(())
            }
            _ => {
                let sentence = format!("endpoint {} has been given to another program meanwhile", who.endpoint);
                Err((Refusal::Busy, sentence))
            }
        }
    }

    /// Frees the number of a connection that is gone.
    pub(crate) fn release(&mut self, connection: u64) {
        for owner in &mut self.owners {
            if matches!(owner, Owner::Client { connection: of, .. } if *of == connection) {
                *owner = Owner::Free;
            }
        }
    }

    /// Frees numbers whose programs did not come back, and returns them.
    pub(crate) fn expire(&mut self, now: Time) -> Vec<u8> {
        self.free_if(|until, _| until <= now)
    }

    /// Frees numbers whose programs have ended and cannot come back, and returns them.
    pub(crate) fn expire_ended(&mut self) -> Vec<u8> {
        self.free_if(|_, program| program.is_some_and(Program::has_ended))
    }

    fn free_if(&mut self, is_over: impl Fn(Time, Option<&Program>) -> bool) -> Vec<u8> {
        let mut freed = Vec::new();
        for (number, owner) in (0..).zip(&mut self.owners) {
            if matches!(owner, Owner::Before { until, program } if is_over(*until, program.as_ref())) {
                *owner = Owner::Free;
                freed.push(number);
            }
        }
        freed
    }

    /// Returns when [`Endpoints::expire`] has something to do.
    pub(crate) fn due(&self) -> Option<Time> {
        self.owners
            .iter()
            .filter_map(|owner| match owner {
                Owner::Before { until, .. } => Some(*until),
                _ => None,
            })
            .min()
    }

    pub(crate) fn list(&self) -> Vec<OpenEndpoint> {
        self.owners
            .iter()
            .filter_map(|owner| match owner {
                Owner::Client { who, .. } => Some(who.clone()),
                _ => None,
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use mxoe::wire::{Dialect, Preset};

    use super::*;

    #[test]
    fn a_number_of_before_is_kept_for_a_program_that_lives_and_for_one_that_cannot_be_seen() {
        let mut ended = Command::new("sleep").arg("1000").spawn().unwrap();
        let programs = [
            Some(Program::new(0, std::process::id())),
            Some(Program::new(0, ended.id())),
            None,
        ];
        ended.kill().unwrap();
        ended.wait().unwrap();
        let mut endpoints = Endpoints::new(
            0b111,
            Time::ZERO,
            |number| programs[usize::from(number)],
            Finishers::new(
                ether::MacAddr([2, 0, 0, 0, 0, 1]),
                Dialect::new(Preset::Native1500.sizes()),
            ),
        );
        assert_eq!(endpoints.expire_ended(), [1]);
        assert_eq!(endpoints.choose(Some(1)), Ok(1));
        let refused = |number| endpoints.choose(Some(number)).unwrap_err();
        assert_eq!(refused(0).0, Refusal::NotBack);
        assert!(
            refused(0).1.contains(&format!("process {}", std::process::id())),
            "{}",
            refused(0).1
        );
        assert_eq!(refused(2).0, Refusal::NotBack);
        assert_eq!(endpoints.expire(Time::from_nanos(GRACE_NS - 1)), [0; 0]);
        assert_eq!(endpoints.expire(Time::from_nanos(GRACE_NS)), [0, 2]);
    }
}
