//! A switch of the data plane: the state machine of `fabric`, its settings, and which card is behind each of its ports.

use ether::{MacAddr, Time};
use fabric::{Forward, PortId, StpConfig, Switch};

use crate::dataplane::frames::frame_ref::FrameRef;
use crate::offload::OnWire;
use vnicd_protocol::{PortSettings, Reserved, SwitchSettings};

/// A switch with its name and settings.
pub struct SwitchState {
    /// Its name.
    pub name: String,
    /// How it works.
    pub settings: SwitchSettings,
    /// What decides where frames go.
    pub switch: Switch,
    /// Card by switch port number; trunks have no card.
    cards: Vec<usize>,
    /// Names of aggregates that are formed by LACP; their places are their keys, from 1.
    aggregates: Vec<String>,
}

impl SwitchState {
    /// A switch without ports, with default settings.
    pub fn new(name: &str, switch: Switch) -> Self {
        Self {
            name: name.to_owned(),
            settings: SwitchSettings::default(),
            switch,
            cards: Vec::new(),
            aggregates: Vec::new(),
        }
    }

    /// Lets the switch, the `number`-th of its process, speak LACP at a port of these settings, if it is in an aggregate.
    pub fn speak_lacp(&mut self, number: usize, port: PortId, settings: &PortSettings) {
        let Some(name) = settings.aggregate.as_ref().filter(|_| !settings.loopback) else {
            return;
        };
        let known = self.aggregates.iter().position(|known| known == name);
        let at = known.unwrap_or_else(|| {
            self.aggregates.push(name.to_owned());
            self.aggregates.len() - 1
        });
        // There are fewer names than ports.
        let key = u16::try_from(at + 1).unwrap_or(u16::MAX);
        self.switch.set_lacp(port, key, address_of(number));
    }

    /// Notes that the card at `index` is behind the switch's port `port`.
    pub fn bind(&mut self, port: PortId, index: usize) {
        let number = usize::from(port.0);
        if self.cards.len() <= number {
            self.cards.resize(number + 1, usize::MAX);
        }
        self.cards[number] = index;
    }

    /// The card behind a port, which is no trunk's.
    #[inline(always)]
    pub fn card_at(&self, port: PortId) -> usize {
        self.cards[usize::from(port.0)]
    }

    /// Counts the frames that `frame`, about which was decided just now, is cut into, all but the first. What the switch has taken
    /// is never cut, and what it still has to read is counted then.
    pub fn count_segments(&mut self, ingress: PortId, forward: Forward, frame: &FrameRef<'_>) {
        if matches!(forward, Forward::Taken | Forward::Inspect) {
            return;
        }
        if let Some(OnWire { frames, bytes, .. }) = frame.on_wire() {
            let more = bytes.saturating_sub(u64::from(frame.len));
            self.switch
                .count_repeated(ingress, frame.inline, u64::from(frames - 1), more);
        }
    }

    /// Makes the switch, the `number`-th of its process, work as its settings say.
    pub fn apply_settings(&mut self, number: usize, now: Time) {
        if self.settings.cable {
            self.switch.set_cable();
        }
        self.switch
            .set_forwards_reserved(self.settings.reserved == Reserved::Forward);
        if let Some(stp) = &self.settings.stp {
            let config = StpConfig {
                priority: stp.priority,
                ..StpConfig::new(address_of(number))
            };
            self.switch.enable_spanning_tree(config, now);
        }
        if self.settings.snooping {
            self.switch.set_snooping(Some(address_of(number)));
        }
    }
}

/// First bytes of the addresses of switches, which no guest has unless it chooses to.
const SWITCH_ADDRESS: [u8; 4] = [0x02, 0x57, 0x45, 0x46];

/// The address of a switch: distinguished from those of cards by its fifth byte.
fn address_of(switch: usize) -> MacAddr {
    let [a, b, c, d] = SWITCH_ADDRESS;
    MacAddr([a, b, c, d, 0x60 + (switch >> 8) as u8, switch as u8])
}
