//! Frontends that use the kick and call eventfds, which they share with `vnicd`, against it: no other guest waits for them.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::{Duration, Instant};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use weft_vnic_testkit::{Frontend, FrontendConfig, HEADER_LEN, Interrupts};

use crate::attacker::{ATTACKER, FEEDER};
use crate::attacks::{RX, TX};
use crate::daemon::{Daemon, Neighbours, feed, introduce};

/// How long the attack lasts.
const ATTACK: Duration = Duration::from_secs(2);
/// Longest pause of the neighbours' frames meanwhile; far more than a busy machine needs.
const PAUSE_MAX: Duration = Duration::from_secs(5);

fn wait_for_ever(file: &impl AsRawFd) {
    // SAFETY: the descriptor belongs to `file`, which outlives this call.
    let file = unsafe { BorrowedFd::borrow_raw(file.as_raw_fd()) };
    let flags = fcntl_getfl(file).unwrap();
    fcntl_setfl(file, flags & !OFlags::NONBLOCK).unwrap();
}

/// Fills the counter of ring `index`'s call and makes both its eventfds blocking.
fn spoil(guest: &mut Frontend, index: usize) {
    let ring = guest.ring(index);
    // A counter that the device has signalled meanwhile has less room.
    while ring.call_fd().write(u64::MAX - 1).is_err() {
        let _ = ring.call_fd().read();
    }
    wait_for_ever(ring.call_fd());
    wait_for_ever(ring.kick_fd());
}

#[test]
fn a_full_call_that_became_blocking_holds_nobody_up() {
    let daemon = Daemon::start(&["left", "right", "attacker", "feeder"]);
    let neighbours = Neighbours::start(&daemon);
    let mut config = FrontendConfig::connect(daemon.socket("attacker"));
    (config.rx_interrupts, config.tx_interrupts) = (Interrupts::Always, Interrupts::Always);
    let mut attacker = daemon.guest(config);
    let mut feeder = daemon.guest(FrontendConfig::connect(daemon.socket("feeder")));
    introduce(&mut attacker, ATTACKER, &mut feeder, FEEDER);
    let mut control = daemon.control();

    spoil(&mut attacker, RX);
    spoil(&mut attacker, TX);
    let start = Instant::now();
    let mut answers = 0_u32;
    while start.elapsed() < ATTACK {
        feed(&mut feeder, ATTACKER, FEEDER);
        attacker.pairs[0].rx.poll(64, |_, _| {});
        let tx = &mut attacker.pairs[0].tx;
        if tx.free() > 0 {
            tx.next_buffer()[..HEADER_LEN + 60].fill(0);
            tx.push(HEADER_LEN + 60);
            tx.flush();
        }
        for index in [RX, TX] {
            let ring = attacker.ring(index);
            ring.kick();
        }
        control.port_stats("attacker").expect("the control socket answers");
        answers += 1;
    }
    println!("{answers} answers of the control socket during the attack");
    let report = neighbours.finish();
    assert!(report.longest_pause < PAUSE_MAX, "{:?}", report.longest_pause);
    drop((attacker, feeder));
    daemon.finish();
}
