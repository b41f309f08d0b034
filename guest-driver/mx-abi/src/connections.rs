//! Addresses and connections: the parts of the calls that both interfaces have in common.

use std::time::Duration;

use ether::MacAddr;

use crate::{
    calls::{hand_out, mac_of, nic_id},
    codes, contexts,
    fault::{Fault, Outcome},
    slots::{CRequest, Opened},
    types::{CAddress, Out},
};

/// Ends the conversation with an address.
pub(crate) fn disconnect(opened: &Opened, address: CAddress) -> Outcome {
    contexts::set(address, 0);
    Ok(opened.endpoint.disconnect(address.address())?)
}

/// Returns a remote endpoint's number as the protocol has it.
fn endpoint_number(number: u32) -> Option<u8> {
    u8::try_from(number).ok()
}

/// This number stands for all that do not fit the protocol: hosts have no endpoint with it, and say so.
const NO_ENDPOINT: u8 = u8::MAX;

fn peer(nic_id: u64) -> Outcome<MacAddr> {
    mac_of(nic_id).ok_or_else(|| Fault::new(codes::NIC_ID_NOT_FOUND))
}

/// Connects and waits.
pub(crate) fn connect(
    opened: &Opened,
    (nic_id, number, key): (u64, u32, u32),
    timeout: Option<Duration>,
    out: Out<CAddress>,
) -> Outcome {
    let mac = peer(nic_id)?;
    let number = endpoint_number(number).ok_or_else(|| Fault::new(codes::REMOTE_ENDPOINT_BAD_ID))?;
    let address = opened.endpoint.connect(mac, number, key, timeout)?;
    out.put(address.into());
    Ok(())
}

/// Starts a connection.
pub(crate) fn iconnect(
    opened: &Opened,
    (nic_id, number, key): (u64, u32, u32),
    match_info: u64,
    context: u64,
    out: Out<CRequest>,
) -> Outcome {
    let (mac, number) = (peer(nic_id)?, endpoint_number(number).unwrap_or(NO_ENDPOINT));
    let request = opened.endpoint.iconnect(mac, number, key, match_info, context)?;
    hand_out(opened, request, out)
}

/// Splits an address into its parts.
pub(crate) fn decompose(address: CAddress, nic: Out<u64>, endpoint: Out<u32>, session: Option<Out<u32>>) {
    let address = address.address();
    nic.put(nic_id(address.mac()));
    endpoint.put(address.endpoint().into());
    if let Some(session) = session {
        session.put(address.session());
    }
}
