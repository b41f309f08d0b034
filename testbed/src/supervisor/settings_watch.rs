//! Keeps the settings in force those that `vnicd` has, whoever changed them: `weft`, or a guest by its card.

use std::time::{Duration, Instant};

use super::{LabState, Shared};
use crate::supervisor_client::protocol::LabPhase;

/// Pause between two attempts to watch a `vnicd` that is not there yet.
const WATCH_PAUSE: Duration = Duration::from_millis(5);

/// Keeps the remembered settings those in force, whoever changed them. `vnicd` tells us of a change before it answers whoever
/// asked for it, and what it wrote can be read after its end: so no change that a guest knows of is lost when it is killed.
pub(super) fn watch(shared: &Shared) {
    let stopping = |inner: &mut LabState| (inner.phase == LabPhase::Stopping).then_some(());
    while shared.wait_for(Some(Instant::now() + WATCH_PAUSE), stopping).is_none() {
        let Ok(watch) = shared.vnicd().and_then(|client| Ok(client.watch()?)) else {
            continue;
        };
        shared.update(|inner| inner.watching = true);
        for event in watch {
            shared.settings().set(event);
        }
        shared.update(|inner| inner.watching = false);
    }
}
