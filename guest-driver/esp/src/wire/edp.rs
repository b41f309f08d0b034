//! EDP: whether a host is there, and which IP addresses it has.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{WireError, body::Reader};

const FAMILY_4: u8 = 4;
const FAMILY_6: u8 = 6;

/// Whom a ping asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// Every host that gets it.
    Anyone,
    /// The host that has this address; the others say nothing.
    Owner(IpAddr),
}

/// Asks whether a host is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ping {
    /// Comes back in the pong.
    pub cookie: u64,
    /// Whom it asks.
    pub question: Question,
}

/// Up to [`Addresses::MAX`] IP addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addresses {
    count: u8,
    addresses: [IpAddr; Self::MAX],
}

impl Addresses {
    /// Most addresses of a pong; hosts with more name those first that were asked for.
    pub const MAX: usize = 16;

    /// No address.
    pub const NONE: Self = Self {
        count: 0,
        addresses: [IpAddr::V4(Ipv4Addr::UNSPECIFIED); Self::MAX],
    };

    /// Adds an address; false if there are as many as may be.
    pub fn push(&mut self, address: IpAddr) -> bool {
        let Some(place) = self.addresses.get_mut(usize::from(self.count)) else {
            return false;
        };
        *place = address;
        self.count += 1;
        true
    }

    /// The addresses.
    pub fn as_slice(&self) -> &[IpAddr] {
        &self.addresses[..usize::from(self.count)]
    }
}

impl FromIterator<IpAddr> for Addresses {
    fn from_iter<T: IntoIterator<Item = IpAddr>>(addresses: T) -> Self {
        let mut list = Self::NONE;
        addresses.into_iter().all(|address| list.push(address));
        list
    }
}

/// Says that a host is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pong {
    /// That of the ping.
    pub cookie: u64,
    /// Most bytes that a frame of the host's interface carries behind Ethernet's header.
    pub mtu: u16,
    /// The host's IP addresses.
    pub addresses: Addresses,
}

fn parse_address(reader: &mut Reader<'_>, family: u8) -> Result<IpAddr, WireError> {
    match family {
        FAMILY_4 => Ok(Ipv4Addr::from(reader.array::<4>()?).into()),
        FAMILY_6 => Ok(Ipv6Addr::from(reader.array::<16>()?).into()),
        _ => Err(WireError::Field),
    }
}

impl Ping {
    pub(super) fn parse(reader: &mut Reader<'_>) -> Result<Self, WireError> {
        let cookie = reader.u64()?;
        let question = match reader.u8()? {
            0 => Question::Anyone,
            family => Question::Owner(parse_address(reader, family)?),
        };
        Ok(Self { cookie, question })
    }

    pub(super) fn write(&self, put: &mut impl FnMut(&[u8])) {
        put(&self.cookie.to_be_bytes());
        match self.question {
            Question::Anyone => put(&[0]),
            Question::Owner(address) => write_address(address, put),
        }
    }
}

impl Pong {
    pub(super) fn parse(reader: &mut Reader<'_>) -> Result<Self, WireError> {
        let (cookie, mtu) = (reader.u64()?, reader.u16()?);
        let mut addresses = Addresses::NONE;
        for _ in 0..reader.u8()? {
            let family = reader.u8()?;
            if !addresses.push(parse_address(reader, family)?) {
                return Err(WireError::Field);
            }
        }
        Ok(Self { cookie, mtu, addresses })
    }

    pub(super) fn write(&self, put: &mut impl FnMut(&[u8])) {
        put(&self.cookie.to_be_bytes());
        put(&self.mtu.to_be_bytes());
        put(&[self.addresses.count]);
        for address in self.addresses.as_slice() {
            write_address(*address, put);
        }
    }
}

fn write_address(address: IpAddr, put: &mut impl FnMut(&[u8])) {
    match address {
        IpAddr::V4(address) => {
            put(&[FAMILY_4]);
            put(&address.octets());
        }
        IpAddr::V6(address) => {
            put(&[FAMILY_6]);
            put(&address.octets());
        }
    }
}
