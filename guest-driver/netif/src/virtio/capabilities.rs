//! Where a virtio device has its registers (virtio 1.2 section 4.1.4): read from its PCI configuration space, which is
//! untrusted like all that a device says.

/// Offsets in the configuration space.
const STATUS: usize = 0x06;
const CAPABILITIES: usize = 0x34;
/// The bit of the status that says that there are capabilities.
const HAS_CAPABILITIES: u8 = 1 << 4;
/// Capabilities stand behind the header.
const HEADER_LEN: usize = 0x40;
/// More do not fit into the configuration space: a list that is longer is a circle.
const CAPABILITIES_MAX: usize = 48;
/// The kind of capability with which vendors describe their own.
const VENDOR: u8 = 0x09;
/// Base address registers of a device.
const BARS: u8 = 6;

/// A part of the memory behind one base address register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Window {
    /// The number of the register.
    pub(super) bar: u8,
    /// Where the part begins, in bytes.
    pub(super) offset: u32,
    /// Its length in bytes.
    pub(super) len: u32,
}

/// The parts that a driver needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Windows {
    /// Features, status and queues.
    pub(super) common: Window,
    /// Doorbells.
    pub(super) notify: Window,
    /// Bytes between two doorbells, as queues count them.
    pub(super) notify_multiplier: u32,
    /// What only this kind of device has.
    pub(super) device: Window,
    /// Why the device interrupts; only where it has a line for that.
    pub(super) isr: Option<Window>,
}

/// Finds the parts. `Err` says what is missing.
pub(super) fn find(space: &[u8]) -> Result<Windows, &'static str> {
    let (mut common, mut notify, mut device, mut isr) = (None, None, None, None);
    let byte = |at: usize| space.get(at).copied();
    if byte(STATUS).is_none_or(|status| status & HAS_CAPABILITIES == 0) {
        return Err("it has no PCI capabilities");
    }
    let mut at = usize::from(byte(CAPABILITIES).unwrap_or(0) & !3);
    for _ in 0..CAPABILITIES_MAX {
        if at < HEADER_LEN {
            break;
        }
        let (Some(kind), Some(next)) = (byte(at), byte(at + 1)) else {
            return Err("its list of capabilities leaves the configuration space");
        };
        if kind == VENDOR
            && let Some((what, window)) = window(space, at)
        {
            // The first of a kind is the one that the device prefers.
            match what {
                1 => common = common.or(Some(window)),
                2 => notify = notify.or_else(|| Some((window, word(space, at + 16)?))),
                3 => isr = isr.or(Some(window)),
                4 => device = device.or(Some(window)),
                _ => {}
            }
        }
        at = usize::from(next & !3);
    }
    let (notify, notify_multiplier) = notify.ok_or("it has no doorbells of virtio 1.0")?;
    Ok(Windows {
        common: common.ok_or("it has no registers of virtio 1.0")?,
        notify,
        notify_multiplier,
        device: device.ok_or("it has no configuration of virtio 1.0")?,
        isr,
    })
}

fn word(space: &[u8], at: usize) -> Option<u32> {
    let bytes = space.get(at..)?.first_chunk()?;
    Some(u32::from_le_bytes(*bytes))
}

/// Reads one capability of virtio: its kind, and where it points; `None` for one that points nowhere.
fn window(space: &[u8], at: usize) -> Option<(u8, Window)> {
    let (what, bar) = (*space.get(at + 3)?, *space.get(at + 4)?);
    let (offset, len) = (word(space, at + 8)?, word(space, at + 12)?);
    offset.checked_add(len)?;
    (bar < BARS && len > 0).then_some((what, Window { bar, offset, len }))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Appends a capability of virtio, and returns where it stands.
    fn add(space: &mut Vec<u8>, what: u8, bar: u8, offset: u32, more: &[u8]) -> u8 {
        let at = space.len();
        space.extend([VENDOR, 0, 16 + more.len() as u8, what, bar, 0, 0, 0]);
        space.extend(offset.to_le_bytes());
        space.extend(0x1000u32.to_le_bytes());
        space.extend(more);
        at as u8
    }

    /// A configuration space as QEMU has it.
    pub(super) fn qemu() -> Vec<u8> {
        let mut space = vec![0; HEADER_LEN];
        space[STATUS] = HAS_CAPABILITIES;
        let common = add(&mut space, 1, 4, 0, &[]);
        let isr = add(&mut space, 3, 4, 0x1000, &[]);
        let device = add(&mut space, 4, 4, 0x2000, &[]);
        let notify = add(&mut space, 2, 4, 0x3000, &4u32.to_le_bytes());
        let access = add(&mut space, 5, 0, 0, &[]);
        // QEMU lists them from behind.
        let order = [access, notify, device, isr, common];
        space[CAPABILITIES] = order[0];
        for pair in order.windows(2) {
            space[usize::from(pair[0]) + 1] = pair[1];
        }
        space.resize(256, 0);
        space
    }

    #[test]
    fn a_card_of_qemu_has_its_registers_in_bar_4() {
        let found = find(&qemu()).unwrap();
        let window = |offset| Window {
            bar: 4,
            offset,
            len: 0x1000,
        };
        assert_eq!(
            found,
            Windows {
                common: window(0),
                notify: window(0x3000),
                notify_multiplier: 4,
                device: window(0x2000),
                isr: Some(window(0x1000))
            }
        );
    }

    #[test]
    fn a_list_in_a_circle_or_out_of_space_ends() {
        let mut circle = qemu();
        let first = usize::from(circle[CAPABILITIES]);
        circle[first + 1] = first as u8;
        assert!(find(&circle).is_err());
        let mut short = qemu();
        short.truncate(HEADER_LEN);
        assert!(find(&short).is_err());
        assert!(find(&[]).is_err());
        let mut none = qemu();
        none[STATUS] = 0;
        assert_eq!(find(&none), Err("it has no PCI capabilities"));
    }

    proptest! {
        #[test]
        fn whatever_a_device_says_reading_it_ends(
            mut space in proptest::collection::vec(any::<u8>(), 0..300),
            changes in proptest::collection::vec((0usize..256, any::<u8>()), 0..16),
        ) {
            let _ = find(&space);
            space = qemu();
            for (at, byte) in changes {
                space[at] = byte;
            }
            if let Ok(found) = find(&space) {
                for window in [found.common, found.notify, found.device] {
                    prop_assert!(window.bar < BARS && window.offset.checked_add(window.len).is_some());
                }
            }
        }
    }
}
