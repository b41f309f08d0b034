//! The messages that the unexpected handler was shown, and what follows from its verdict.

use super::Core;
use crate::store::UnexpBody;

impl Core {
    /// Consumes a message for the handler.
    pub(crate) fn consume(&mut self, id: mxoe::matching::UnexpectedId) {
        let Some(message) = self.store.table.unexpected.remove(id) else {
            return;
        };
        match message.body {
            UnexpBody::Large { id: large, .. } => {
                // Gone: its sender is, too.
                let _ = self.engine.decline(large);
            }
            UnexpBody::LargeLocal(large) => {
                if let Some(local) = &mut self.local {
                    local.decline(&mut self.store, &large);
                }
            }
            UnexpBody::Partial { transfer, .. } => {
                self.store.transfers.remove(transfer);
            }
            // The handler had all of it.
            UnexpBody::Own(request, _) | UnexpBody::OwnInPlace(request, _) => {
                self.own_matched(request, message.length, message.length);
            }
            UnexpBody::Whole(_) => {}
        }
        self.resume();
    }

    /// Matches receives that waited for the handler with unexpected messages.
    pub(crate) fn match_again(&mut self) {
        let mut matched = Vec::new();
        let mut requests = Vec::new();
        let table = &mut self.store.table;
        let posted = &mut table.posted;
        table.unexpected.remove_if(
            |message| {
                let request = posted.take(message.envelope);
                requests.extend(request);
                request.is_some()
            },
            |message| matched.push(message),
        );
        for (request, message) in requests.into_iter().zip(matched) {
            self.give(request, message);
        }
        self.resume();
    }
}
