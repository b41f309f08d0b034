//! The misordering injector (`papers.md` M-GF6): the sending card moves the latency-sensitive mark of a MEDIUM message from its
//! last fragment N to fragment N − X, as if the network had changed their order.
//!
//! Frames themselves keep their order; real reordering is a link's fault model (crate `fabric`).

use core::fmt;

use crate::mxoe_header::{MARK, Partner, Sent, TYPE_OFFSET};

/// The greatest degree X: no MEDIUM message has more than 32 fragments (`mxoe-wire.md` section 3).
pub const MISORDER_DEGREE_MAX: u8 = 31;

/// For how many pairs of endpoints a card remembers that marks are understood and which message's mark it moved. More than
/// the endpoints of a node talk to at once; where two pairs have one place, the later takes it, and the other one's mark
/// stays where it is until its next marked frame.
pub const MISORDER_PARTNERS: usize = 256;

weft_settings::settings! {
    /// What the misordering injector does.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    #[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
    pub struct MisorderSettings, changed by struct MisorderChange {
        /// The degree X: by how many fragments the mark of a medium message is moved forward, at most [`MISORDER_DEGREE_MAX`]; 0 turns
        /// the injector off.
        pub degree: u8,
    }
}

impl MisorderSettings {
    /// Marks are moved forward by so many fragments; 0 is off.
    pub const fn of_degree(degree: u8) -> Self {
        Self { degree }
    }
}

/// What the injector did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct MisorderCounters {
    /// Messages whose mark was set on fragment N − X.
    pub moved: u64,
    /// Last fragments that lost their mark, since fragment N − X of their message had got it.
    pub cleared: u64,
    /// Last fragments that kept their mark: the message has no fragment N − X, or it was not known yet, when that one was
    /// sent, that the receiver understands marks.
    pub kept: u64,
}

/// The degree was not changed: it is above [`MISORDER_DEGREE_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MisorderDegreeError;

impl fmt::Display for MisorderDegreeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the degree of misordering is at most {MISORDER_DEGREE_MAX}, as no medium message has more fragments"
        )
    }
}

impl core::error::Error for MisorderDegreeError {}

/// What is known of a pair of endpoints whose sender marks frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Known {
    partner: Partner,
    /// Sequence number of the last message, if its mark was moved.
    moved: Option<u16>,
    /// Sequence number of the last message whose last fragment was counted: one that is sent again is counted once.
    ended: Option<u16>,
}

/// The injector of one card.
///
/// The card cannot know which receivers understand marks, but the driver does: a frame to a partner is only ever marked
/// here after the driver itself marked one, and no longer than until the two connect anew.
#[derive(Clone, Debug)]
pub struct Misorder {
    settings: MisorderSettings,
    known: [Option<Known>; MISORDER_PARTNERS],
    counters: MisorderCounters,
}

impl Misorder {
    /// An injector that is off.
    pub(crate) const fn new() -> Self {
        Self {
            settings: MisorderSettings::of_degree(0),
            known: [None; MISORDER_PARTNERS],
            counters: MisorderCounters {
                moved: 0,
                cleared: 0,
                kept: 0,
            },
        }
    }

    /// The settings in use.
    #[inline]
    pub fn settings(&self) -> MisorderSettings {
        self.settings
    }

    /// The degree X; 0 = off.
    #[inline]
    pub fn degree(&self) -> u8 {
        self.settings.degree
    }

    /// Replaces the settings, from the next frame on.
    ///
    /// # Errors
    /// A degree above [`MISORDER_DEGREE_MAX`]; nothing is changed then.
    pub fn set(&mut self, settings: MisorderSettings) -> Result<(), MisorderDegreeError> {
        if settings.degree > MISORDER_DEGREE_MAX {
            return Err(MisorderDegreeError);
        }
        if settings.degree == 0 {
            // Marks of frames that pass meanwhile are not seen, and those seen before may come from another connection.
            self.known = [None; MISORDER_PARTNERS];
        }
        self.settings = settings;
        Ok(())
    }

    /// What was counted since the card was made.
    pub fn counters(&self) -> MisorderCounters {
        self.counters
    }

    /// The guest sends a frame that begins with `header` ([`INLINE_HEADER_LEN`](crate::INLINE_HEADER_LEN) bytes are enough).
    /// Gives the place and new value of the one byte that is to be sent in place of the frame's own, if one is. A
    /// frame may be shown several times in a row while it is not sent.
    #[inline]
    pub fn sent(&mut self, header: &[u8]) -> Option<(usize, u8)> {
        if self.settings.degree == 0 {
            return None;
        }
        let mark = self.mark(Sent::read(header)?)?;
        let kind = header[TYPE_OFFSET];
        Some((TYPE_OFFSET, if mark { kind | MARK } else { kind & !MARK }))
    }

    /// Whether the frame's mark is to be set or cleared; `None` = it stays as it is.
    fn mark(&mut self, sent: Sent) -> Option<bool> {
        let (partner, fragment) = match sent {
            Sent::Connect(partner) => {
                self.known[place(partner)].take_if(|known| known.partner == partner);
                return None;
            }
            Sent::Marked(partner) => {
                self.learn(partner);
                return None;
            }
            Sent::Fragment(partner, fragment) => (partner, fragment),
        };
        if fragment.marked {
            let known = self.learn(partner);
            let first_time = known.ended.replace(fragment.sequence) != Some(fragment.sequence);
            let was_moved = known.moved == Some(fragment.sequence);
            if was_moved {
                self.counters.cleared += u64::from(first_time);
                return Some(false);
            }
            known.moved = None;
            self.counters.kept += u64::from(first_time);
            return None;
        }
        let known = self.known[place(partner)]
            .as_mut()
            .filter(|known| known.partner == partner)?;
        if u32::from(fragment.number) + u32::from(self.settings.degree) != fragment.last {
            return None;
        }
        if known.moved != Some(fragment.sequence) {
            known.moved = Some(fragment.sequence);
            self.counters.moved += 1;
        }
        Some(true)
    }

    fn learn(&mut self, partner: Partner) -> &mut Known {
        let known = &mut self.known[place(partner)];
        known.take_if(|known| known.partner != partner);
        known.get_or_insert(Known {
            partner,
            moved: None,
            ended: None,
        })
    }
}

/// Where a partner is remembered.
const fn place(partner: Partner) -> usize {
    // The golden ratio in 64 bits: neighbouring endpoints and addresses fall far from each other.
    (partner.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize % MISORDER_PARTNERS
}
