//! How an endpoint is opened, and what the environment says about it (mx-api 9).

use std::{env, time::Duration};

use mxoe::{engine::Limits, matching::UNEXPECTED_BYTES_DEFAULT};

use crate::Error;

/// What a blocking call does while nothing happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// Looks at the port again and again: the shortest latency, a whole processor.
    Spin,
    /// Spins for this long, then sleeps until something arrives.
    SpinThenSleep(Duration),
    /// Sleeps at once.
    Sleep,
}

/// An endpoint to be opened.
#[derive(Clone, Debug)]
pub struct EndpointOptions {
    /// Name of the interface; `None`: the first that can be used.
    pub interface: Option<String>,
    /// Endpoint number; `None`: the lowest that is free.
    pub endpoint: Option<u8>,
    /// Key that others must give to connect.
    pub key: u32,
    /// Bits and shift of the context id within the match information; 0 bits: none.
    pub context_id: (u8, u8),
    /// Bytes of unexpected messages kept; at the limit acknowledgements stop.
    pub unexpected_bytes_max: u64,
    /// What blocking calls do.
    pub waiting: Waiting,
    /// The process's helper thread makes progress while the program computes.
    pub progress: bool,
    /// Messages to the endpoint itself stay inside the library.
    pub self_messages: bool,
    /// After this long without an answer a request is given up.
    pub give_up: Duration,
}

impl Default for EndpointOptions {
    /// The defaults, changed by the environment: `OMX_WAITSPIN`, `OMX_PROGRESS`, `OMX_ANY_ENDPOINT`, `OMX_DISABLE_SELF`
    /// (also `MX_DISABLE_SELF`), `OMX_CTXIDS`.
    fn default() -> Self {
        let on = |names: &[&str], default| {
            let value = names.iter().find_map(|name| env::var(name).ok());
            value.map_or(default, |value| value.trim() != "0")
        };
        let context_id = env::var("OMX_CTXIDS").ok().and_then(|text| {
            let (bits, shift) = text.split_once(',')?;
            Some((bits.trim().parse().ok()?, shift.trim().parse().ok()?))
        });
        Self {
            interface: None,
            endpoint: env::var("OMX_ANY_ENDPOINT")
                .ok()
                .and_then(|text| text.trim().parse().ok()),
            key: 0,
            context_id: context_id.unwrap_or((0, 0)),
            unexpected_bytes_max: UNEXPECTED_BYTES_DEFAULT,
            waiting: if on(&["OMX_WAITSPIN"], false) {
                Waiting::Spin
            } else {
                Waiting::Sleep
            },
            progress: on(&["OMX_PROGRESS"], true),
            self_messages: !on(&["OMX_DISABLE_SELF", "MX_DISABLE_SELF"], false),
            give_up: Duration::from_nanos(mxoe::engine::Timing::DEFAULT.give_up_ns),
        }
    }
}

impl EndpointOptions {
    /// The field of the match information that is the context id.
    ///
    /// # Errors
    /// [`Error::BadParameter`].
    pub(crate) fn context_mask(&self) -> Result<u64, Error> {
        let (bits, shift) = self.context_id;
        if bits > CONTEXT_ID_BITS_MAX || u32::from(bits) + u32::from(shift) > u64::BITS {
            return Err(Error::BadParameter);
        }
        if bits == 0 {
            return Ok(0);
        }
        Ok(((1 << bits) - 1) << shift)
    }

    /// Bounds of the protocol for a receive ring of this many bytes.
    pub(crate) fn limits(ring_len: usize) -> Limits {
        // Half of the ring for what was asked for, half for what comes unasked.
        let room = u32::try_from(ring_len / 2).unwrap_or(u32::MAX);
        Limits {
            pull_bytes_outstanding: Limits::DEFAULT.pull_bytes_outstanding.min(room),
            ..Limits::DEFAULT
        }
    }
}

/// Bits of a context id, at most.
const CONTEXT_ID_BITS_MAX: u8 = 16;
