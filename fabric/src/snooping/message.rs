//! IGMP (RFC 1112, 2236, 3376) and MLD (RFC 2710, 3810) as a switch reads them: who asks, and who wants which group.

use ether::{MacAddr, checksum};

/// EtherTypes.
const IPV4: [u8; 2] = [0x08, 0x00];
const IPV6: [u8; 2] = [0x86, 0xdd];

const IPV4_LEN_MIN: usize = 20;
const IPV6_LEN: usize = 40;
/// An IPv6 header with the hop-by-hop header that carries the router alert of each MLD message.
const IPV6_WITH_ALERT_LEN: usize = IPV6_LEN + 8;

const PROTOCOL_HOP_BY_HOP: u8 = 0;
const PROTOCOL_IGMP: u8 = 2;
const PROTOCOL_ICMPV6: u8 = 58;
const PROTOCOL_PIM: u8 = 103;

/// Version 2 of PIM, and its Hello.
const PIM_HELLO: u8 = 0x20;

const ALL_PIM_ROUTERS_V4: [u8; 4] = [224, 0, 0, 13];

/// The version of IP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Family {
    /// IPv4, whose groups are managed by IGMP.
    V4,
    /// IPv6, whose groups are managed by MLD.
    V6,
}

/// The IP address of a multicast group.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupAddr {
    /// An IPv4 address stands in the last four.
    octets: [u8; 16],
    is_v4: bool,
}

impl GroupAddr {
    /// 224.0.0.0/4 without 224.0.0.0/24, which are for all.
    pub(super) fn v4(octets: [u8; 4]) -> Option<Self> {
        let [a, b, c, d] = octets;
        let is_group = a >> 4 == 0xe && (a, b, c) != (224, 0, 0);
        is_group.then_some(Self {
            octets: [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, a, b, c, d],
            is_v4: true,
        })
    }

    /// ff00::/8 without the scopes of an interface or a link (ff01::/16, ff02::/16), which are for all.
    pub(super) fn v6(octets: [u8; 16]) -> Option<Self> {
        const SCOPE_LINK: u8 = 2;
        (octets[0] == 0xff && octets[1] & 0xf > SCOPE_LINK).then_some(Self { octets, is_v4: false })
    }

    /// The address as those of the standard library are made.
    pub fn to_ip(self) -> core::net::IpAddr {
        let [.., a, b, c, d] = self.octets;
        match self.is_v4 {
            true => core::net::IpAddr::from([a, b, c, d]),
            false => core::net::IpAddr::from(self.octets),
        }
    }

    pub(super) fn family(self) -> Family {
        if self.is_v4 { Family::V4 } else { Family::V6 }
    }

    pub(super) fn octets(&self) -> &[u8] {
        match self.is_v4 {
            true => &self.octets[12..],
            false => &self.octets,
        }
    }

    /// The Ethernet address of the group.
    pub(super) fn mac(self) -> MacAddr {
        let [.., a, b, c, d] = self.octets;
        match self.is_v4 {
            true => MacAddr([0x01, 0x00, 0x5e, b & 0x7f, c, d]),
            false => MacAddr([0x33, 0x33, a, b, c, d]),
        }
    }
}

impl core::fmt::Debug for GroupAddr {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.to_ip().fmt(f)
    }
}

/// What a frame to a group address is to a switch that snoops, from its first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kind {
    /// Perhaps IGMP, MLD, or PIM: to be read as a whole.
    pub is_message: bool,
    /// The group that it goes to. None: for all, since it is no IP, or goes to a group of the link.
    pub group: Option<GroupAddr>,
}

/// What a frame to a group address, whose EtherType is at `type_at`, is.
pub(crate) fn kind_of(header: &[u8], type_at: usize) -> Kind {
    let kind = match header.get(type_at..type_at + 2).and_then(<[u8]>::first_chunk) {
        Some(&IPV4) if header.starts_with(&[0x01, 0x00, 0x5e]) => kind_v4(&header[type_at + 2..]),
        Some(&IPV6) if header.starts_with(&[0x33, 0x33]) => kind_v6(&header[type_at + 2..]),
        _ => None,
    };
    kind.unwrap_or(Kind {
        is_message: false,
        group: None,
    })
}

fn kind_v4(ip: &[u8]) -> Option<Kind> {
    let ip = ip.first_chunk::<IPV4_LEN_MIN>()?;
    let [.., a, b, c, d] = *ip;
    let is_message = match ip[9] {
        PROTOCOL_IGMP => true,
        PROTOCOL_PIM => [a, b, c, d] == ALL_PIM_ROUTERS_V4,
        _ => false,
    };
    let group = GroupAddr::v4([a, b, c, d]);
    Some(Kind { is_message, group })
}

fn kind_v6(ip: &[u8]) -> Option<Kind> {
    let group = GroupAddr::v6(*ip.get(24..IPV6_LEN)?.first_chunk()?);
    let is_message = match ip[6] {
        PROTOCOL_PIM => group.is_none(),
        PROTOCOL_HOP_BY_HOP if ip.get(IPV6_LEN).is_none_or(|next| *next == PROTOCOL_ICMPV6) => {
            // The type may lie behind the first bytes.
            let kind = ip.get(IPV6_WITH_ALERT_LEN);
            kind.is_none_or(|kind| matches!(kind, 130..=132 | 143))
        }
        _ => false,
    };
    Some(Kind { is_message, group })
}

/// Who is the querier where several ask: the one with the lowest address, those of switches (0.0.0.0) last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct QuerierRank(pub [u8; 16], pub MacAddr);

/// A message about groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Message<'a> {
    /// A router asks for all groups.
    GeneralQuery {
        family: Family,
        rank: QuerierRank,
        /// It has an address, which querying switches have none of in IPv4.
        is_router: bool,
    },
    /// A querier asks for one group.
    GroupQuery,
    /// A host says what it wants.
    Report(Records<'a>),
    /// A router says that it is one.
    Router,
    /// IGMP of a kind that says nothing to a switch, and is for the stations that understand it (RFC 4541, 2.1.1).
    Other,
}

/// One thing that a report says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    /// The group is wanted.
    Join(GroupAddr),
    /// It may not be wanted any more.
    Leave(GroupAddr),
}

/// The records of a report: all of them, since who says more than is heard would not get it. Each has at least eight bytes, so the
/// length of the frame is an end to what one costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Records<'a> {
    family: Family,
    rest: &'a [u8],
    /// Records that are said to be there still.
    left: usize,
    /// Instead of records: the one thing that reports of older versions say.
    only: Option<Wish>,
}

impl Records<'_> {
    fn one(family: Family, group: &[u8], joins: bool) -> Self {
        let group = group_in(family, group);
        Self {
            family,
            rest: &[],
            left: 0,
            only: group.map(if joins { Wish::Join } else { Wish::Leave }),
        }
    }
}

fn group_in(family: Family, octets: &[u8]) -> Option<GroupAddr> {
    match family {
        Family::V4 => GroupAddr::v4(*octets.first_chunk()?),
        Family::V6 => GroupAddr::v6(*octets.first_chunk()?),
    }
}

impl Iterator for Records<'_> {
    type Item = Wish;

    fn next(&mut self) -> Option<Wish> {
        if let Some(only) = self.only.take() {
            return Some(only);
        }
        let address_len = match self.family {
            Family::V4 => 4,
            Family::V6 => 16,
        };
        while self.left > 0 {
            self.left -= 1;
            let [kind, auxiliary_words, a, b, record @ ..] = self.rest else {
                return None;
            };
            let sources = usize::from(u16::from_be_bytes([*a, *b]));
            let len = address_len * (1 + sources) + 4 * usize::from(*auxiliary_words);
            let group = group_in(self.family, record);
            self.rest = record.get(len..)?;
            let wish: fn(GroupAddr) -> Wish = match (kind, sources) {
                // Everything but some sources, or some sources: the switch does not distinguish sources.
                (2 | 4, _) | (1 | 3 | 5, 1..) => Wish::Join,
                // No source, or fewer.
                (3, 0) | (6, _) => Wish::Leave,
                _ => continue,
            };
            if let Some(group) = group {
                return Some(wish(group));
            }
        }
        None
    }
}

/// Reads a frame, whose EtherType is at `type_at`; `None` if it is no message about groups, or is cut off or damaged.
pub(super) fn parse(frame: &[u8], type_at: usize) -> Option<Message<'_>> {
    let ip = frame.get(type_at + 2..)?;
    let source = MacAddr::from_slice(frame.get(6..)?)?;
    match *frame.get(type_at..type_at + 2)?.first_chunk()? {
        IPV4 => parse_v4(ip, source),
        IPV6 => parse_v6(ip, source),
        _ => None,
    }
}

fn parse_v4(ip: &[u8], mac: MacAddr) -> Option<Message<'_>> {
    let first = ip.first_chunk::<IPV4_LEN_MIN>()?;
    let header_len = usize::from(first[0] & 0xf) * 4;
    let total_len = usize::from(u16::from_be_bytes([first[2], first[3]]));
    let is_whole = u16::from_be_bytes([first[6], first[7]]) & 0x3fff == 0;
    if first[0] >> 4 != 4 || header_len < IPV4_LEN_MIN || !is_whole || checksum::checksum(ip.get(..header_len)?) != 0 {
        return None;
    }
    let payload = ip.get(header_len..total_len)?;
    if first[9] == PROTOCOL_PIM {
        return (*payload.first()? == PIM_HELLO).then_some(Message::Router);
    }
    if first[9] != PROTOCOL_IGMP || checksum::checksum(payload) != 0 {
        return None;
    }
    let [kind, _, _, _, group @ ..] = payload else {
        return None;
    };
    let one = |joins| (group.len() >= 4).then(|| Message::Report(Records::one(Family::V4, group, joins)));
    match kind {
        0x11 => {
            let mut rank = [0xff; 16];
            let source: [u8; 4] = *first[12..].first_chunk()?;
            let is_router = source != [0; 4];
            if is_router {
                rank[..4].copy_from_slice(&source);
            }
            Some(match group.first_chunk::<4>()? {
                [0, 0, 0, 0] => Message::GeneralQuery {
                    family: Family::V4,
                    rank: QuerierRank(rank, mac),
                    is_router,
                },
                _ => Message::GroupQuery,
            })
        }
        0x12 | 0x16 => one(true),
        0x17 => one(false),
        0x22 => records(Family::V4, group),
        _ => Some(Message::Other),
    }
}

fn parse_v6(ip: &[u8], mac: MacAddr) -> Option<Message<'_>> {
    let first = ip.first_chunk::<IPV6_LEN>()?;
    let payload_len = usize::from(u16::from_be_bytes([first[4], first[5]]));
    let payload = ip.get(IPV6_LEN..)?.get(..payload_len)?;
    if first[0] >> 4 != 6 {
        return None;
    }
    if first[6] == PROTOCOL_PIM {
        return (*payload.first()? == PIM_HELLO).then_some(Message::Router);
    }
    // Every MLD message has a router alert before it, and comes from an address of the link (RFC 3810, 5).
    let (options, message) = payload.split_at_checked(IPV6_WITH_ALERT_LEN - IPV6_LEN)?;
    let (source, dst): ([u8; 16], [u8; 16]) = (*first[8..].first_chunk()?, *first[24..].first_chunk()?);
    let sum = checksum::pseudo_header_v6(source, dst, PROTOCOL_ICMPV6, message.len() as u32) + checksum::sum(message);
    if first[6] != PROTOCOL_HOP_BY_HOP || options[..2] != [PROTOCOL_ICMPV6, 0] || checksum::finish(sum) != 0 {
        return None;
    }
    let is_of_link = source[0] == 0xfe && source[1] & 0xc0 == 0x80;
    let [kind, _, _, _, rest @ ..] = message else {
        return None;
    };
    // Behind the delay, which reports have no use for.
    let group = |rest: &[u8]| rest.get(4..20).and_then(<[u8]>::first_chunk::<16>).copied();
    match kind {
        130 if is_of_link => Some(match group(rest)? {
            [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0] => Message::GeneralQuery {
                family: Family::V6,
                rank: QuerierRank(source, mac),
                is_router: !super::query::is_switch(source),
            },
            _ => Message::GroupQuery,
        }),
        131 => Some(Message::Report(Records::one(Family::V6, &group(rest)?, true))),
        132 => Some(Message::Report(Records::one(Family::V6, &group(rest)?, false))),
        143 => records(Family::V6, rest),
        _ => None,
    }
}

/// Records of a report of IGMPv3 or MLDv2, behind two reserved bytes and their number.
fn records(family: Family, behind_checksum: &[u8]) -> Option<Message<'_>> {
    let [_, _, a, b, rest @ ..] = behind_checksum else {
        return None;
    };
    Some(Message::Report(Records {
        family,
        rest,
        left: usize::from(u16::from_be_bytes([*a, *b])),
        only: None,
    }))
}
