//! Frames between endpoints of one interface, which turn round before the port: which ones they are, and where they go
//! (`egress/loopback.rs`).

use std::{thread, time::Duration};

use ether::Time;
use mxoe::wire::{Connect, ConnectKind, Dialect, Packet, endpoint_of_pull_magic};

use super::Core;
use crate::{Error, RequestKind, StatusCode, clock, egress::loopback::Loopback, local::Reach};

/// Returns the endpoint that a packet is for, and the one that it is from if it says so.
fn ends(packet: &Packet<'_>) -> (Option<u8>, Option<u8>) {
    let (to, from) = match packet {
        Packet::Tiny(p) | Packet::Small(p) => (p.dst_endpoint, p.src_endpoint),
        Packet::Medium(p) => (p.dst_endpoint, p.src_endpoint),
        Packet::Rndv(p) => (p.dst_endpoint, p.src_endpoint),
        Packet::Notify(p) => (p.dst_endpoint, p.src_endpoint),
        Packet::Connect(p) => (p.dst_endpoint, p.src_endpoint),
        Packet::Ack(p) => (p.dst_endpoint, p.src_endpoint),
        Packet::Pull(p) => (p.dst_endpoint, p.src_endpoint),
        Packet::NackLib(p) => (p.dst_endpoint, p.src_endpoint),
        Packet::NackMcp(p) => return (endpoint_of_pull_magic(p.magic), Some(p.src_endpoint)),
        Packet::PullReply(p) => return (endpoint_of_pull_magic(p.magic), None),
        Packet::Raw(_) | Packet::HostQuery(_) | Packet::HostReply(_) => return (None, None),
    };
    (Some(to), Some(from))
}

impl Core {
    /// Returns the dialect in which frames of this interface are read, whatever the two ends agreed on.
    fn dialect(&self) -> Dialect {
        self.engine.config().dialect.with_marks(true)
    }

    /// Prepares for frames of this interface.
    pub(crate) fn loop_back(&mut self) {
        let (mac, dialect) = (self.own.mac(), self.dialect());
        self.egress.loop_back(mac, dialect);
    }

    /// Connects the endpoint to itself as to any other one: its own address is that of the conversation from then on.
    ///
    /// # Errors
    /// [`Error::NoResources`], [`Error::Failed`].
    pub(crate) fn pair_with_itself(&mut self) -> Result<(), Error> {
        self.loop_back();
        self.now = clock::now();
        let request = self.store.requests.add(RequestKind::Connect, 0, 0);
        let request = request.ok_or(Error::NoResources)?;
        let (own, key) = (self.own, self.engine.config().key);
        self.engine
            .connect(self.now, own.mac(), own.endpoint, key, request)
            .map_err(|_| Error::NoResources)?;
        loop {
            self.step(Some(clock::now()));
            if let Some(status) = self.take(request) {
                self.own = status.address.ok_or(Error::Failed(status.code))?;
                return Ok(());
            }
            // Only where frames are lost on purpose: until it is sent again.
            let due = self.poll_timeout().unwrap_or(Time::ZERO);
            thread::sleep(Duration::from_nanos(due.nanos_since(clock::now())));
        }
    }

    /// Takes frames that turned round to their endpoints.
    pub(crate) fn deliver_looped(&mut self) {
        let dialect = self.dialect();
        loop {
            let Some(loopback) = self.egress.loopback_mut() else {
                return;
            };
            let Some(frame) = loopback.poll_outgoing() else {
                break;
            };
            let Ok((_, packet)) = dialect.decode(&frame) else {
                continue;
            };
            let is_request = matches!(
                packet,
                Packet::Connect(Connect {
                    kind: ConnectKind::Request { .. },
                    ..
                })
            );
            let (Some(to), _) = ends(&packet) else { continue };
            if to == self.own.endpoint {
                loopback.arrive(frame);
                continue;
            }
            let reach = match &mut self.local {
                Some(local) if is_request && !local.knows(to) => {
                    local.pair_with(&mut self.store, to).unwrap_or(Reach::Later)
                }
                Some(local) if local.knows(to) => Reach::Now,
                _ => Reach::Never(StatusCode::EndpointClosed),
            };
            match (reach, &mut self.local) {
                (Reach::Now, Some(local)) => local.send_frame(to, frame),
                // As on a wire on which it is lost: sent again.
                (Reach::Later, _) => {}
                _ => self.refuse_looped(&frame),
            }
        }
        if let Some(local) = &mut self.local {
            local.write_frames(&mut self.store);
        }
    }

    /// Refuses a frame for an endpoint that is not open.
    fn refuse_looped(&mut self, frame: &[u8]) {
        let now = self.now;
        if let Some(loopback) = self.egress.loopback_mut() {
            loopback.refuse(now, frame, self.engine.peers_mut());
        }
    }

    /// Takes the next frame of this interface that has come.
    #[cold]
    pub(crate) fn next_looped(&mut self) -> Option<Vec<u8>> {
        if let Some(frame) = self.egress.loopback_mut().and_then(Loopback::poll_receive) {
            return Some(frame);
        }
        let dialect = self.dialect();
        while let Some((sender, frame)) = self.local.as_mut()?.next_frame() {
            let decoded = dialect.decode(&frame);
            // A program cannot pass its frames off as another endpoint's of this host.
            let is_its_own = decoded.is_ok_and(|(head, packet)| {
                let (_, from) = ends(&packet);
                head.src == self.own.mac() && from.is_none_or(|from| from == sender)
            });
            if is_its_own {
                // Answers take this path, too.
                self.loop_back();
                return Some(frame);
            }
        }
        None
    }

    /// Whether frames of this interface wait to be taken.
    pub(crate) fn has_looped(&self) -> bool {
        self.egress.loopback().is_some_and(|loopback| !loopback.is_empty())
            || self.local.as_ref().is_some_and(|local| local.has_frames())
    }
}
