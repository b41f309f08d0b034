//! The settings of a port's card: what is in force on it, and how others come into force. Values are judged by the firmware.

use ether::Time;
use firmware::{Coalescing, RxPipeline, StrategyKind};
use vnicd_protocol::{
    CardChange, CoalescingChange, CoalescingSettings, DmaChange, DmaSettings, MisorderChange, MisorderSettings,
    QueueCoalescing, QueueStats, SteeringChange, SteeringSettings,
};

use crate::dataplane::card::Card;
use crate::dataplane::error::{FabricError, invalid};

/// Settings that a card has, with the change that clients ask for.
pub trait CardSettings: CardChange {
    /// The settings in force on a card.
    fn in_force(nic: &firmware::Card) -> Self::Settings;

    /// Brings settings into force. The queues of the card should then be polled.
    ///
    /// # Errors
    /// A value that the firmware refuses; then the settings before it are in force.
    fn set(nic: &mut firmware::Card, settings: &Self::Settings, now: Time) -> Result<(), FabricError>;
}

impl CardSettings for DmaChange {
    fn in_force(nic: &firmware::Card) -> DmaSettings {
        nic.queues()[0].dma()
    }

    fn set(nic: &mut firmware::Card, settings: &DmaSettings, _: Time) -> Result<(), FabricError> {
        nic.set_dma(settings.validated().map_err(invalid)?);
        Ok(())
    }
}

impl CardSettings for SteeringChange {
    fn in_force(nic: &firmware::Card) -> SteeringSettings {
        *nic.steering().settings()
    }

    fn set(nic: &mut firmware::Card, settings: &SteeringSettings, _: Time) -> Result<(), FabricError> {
        nic.steering_mut().set(*settings).map_err(invalid)
    }
}

impl CardSettings for MisorderChange {
    fn in_force(nic: &firmware::Card) -> MisorderSettings {
        nic.misorder().settings()
    }

    fn set(nic: &mut firmware::Card, settings: &MisorderSettings, _: Time) -> Result<(), FabricError> {
        nic.misorder_mut().set(*settings).map_err(invalid)
    }
}

impl CardSettings for CoalescingChange {
    fn in_force(nic: &firmware::Card) -> CoalescingSettings {
        let [first, others @ ..] = nic.queues() else {
            return CoalescingSettings::default();
        };
        let (coalescing, watchdog_ns) = of_queue(first);
        let queues = others.iter().zip(1..).map(|(rx, queue)| {
            let (coalescing, watchdog_ns) = of_queue(rx);
            QueueCoalescing {
                queue,
                coalescing,
                watchdog_ns,
            }
        });
        let differs = |queue: &QueueCoalescing| (&queue.coalescing, queue.watchdog_ns) != (&coalescing, watchdog_ns);
        CoalescingSettings {
            queues: queues.filter(differs).collect(),
            all: coalescing,
            watchdog_ns,
        }
    }

    fn set(nic: &mut firmware::Card, settings: &CoalescingSettings, now: Time) -> Result<(), FabricError> {
        let coalescing = judged(&settings.all)?;
        nic.set_watchdog(now, None, settings.watchdog_ns).map_err(invalid)?;
        nic.set_coalescing(now, None, coalescing).map_err(invalid)?;
        for queue in &settings.queues {
            let coalescing = judged(&queue.coalescing)?;
            nic.set_coalescing(now, Some(queue.queue), coalescing)
                .map_err(firmware::ChangeError::from)
                .and_then(|()| nic.set_watchdog(now, Some(queue.queue), queue.watchdog_ns))
                .map_err(|error| invalid(format!("coalescing of queue {}: {error}", queue.queue)))?;
        }
        Ok(())
    }
}

/// What is in force on a queue: its coalescing, and the delay of its watchdog.
fn of_queue(rx: &RxPipeline) -> (Coalescing<String>, u64) {
    let coalescing = rx.coalescing();
    let strategy = coalescing.strategy.to_string();
    (coalescing.with_strategy(strategy), rx.watchdog().delay_ns())
}

fn judged(settings: &Coalescing<String>) -> Result<Coalescing, FabricError> {
    let name = &settings.strategy;
    let strategy = name
        .parse::<StrategyKind>()
        .map_err(|unknown| invalid(format!("strategy {name:?}: {unknown}")))?;
    settings.with_strategy(strategy).validated().map_err(invalid)
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
    use serde_json::{Value, json};

    use super::*;

    /// Brings steering into force that is asked for in JSON, and gives it as it is told.
    fn set(nic: &mut firmware::Card, settings: Value) -> Result<Value, String> {
        let settings = serde_json::from_value(settings).map_err(|error| error.to_string())?;
        SteeringChange::set(nic, &settings, Time::ZERO).map_err(|error| error.to_string())?;
        Ok(json!(SteeringChange::in_force(nic)))
    }

    #[test]
    fn m_gf9_a_list_of_queues_is_repeated_and_told_as_the_shortest_that_says_the_same() {
        let mut nic = firmware::Card::new(firmware::CardConfig {
            queue_pairs: 4,
            ..Default::default()
        });
        let mut settings = json!({ "mode": "endpoint", "endpoints": [3, 1, 1], "indirection": [2, 2], "chosen": true });
        let told = set(&mut nic, settings.clone()).expect("four queues");
        let table = nic.steering().settings().endpoints;
        assert_eq!(table.get().expect("a table")[..7], [3, 1, 1, 3, 1, 1, 3]);
        settings["indirection"] = json!([2]);
        assert_eq!(told, settings);
        let whole: Vec<_> = (0..=255).map(|endpoint| u8::from(endpoint > 77)).collect();
        settings["endpoints"] = json!(whole);
        assert_eq!(set(&mut nic, settings.clone()), Ok(settings));
    }

    #[test]
    fn m_gf9_steering_that_a_card_cannot_follow_is_refused_with_a_sentence() {
        let mut nic = firmware::Card::new(firmware::CardConfig::default());
        for (settings, sentence) in [
            (
                json!({ "mode": "sideways" }),
                "\"sideways\" is not a steering mode; known are off, flow and endpoint",
            ),
            (
                json!({ "indirection": vec![0; 129] }),
                "indirection must be at most 128 queues, not 129",
            ),
            (
                json!({ "endpoints": [1] }),
                "a steering table may only name receive queues that the card has",
            ),
        ] {
            assert_eq!(set(&mut nic, settings), Err(sentence.to_owned()));
            assert_eq!(SteeringChange::in_force(&nic), SteeringSettings::default());
        }
    }
}
