//! Keeps the settings in force equal to those of `vnicd`, whether `weft` changes them or a guest by its card.

use std::time::Duration;

use super::Shared;

/// Pause between two attempts to watch a `vnicd` that does not answer yet.
const WATCH_PAUSE: Duration = Duration::from_millis(5);

/// Remembers every change of a setting that `vnicd` reports. `vnicd` reports a change before it answers the request for
/// it, and its reports can be read after its end: so no change that a guest knows of is lost when it is killed.
pub(super) fn watch(shared: &Shared) {
    while !shared.pause(WATCH_PAUSE) {
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
