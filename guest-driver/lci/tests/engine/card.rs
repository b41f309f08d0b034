//! A card of the virtual network: the firmware's multicast, and the bytes that it keeps.

use std::collections::BTreeMap;

use ether::{MacAddr, Time};
use firmware::multicast::{
    Accepted, Action, BUFFERS_DEFAULT, BufferId, Class, ForHost, GroupTable, Multicast, Received, TAG_END, TreeShape,
    rows,
};

use super::node::mac_of;

pub struct Card {
    pub multicast: Multicast,
    kept: BTreeMap<BufferId, Vec<u8>>,
    /// Frames for other cards.
    pub out: Vec<Vec<u8>>,
    /// When it is to be looked at again without a frame.
    pub timer_at: Time,
}

impl Card {
    /// The card of node `own`, in the group of all.
    pub fn new(own: usize, nodes: usize, group: u16) -> Self {
        let mut multicast = Multicast::new(BUFFERS_DEFAULT);
        let members: Vec<_> = (0..nodes).map(mac_of).collect();
        let table = GroupTable {
            group,
            generation: 1,
            class: Class::of_group(group),
            own: own as u8,
            members: &members,
            rows: &rows(TreeShape::Binary, nodes, own),
        };
        multicast.set_group(Time::ZERO, &table).expect("a good table");
        Self {
            multicast,
            kept: BTreeMap::new(),
            out: Vec::new(),
            timer_at: Time::MAX,
        }
    }

    /// Takes a frame of its host; false if it has no room, which a host that counts never sees.
    pub fn send(&mut self, now: Time, frame: Vec<u8>) -> bool {
        let len = frame.len() as u32;
        let accepted = self.multicast.send(now, &frame, len);
        if let Ok(accepted) = &accepted {
            self.spread(accepted, frame);
        }
        self.act(now);
        accepted.is_ok()
    }

    pub fn receive(&mut self, now: Time, frame: Vec<u8>) {
        if let Received::Data(accepted) = self.multicast.receive(now, &frame, frame.len() as u32) {
            self.spread(&accepted, frame);
        }
        self.act(now);
    }

    fn spread(&mut self, accepted: &Accepted, mut frame: Vec<u8>) {
        let head = frame.first_chunk_mut::<TAG_END>().expect("a whole tag");
        self.multicast.prepare(accepted, head);
        let targets: Vec<_> = self.multicast.targets(accepted).collect();
        for to in targets {
            self.put(&frame, to);
        }
        if let Some(buffer) = accepted.keep {
            self.kept.insert(buffer, frame);
        }
    }

    fn put(&mut self, frame: &[u8], to: MacAddr) {
        let mut frame = frame.to_vec();
        frame[..6].copy_from_slice(&to.0);
        self.out.push(frame);
    }

    /// Does what is due.
    pub fn act(&mut self, now: Time) {
        while let Some(action) = self.multicast.poll(now) {
            match action {
                Action::Forward { buffer, to, last } => {
                    let frame = self.kept[&buffer].clone();
                    self.put(&frame, to);
                    if last {
                        self.kept.remove(&buffer);
                    }
                }
                Action::Emit(frame) => self.out.push(frame.to_vec()),
                Action::Discard(buffer) => drop(self.kept.remove(&buffer)),
            }
        }
    }

    /// What its host gets next, which it takes by that.
    pub fn give(&mut self, now: Time) -> Option<Vec<u8>> {
        let frame = match self.multicast.for_host()? {
            ForHost::Note(frame) => frame.to_vec(),
            ForHost::Packet { buffer, from, to, last } => {
                let mut frame = if last {
                    self.kept.remove(&buffer)
                } else {
                    self.kept.get(&buffer).cloned()
                }
                .expect("it is kept");
                frame[..6].copy_from_slice(&to.0);
                frame[6..12].copy_from_slice(&from.0);
                frame
            }
        };
        self.multicast.host_took(now);
        self.act(now);
        Some(frame)
    }
}
