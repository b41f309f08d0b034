//! Steering and misordering of a port's card: settings between the report's words and the firmware's, and their change through
//! the handle. Which queue a frame gets, and which mark moves where, the firmware decides.

use firmware::{Firmware, SteeringMode};

use super::Fabric;
use crate::dataplane::card::Card;
use crate::dataplane::error::{FabricError, invalid};
use crate::report::{MisorderChange, MisorderSettings, QueueStats, SteeringChange, SteeringSettings};

impl Fabric {
    /// Changes how a port's card chooses receive queues (nothing, if no field is given) and returns what is in force.
    ///
    /// # Errors
    /// No such port, mode or queue, or too long a list; then nothing was changed.
    pub fn set_steering(&self, name: &str, change: &SteeringChange) -> Result<SteeringSettings, FabricError> {
        self.change(name, change.is_empty(), |port, _| {
            let mut settings = steering_of(port.firmware());
            if !change.is_empty() {
                change.apply_to(&mut settings);
                set_steering(port.firmware_mut(), &settings)?;
            }
            Ok(settings)
        })
    }

    /// Changes the misordering injector of a port's card (nothing, if no field is given) and returns what is in force.
    ///
    /// # Errors
    /// No such port, or a degree out of range; then nothing was changed.
    pub fn set_misorder(&self, name: &str, change: &MisorderChange) -> Result<MisorderSettings, FabricError> {
        self.change(name, change.degree.is_none(), |port, _| {
            if let Some(degree) = change.degree {
                set_misorder(port.firmware_mut(), &MisorderSettings { degree })?;
            }
            Ok(misorder_of(port.firmware()))
        })
    }
}

pub(super) fn set_steering(nic: &mut Firmware, settings: &SteeringSettings) -> Result<(), FabricError> {
    let known = settings.mode.parse::<SteeringMode>();
    let mode = known.map_err(|error| invalid(format!("{:?} is {error}", settings.mode)))?;
    let chosen = settings.chosen;
    let settings = firmware::SteeringSettings {
        mode,
        endpoints: repeated(&settings.endpoints, "endpoints")?,
        indirection: repeated(&settings.indirection, "indirection")?,
    };
    nic.steering_mut().set(settings).map_err(invalid)?;
    nic.steering_mut().set_chosen(chosen);
    Ok(())
}

/// A table with these entries over and over; `None` for none.
fn repeated<const LEN: usize>(entries: &[u8], name: &str) -> Result<Option<[u8; LEN]>, FabricError> {
    match entries.len() {
        0 => Ok(None),
        len if len > LEN => Err(invalid(format!("{name} must be at most {LEN} queues, not {len}"))),
        len => Ok(Some(std::array::from_fn(|index| entries[index % len]))),
    }
}

/// The shortest list that gives this table when it is repeated.
fn shortest(table: &[u8]) -> Vec<u8> {
    let gives = |len: &usize| table.iter().zip(table[..*len].iter().cycle()).all(|(a, b)| a == b);
    let len = (1..table.len()).find(gives).unwrap_or(table.len());
    table[..len].to_vec()
}

/// The steering in force on a card.
pub(super) fn steering_of(nic: &Firmware) -> SteeringSettings {
    let settings = nic.steering().settings();
    SteeringSettings {
        mode: settings.mode.to_string(),
        endpoints: settings.endpoints.map_or_else(Vec::new, |table| shortest(&table)),
        indirection: settings.indirection.map_or_else(Vec::new, |table| shortest(&table)),
        chosen: nic.steering().is_chosen(),
    }
}

pub(super) fn set_misorder(nic: &mut Firmware, settings: &MisorderSettings) -> Result<(), FabricError> {
    nic.misorder_mut().set_degree(settings.degree).map_err(invalid)
}

/// The misordering injector in force on a card.
pub(super) fn misorder_of(nic: &Firmware) -> MisorderSettings {
    MisorderSettings {
        degree: nic.misorder().degree(),
    }
}

/// What each receive queue of a port counts.
pub(super) fn queue_stats(card: &Card) -> Vec<QueueStats> {
    let queues = card.firmware().queues().iter().zip(0..);
    queues
        .map(|(pipeline, queue)| {
            let counts = pipeline.counters().total();
            QueueStats {
                queue,
                ready: card.is_receiving(usize::from(queue)),
                frames: counts.packets,
                bytes: counts.bytes,
                marked: counts.marked,
                decided: counts.decided_total(),
                suppressed: counts.suppressed,
                signalled: counts.signalled,
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn m_gf9_a_list_of_queues_is_repeated_and_told_as_the_shortest_that_says_the_same() {
        let mut nic = Firmware::new(firmware::FirmwareConfig {
            queue_pairs: 4,
            ..Default::default()
        });
        let mut settings = SteeringSettings {
            mode: "endpoint".to_owned(),
            endpoints: vec![3, 1, 1],
            indirection: vec![2, 2],
            chosen: true,
        };
        set_steering(&mut nic, &settings).expect("four queues");
        let table = nic.steering().settings().endpoints.expect("a table");
        assert_eq!(table[..7], [3, 1, 1, 3, 1, 1, 3]);
        settings.indirection.pop();
        assert_eq!(steering_of(&nic), settings);
        let whole = SteeringSettings {
            endpoints: (0..=255).map(|endpoint| u8::from(endpoint > 77)).collect(),
            ..settings
        };
        set_steering(&mut nic, &whole).expect("four queues");
        assert_eq!(steering_of(&nic), whole);
    }

    #[test]
    fn m_gf9_steering_that_a_card_cannot_follow_is_refused_with_a_sentence() {
        let mut nic = Firmware::new(firmware::FirmwareConfig::default());
        let refused = |nic: &mut Firmware, settings: SteeringSettings| {
            let error = set_steering(nic, &settings).expect_err("refused").to_string();
            assert_eq!(steering_of(nic), SteeringSettings::default());
            error
        };
        let sideways = SteeringSettings {
            mode: "sideways".to_owned(),
            ..Default::default()
        };
        assert_eq!(
            refused(&mut nic, sideways),
            "\"sideways\" is not a way of steering; known are off, flow and endpoint"
        );
        let long = SteeringSettings {
            indirection: vec![0; 129],
            ..Default::default()
        };
        assert_eq!(
            refused(&mut nic, long),
            "indirection must be at most 128 queues, not 129"
        );
        let missing = SteeringSettings {
            endpoints: vec![1],
            ..Default::default()
        };
        assert_eq!(
            refused(&mut nic, missing),
            "a steering table may only name receive queues that the card has"
        );
    }
}
