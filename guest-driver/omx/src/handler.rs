//! The handlers of a program. The unexpected handler (mx-api 6.6) is called for messages that match no posted receive,
//! with the endpoint's lock released and its progress switched off. The failure handler (6.3) is called for failures
//! that no completion shows.

use std::{
    sync::Arc,
    thread::{self, ThreadId},
};

use crate::{
    Address, Endpoint, StatusCode,
    clock::now,
    shared::Locked,
    store::{Source, UnexpBody},
};

/// A message without a receive, as the handler sees it.
#[derive(Clone, Copy, Debug)]
pub struct Unexpected<'a> {
    /// The endpoint that sent the message.
    pub source: Address,
    /// Its match information.
    pub match_info: u64,
    /// Its bytes.
    pub length: u32,
    /// The bytes, if they are all there: not for large messages and not for those in several fragments.
    pub data: Option<&'a [u8]>,
}

/// The verdict of a handler about a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The handler did nothing: the message is matched with what was posted meanwhile, or stays unexpected. Such a
    /// receive is over only after the handler returned, and must not be waited for in it.
    Continue,
    /// The handler consumed the message. The sender of a large message completes as truncated.
    Finished,
}

/// A program's unexpected handler.
pub type Handler = Box<dyn FnMut(&Endpoint, Unexpected<'_>) -> Action + Send>;

/// A program's handler for messages that failed after their completion was taken, or forgotten.
pub type FailureHandler = Arc<dyn Fn(&Endpoint, StatusCode) + Send + Sync>;

/// A program's handler for what the helper thread finds.
pub type HelpHandler = Arc<dyn Fn() + Send + Sync>;

/// The handlers of a program, and whether one is running.
#[derive(Default)]
pub(crate) struct Handlers {
    /// The handler for messages that match no posted receive.
    pub(crate) unexpected: Option<Handler>,
    /// The handler for failures that no completion shows.
    pub(crate) failure: Option<FailureHandler>,
    /// The handler for requests that are over while the program is elsewhere.
    pub(crate) help: Option<HelpHandler>,
    /// The thread that is inside the unexpected handler.
    pub(crate) running: Option<ThreadId>,
}

/// Tells the program of failures that no completion shows. Called with the lock; returns with it.
#[cold]
pub(crate) fn tell_failures<'a>(endpoint: &'a Endpoint, mut core: Locked<'a>) -> Locked<'a> {
    let failures = core.store.requests.take_unheard();
    let Some(handler) = core.handlers.failure.clone() else {
        for code in failures {
            tracing::info!("a message failed after its send was complete: {code}");
        }
        return core;
    };
    drop(core);
    for code in failures {
        handler(endpoint, code);
    }
    endpoint.lock()
}

/// Shows the handler every message it has not seen. Called with the lock; returns with it.
pub(crate) fn run<'a>(endpoint: &'a Endpoint, mut core: Locked<'a>) -> Locked<'a> {
    while core.handlers.running.is_none() && !core.store.unseen.is_empty() {
        let id = core.store.unseen.remove(0);
        let fragments_of = {
            let sizes = *core.engine.config().dialect.sizes();
            move |len| sizes.fragments_of(len)
        };
        let Some((source, match_info, length, data)) = core.store.table.unexpected.get_mut(id).map(|message| {
            let data = match &message.body {
                // It does not matter to the program whether the other fragments came in the same poll.
                UnexpBody::Whole(_)
                    if matches!(message.source, Source::Partner { .. }) && fragments_of(message.length) > 1 =>
                {
                    None
                }
                UnexpBody::Whole(data) | UnexpBody::Own(_, data) => Some(data.clone()),
                UnexpBody::OwnInPlace(_, memory) => {
                    let mut data = vec![0; memory.len() as usize].into_boxed_slice();
                    memory.read(&mut data);
                    Some(data)
                }
                UnexpBody::Partial { .. } | UnexpBody::Large { .. } | UnexpBody::LargeLocal(_) => None,
            };
            (message.source, message.envelope.match_info, message.length, data)
        }) else {
            // A receive was posted meanwhile and took it.
            continue;
        };
        let (Some(source), Some(mut handler)) = (core.address(source), core.handlers.unexpected.take()) else {
            continue;
        };
        // Receives that are posted before the handler has decided wait for that.
        core.store.table.unexpected.begin_to_decide(id);
        core.handlers.running = Some(thread::current().id());
        core.stop();
        drop(core);
        let message = Unexpected {
            source,
            match_info,
            length,
            data: data.as_deref(),
        };
        let action = handler(endpoint, message);
        core = endpoint.lock();
        core.go_on();
        core.handlers.running = None;
        // Unless the handler registered another one.
        if core.store.has_handler && core.handlers.unexpected.is_none() {
            core.handlers.unexpected = Some(handler);
        }
        core.now = now();
        let receives_wait = core.store.table.unexpected.decided();
        if action == Action::Finished {
            core.consume(id);
        }
        if receives_wait {
            core.match_again();
        }
        let begin = core.now;
        core.flush(begin);
        // A thread that fell asleep meanwhile did not find this message, and does not poll the port.
        core.sleepers.wake();
    }
    core
}
