//! The functions of `lci.h`, each a translation.

use std::{
    ffi::{CStr, c_char, c_int, c_void},
    time::Duration,
};

use lci_port::{Event, GroupId, Lci, Packet, RemovalReason, SendPacket};

use crate::{
    boundary::{self, Failure, guarded},
    settings, state,
};

/// The program's function for packets.
pub type UpcallFunction = extern "C" fn(c_int, *mut c_void, c_int, c_int) -> c_int;

/// `struct lci_event`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LciEvent {
    kind: c_int,
    number: c_int,
}

const EVENT_TIMER: c_int = 1;
const EVENT_REMOVED: c_int = 2;
const EVENT_EXCLUDED: c_int = 3;
const EVENT_MISMATCH: c_int = 4;
const EVENT_LOST: c_int = 5;

fn failure<T>(why: &str) -> Result<T, Failure> {
    Err(Failure(why.to_owned()))
}

fn index(number: c_int, what: &str) -> Result<usize, Failure> {
    usize::try_from(number).map_err(|_| Failure(format!("{number} is no {what}")))
}

/// Hands a packet to the program.
fn upcall(function: UpcallFunction, packet: Packet) {
    let source = packet.source() as c_int;
    let size = packet.len() as c_int;
    let group = packet.group().map_or(0, |group| group.0 as c_int);
    if function(source, packet.as_ptr().cast(), size, group) != 0 {
        packet.into_raw();
    }
}

/// `lci_init` of the header calls this with the program's `lci_upcall`.
///
/// # Safety
/// `nodes` is null or points to a string that ends with zero.
#[unsafe(no_mangle)]
unsafe extern "C" fn lci_init_upcall(nodes: *const c_char, function: Option<UpcallFunction>) -> c_int {
    guarded(|| {
        let Some(function) = function else {
            return failure("lci_init needs a function for packets");
        };
        if state::node().is_ok() {
            return failure("this program is a node already; lci_finalize ends it");
        }
        let text = if nodes.is_null() {
            None
        } else {
            // SAFETY: the caller promises a string that ends with zero.
            let text = unsafe { CStr::from_ptr(nodes) };
            Some(
                text.to_str()
                    .map_err(|_| Failure("the list of nodes is no text".to_owned()))?,
            )
        };
        let nodes = settings::nodes(text)?;
        let node = Lci::open(&settings::interface()?, &nodes, &settings::options()?)?;
        node.set_upcall(move |_, packet| upcall(function, packet));
        state::set(node)?;
        Ok(0)
    })
}

#[unsafe(no_mangle)]
extern "C" fn lci_me() -> c_int {
    guarded(|| Ok(state::node()?.me() as c_int))
}

#[unsafe(no_mangle)]
extern "C" fn lci_size() -> c_int {
    guarded(|| Ok(state::node()?.size() as c_int))
}

#[unsafe(no_mangle)]
extern "C" fn lci_send_alloc() -> *mut c_void {
    let mut pointer = std::ptr::null_mut();
    guarded(|| {
        pointer = state::node()?.allocate_raw().cast();
        Ok(0)
    });
    pointer
}

/// Creates a group.
///
/// # Safety
/// `members` points to `count` numbers.
#[unsafe(no_mangle)]
unsafe extern "C" fn lci_group_create(members: *const c_int, count: c_int) -> c_int {
    guarded(|| {
        let count = index(count, "count of members")?;
        if members.is_null() || count > lci::NODES_MAX {
            return failure("a group has at least two members, each of them a node, and this node is one of them");
        }
        // SAFETY: the caller promises so many numbers.
        let members = unsafe { std::slice::from_raw_parts(members, count) };
        let members = members
            .iter()
            .map(|member| index(*member, "node"))
            .collect::<Result<Vec<_>, _>>()?;
        Ok(state::node()?.create_group(&members)?.0 as c_int)
    })
}

/// Launches the packet that begins at `packet`.
fn launch(
    packet: *mut c_void,
    size: c_int,
    launch: impl FnOnce(&Lci, SendPacket, usize) -> Result<(), lci_port::LciError>,
) -> c_int {
    guarded(|| {
        let node = state::node()?;
        let Some(packet) = node.packet_at(packet.cast()) else {
            return failure("only a packet of lci_send_alloc that was not launched yet can be launched");
        };
        // The packet is the library's from here on, whatever else is wrong.
        let size = index(size, "size of a packet")?;
        launch(&node, packet, size)?;
        Ok(0)
    })
}

#[unsafe(no_mangle)]
extern "C" fn lci_ucast_launch(destination: c_int, packet: *mut c_void, size: c_int) -> c_int {
    launch(packet, size, |node, packet, size| {
        // What is no node is refused there.
        node.unicast(usize::try_from(destination).unwrap_or(usize::MAX), packet, size)
    })
}

#[unsafe(no_mangle)]
extern "C" fn lci_bcast_launch(packet: *mut c_void, size: c_int) -> c_int {
    launch(packet, size, Lci::broadcast)
}

#[unsafe(no_mangle)]
extern "C" fn lci_mcast_launch(group: c_int, packet: *mut c_void, size: c_int) -> c_int {
    launch(packet, size, |node, packet, size| {
        node.multicast(GroupId(group as u32), packet, size)
    })
}

#[unsafe(no_mangle)]
extern "C" fn lci_poll() -> c_int {
    guarded(|| {
        let node = state::node()?;
        let count = node.poll();
        if let Some(error) = node.take_failure() {
            return Err(error.into());
        }
        Ok(c_int::try_from(count).unwrap_or(c_int::MAX))
    })
}

#[unsafe(no_mangle)]
extern "C" fn lci_intr_disable() -> c_int {
    guarded(|| {
        state::node()?.disable_interrupts();
        Ok(0)
    })
}

#[unsafe(no_mangle)]
extern "C" fn lci_intr_enable() -> c_int {
    guarded(|| {
        state::node()?.enable_interrupts()?;
        Ok(0)
    })
}

#[unsafe(no_mangle)]
extern "C" fn lci_packet_free(packet: *mut c_void) -> c_int {
    guarded(|| {
        if state::node()?.free(packet.cast()) {
            Ok(0)
        } else {
            failure("the program has no packet that begins there")
        }
    })
}

#[unsafe(no_mangle)]
extern "C" fn lci_idle() -> c_int {
    guarded(|| {
        state::node()?.idle();
        Ok(0)
    })
}

#[unsafe(no_mangle)]
extern "C" fn lci_timer_start(timer: c_int, ns: u64) -> c_int {
    guarded(|| {
        if state::node()?.start_timer(index(timer, "timer")?, Duration::from_nanos(ns)) {
            Ok(0)
        } else {
            Err(Failure(format!("{timer} is no timer")))
        }
    })
}

#[unsafe(no_mangle)]
extern "C" fn lci_timer_stop(timer: c_int) -> c_int {
    guarded(|| Ok(state::node()?.stop_timer(index(timer, "timer")?).into()))
}

/// Takes the next event.
///
/// # Safety
/// `event` points to a `struct lci_event`.
#[unsafe(no_mangle)]
unsafe extern "C" fn lci_next_event(event: *mut LciEvent) -> c_int {
    guarded(|| {
        let node = state::node()?;
        if event.is_null() {
            return failure("there is no place for the event");
        }
        let translated = loop {
            let Some(next) = node.next_event() else { return Ok(0) };
            let (kind, number) = match next {
                Event::Timer { timer } => (EVENT_TIMER, timer),
                Event::Removed {
                    reason: RemovalReason::Left,
                    ..
                } => continue,
                Event::Removed {
                    node,
                    reason: RemovalReason::Lost,
                } => (EVENT_LOST, node),
                Event::Removed { node, .. } => (EVENT_REMOVED, node),
                Event::Excluded { by } => (EVENT_EXCLUDED, by),
                Event::Mismatch { node } => (EVENT_MISMATCH, node),
                Event::Ready | Event::GroupCreated { .. } | Event::GroupFailed { .. } => continue,
            };
            break LciEvent {
                kind,
                number: number as c_int,
            };
        };
        // SAFETY: the caller promises a place for an event.
        unsafe { event.write(translated) };
        Ok(1)
    })
}

/// Reads a count by its name.
///
/// # Safety
/// `name` points to a string that ends with zero, `value` to a number.
#[unsafe(no_mangle)]
unsafe extern "C" fn lci_counter(name: *const c_char, value: *mut u64) -> c_int {
    guarded(|| {
        if name.is_null() || value.is_null() {
            return failure("a count has a name and needs a place");
        }
        // SAFETY: the caller promises a string that ends with zero.
        let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
        let statistics = state::node()?.statistics();
        let interrupts = statistics.interrupts;
        let of_interrupts = [
            ("interrupts_arrived", interrupts.arrived),
            ("interrupts_cancelled", interrupts.cancelled),
            ("interrupts_suppressed", interrupts.suppressed),
            ("interrupts_taken", interrupts.taken),
            ("interrupts_clock", interrupts.clock),
        ];
        let of_engine = statistics.engine.iter().map(|(counter, count)| (counter.name(), count));
        let found = of_engine.chain(of_interrupts).find(|(known, _)| *known == name);
        let Some((_, count)) = found else {
            return Err(Failure(format!("there is no count named {name:?}")));
        };
        // SAFETY: the caller promises a place for a number.
        unsafe { value.write(count) };
        Ok(0)
    })
}

#[unsafe(no_mangle)]
extern "C" fn lci_now_ns() -> u64 {
    lci_port::now_ns()
}

#[unsafe(no_mangle)]
extern "C" fn lci_error() -> *const c_char {
    boundary::sentence()
}

#[unsafe(no_mangle)]
extern "C" fn lci_finalize() -> c_int {
    guarded(|| {
        let node = state::node()?;
        let lost = node.finalize();
        state::take();
        Ok(lost.len() as c_int)
    })
}
