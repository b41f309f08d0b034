//! What programs call the two ends of a connection.

use core::net::{IpAddr, SocketAddr};

use esp::{
    Address, Options, State,
    wire::{Body, Frame, Names},
};
use ether::EtherType;

use super::{
    program::{LISTEN, PORT},
    world::{World, mac},
};

fn names(source: &str, destination: &str) -> Option<Names> {
    Names::new(
        source.parse::<SocketAddr>().unwrap(),
        destination.parse::<IpAddr>().unwrap(),
    )
}

#[test]
fn a_listener_hears_what_the_program_that_connects_calls_both_ends() {
    for wanted in [
        None,
        names("10.7.0.1:40000", "10.7.0.2"),
        names("[fd00::1]:40000", "fd00::2"),
    ] {
        let mut world = World::pair(3);
        world.hosts[1].engine.listen(PORT, LISTEN).unwrap();
        let (now, peer) = (
            world.now,
            Address {
                mac: mac(1),
                port: PORT,
            },
        );
        let options = Options {
            names: wanted,
            ..Options::default()
        };
        let client = world.hosts[0].engine.connect(5_000, peer, options, now).unwrap();
        let mut server = None;
        assert!(world.run_until(1_000_000_000, |world| {
            server = server.or_else(|| world.hosts[1].engine.accept(PORT));
            server.is_some() && world.hosts[0].engine.info(client).unwrap().state == State::Established
        }));
        assert_eq!(world.hosts[1].engine.names(server.unwrap()), Ok(wanted));
    }
    assert_eq!(names("10.7.0.1:40000", "fd00::2"), None, "of two families");
}

#[test]
fn names_that_are_cut_off_are_no_syn() {
    let mut world = World::pair(4);
    let (now, peer) = (
        world.now,
        Address {
            mac: mac(1),
            port: PORT,
        },
    );
    let options = Options {
        names: names("[fd00::1]:40000", "fd00::2"),
        ..Options::default()
    };
    world.hosts[0].engine.connect(5_000, peer, options, now).unwrap();
    let mut buffer = [0; 2048];
    let len = world.hosts[0].engine.poll_transmit(now, &mut buffer).unwrap();
    let frame = &mut buffer[..len];
    let body = |bytes: &[u8]| Frame::parse(bytes, EtherType::ESP).unwrap().body(false).map(|_| ());
    assert!(matches!(
        Frame::parse(frame, EtherType::ESP).unwrap().body(false),
        Ok(Body::Syn(syn)) if syn.names == options.names
    ));
    // The block is the last: its length stands before its 34 bytes.
    let at = len - 35;
    assert_eq!(frame[at], 34);
    for wrong in [33, 32, 10 + 1, 1, 0] {
        frame[at] = wrong;
        assert!(body(frame).is_err(), "{wrong}");
    }
    frame[at] = 34;
    assert!(body(&frame[..len - 1]).is_err());
}
