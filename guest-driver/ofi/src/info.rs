//! What the provider supports (`getinfo`): the attributes of an interface, the checks of a program's wishes against them, and
//! the values that must follow those wishes (`docs/spec/ofi-provider.md` section 3).

use std::{
    env,
    ffi::{CStr, CString, c_char, c_int, c_void},
    ptr,
};

use omx::Board;

use crate::{
    abi::*,
    address::{ADDRESS_LEN, ENDPOINT_ANY, PeerAddress},
    atomic::OPERAND_LEN_MAX,
    log::{Level, log},
    refusal::{Reason, Refusal, note_provided},
};

/// The name of the one fabric.
pub(crate) const FABRIC_NAME: &CStr = c"mx";

/// The tag bits that programs may use; the others are the provider's (section 3.5).
pub(crate) const TAG_MASK: u64 = (1 << 56) - 1;
/// The longest message that is copied when it is posted, in bytes.
pub(crate) const INJECT_SIZE: usize = 4096;
/// The longest message in bytes: its length and the eight bytes before it fit in 32 bits.
pub(crate) const MESSAGE_LEN_MAX: usize = u32::MAX as usize - 8;
/// The pieces of memory that one message may be made of.
pub(crate) const IOV_LIMIT: usize = 8;
/// The sends, and the receives, that an endpoint promises to hold. It holds more, but for sends to peers that are not connected yet.
pub(crate) const QUEUE_SIZE: usize = 4096;
/// The bytes of immediate data beside a message.
const CQ_DATA_LEN: usize = 4;

const ADDR_FORMAT: u32 = FI_PROV_SPECIFIC | 0x6d78;
const PROTOCOL: u32 = FI_PROV_SPECIFIC | 0x6d78;
const PROTOCOL_VERSION: u32 = 1;

const REMOTE_CAPS: u64 = FI_RMA | FI_ATOMIC | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
const PRIMARY_CAPS: u64 = FI_MSG | FI_TAGGED | FI_SEND | FI_RECV | FI_DIRECTED_RECV | REMOTE_CAPS;
const SECONDARY_CAPS: u64 = FI_MULTI_RECV | FI_SOURCE | FI_LOCAL_COMM | FI_REMOTE_COMM;
const TX_CAPS: u64 = FI_MSG | FI_TAGGED | FI_SEND | FI_RMA | FI_ATOMIC | FI_READ | FI_WRITE;
const RX_CAPS: u64 = FI_MSG
    | FI_TAGGED
    | FI_RECV
    | FI_RMA
    | FI_ATOMIC
    | FI_REMOTE_READ
    | FI_REMOTE_WRITE
    | FI_MULTI_RECV
    | FI_DIRECTED_RECV
    | FI_SOURCE;
/// What a program must allow for remote memory access: keys are chosen by the provider, who checks them.
const MR_MODE: c_int = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
const DOMAIN_CAPS: u64 = FI_LOCAL_COMM | FI_REMOTE_COMM;
const TX_OP_FLAGS: u64 =
    FI_COMPLETION | FI_INJECT | FI_INJECT_COMPLETE | FI_TRANSMIT_COMPLETE | FI_DELIVERY_COMPLETE | FI_MATCH_COMPLETE;
const RX_OP_FLAGS: u64 = FI_COMPLETION | FI_MULTI_RECV;

/// Each block that libfabric frees is at least this long, and zero: later versions of the library read fields that this
/// provider does not know.
const BLOCK_LEN: usize = 1024;

/// What the provider supports. It is the same for every program, but for tests that withdraw a feature to see what a program
/// does without it (`FI_MX_WITHOUT`, a list of the names below with commas; section 3.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Support {
    /// `directed_recv`, `msg`, `multi_recv`, `rma`.
    caps: u64,
    /// `delivery_complete`.
    tx_op_flags: u64,
    /// `cq_data`.
    cq_data_len: usize,
    /// `tag_bits`: 48 are left.
    tag_mask: u64,
    /// `message_length`: 64 KiB are left.
    message_len_max: usize,
    /// `counters`.
    has_counters: bool,
    /// `echo`: flags, threading, progress and the type of the address vector do not follow the wishes.
    echoes: bool,
}

impl Support {
    const ALL: Self = Self {
        caps: PRIMARY_CAPS | SECONDARY_CAPS,
        tx_op_flags: TX_OP_FLAGS,
        cq_data_len: CQ_DATA_LEN,
        tag_mask: TAG_MASK,
        message_len_max: MESSAGE_LEN_MAX,
        has_counters: true,
        echoes: true,
    };

    fn read() -> Self {
        let Ok(names) = env::var("FI_MX_WITHOUT") else {
            return Self::ALL;
        };
        let mut support = Self::ALL;
        for name in names.split(',').filter(|name| !name.is_empty()) {
            match name {
                "directed_recv" => support.caps &= !FI_DIRECTED_RECV,
                "msg" => support.caps &= !FI_MSG,
                "multi_recv" => support.caps &= !FI_MULTI_RECV,
                "delivery_complete" => support.tx_op_flags &= !FI_DELIVERY_COMPLETE,
                "rma" => support.caps &= !REMOTE_CAPS,
                "cq_data" => support.cq_data_len = 0,
                "tag_bits" => support.tag_mask = (1 << 48) - 1,
                "message_length" => support.message_len_max = 64 << 10,
                "counters" => support.has_counters = false,
                "echo" => support.echoes = false,
                unknown => log(Level::Error, || format!("FI_MX_WITHOUT: {unknown} is no feature")),
            }
        }
        support
    }

    /// Returns the order of operations with these capabilities: messages, and atomic operations.
    const fn order(self, caps: u64) -> u64 {
        let atomic = FI_ORDER_ATOMIC_RAR | FI_ORDER_ATOMIC_RAW | FI_ORDER_ATOMIC_WAR | FI_ORDER_ATOMIC_WAW;
        if caps & self.caps & FI_ATOMIC == 0 {
            FI_ORDER_SAS
        } else {
            FI_ORDER_SAS | atomic
        }
    }

    /// Returns the wish, or what is supported where there is none or none is followed.
    fn or<T: Default + PartialEq>(self, wish: T, supported: T) -> T {
        if wish == T::default() || !self.echoes {
            supported
        } else {
            wish
        }
    }

    /// Returns the wish, or nothing where none is followed.
    fn echo<T: Default>(self, wish: T) -> T {
        if self.echoes { wish } else { T::default() }
    }
}

/// Whether the regions of a domain of this mode can be accessed by others.
pub(crate) const fn offers_regions(mr_mode: c_int) -> bool {
    mr_mode & MR_MODE == MR_MODE || mr_mode & FI_MR_BASIC != 0
}

/// Whether programs get counters.
pub(crate) fn has_counters() -> bool {
    Support::read().has_counters
}

/// Returns what can be used: one entry, the first interface for messages, or the one that the program names.
///
/// # Safety
/// As libfabric calls it: the strings and the hints are valid or null, `out` can be written.
pub(crate) unsafe extern "C" fn getinfo(
    version: u32,
    node: *const c_char,
    service: *const c_char,
    flags: u64,
    hints: *const FiInfo,
    out: *mut *mut FiInfo,
) -> c_int {
    // SAFETY: the caller's promise.
    let (hints, node, service) = unsafe { (hints.as_ref(), text(node), text(service)) };
    // SAFETY: as above; the parts of hints are null or valid.
    match unsafe { describe(version, node, service, flags, hints) } {
        Ok(info) => {
            // SAFETY: the caller's promise.
            unsafe { *out = info };
            note_provided();
            0
        }
        Err(refusal) => {
            refusal.tell();
            -FI_ENODATA
        }
    }
}

/// # Safety
/// The string is valid or null.
unsafe fn text<'a>(string: *const c_char) -> Option<&'a str> {
    if string.is_null() {
        return None;
    }
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(string) }.to_str().ok()
}

/// # Safety
/// The parts of the hints are valid or null.
unsafe fn describe(
    version: u32,
    node: Option<&str>,
    service: Option<&str>,
    flags: u64,
    hints: Option<&FiInfo>,
) -> Result<*mut FiInfo, Refusal> {
    if flags & (OFI_CORE_PROV_ONLY | OFI_GETINFO_INTERNAL) != 0 {
        return Err(Refusal::Utility);
    }
    let mut supported = Support::read();
    // SAFETY: the caller's promise.
    if let Some(domain) = hints.and_then(|hints| unsafe { hints.domain_attr.as_ref() })
        && !offers_regions(domain.mr_mode)
    {
        supported.caps &= !REMOTE_CAPS;
    }
    if let Some(hints) = hints {
        // SAFETY: the caller's promise.
        unsafe { supported.check(hints) }?;
    }
    // SAFETY: the caller's promise.
    let wanted = unsafe {
        hints
            .and_then(|hints| hints.domain_attr.as_ref())
            .and_then(|domain| text(domain.name))
    };
    let board = match wanted {
        Some(name) => Board::named(name).map_err(|error| Refusal::Name(error.to_string())),
        None => Board::first().map_err(|error| Refusal::Interface(error.to_string())),
    }?;
    let own = PeerAddress {
        mac: board.interface().mac,
        endpoint: ENDPOINT_ANY,
        session: 0,
    };
    let named = resolve(&board, node, service).map_err(Refusal::Name)?;
    let (source, destination) = if flags & FI_GETINFO_SOURCE != 0 {
        (named.unwrap_or(own), None)
    } else {
        (own, named)
    };
    if source.mac != own.mac {
        return Err(Refusal::Wish(format!("{source} is not on {}", board.interface().name)));
    }
    // SAFETY: the caller's promise.
    let info = unsafe { supported.build(version, &board, (source, destination), hints) };
    log(Level::Info, || {
        format!("provides {} ({})", board.interface().name, own.mac)
    });
    Ok(info)
}

/// Finds the interface that a program names: by its hardware address, or by the name of a host or of one of its boards. The
/// service is the number of an endpoint.
fn resolve(board: &Board, node: Option<&str>, service: Option<&str>) -> Result<Option<PeerAddress>, Reason> {
    let Some(node) = node else { return Ok(None) };
    let node = node.strip_prefix("fi_mx://").unwrap_or(node);
    let (node, endpoint) = match node.split_once('/') {
        Some((node, endpoint)) => (node, Some(endpoint)),
        None => (node, service),
    };
    let mac = match node.parse() {
        Ok(mac) => mac,
        Err(_) => board.find_host(node).map_err(|error| format!("{node}: {error}"))?,
    };
    let endpoint = match endpoint {
        Some(number) => number
            .parse()
            .ok()
            .filter(|number| *number < ENDPOINTS)
            .ok_or_else(|| {
                let last = ENDPOINTS - 1;
                format!("{number} is no number of an endpoint: they are 0 to {last}")
            })?,
        None => ENDPOINT_ANY,
    };
    Ok(Some(PeerAddress {
        mac,
        endpoint,
        session: 0,
    }))
}

/// Says whether the wish is among what is supported.
fn subset(wish: u64, supported: u64, what: &str) -> Result<(), Reason> {
    if wish & !supported == 0 {
        Ok(())
    } else {
        Err(format!("{what}: {:#x} is not supported", wish & !supported))
    }
}

fn at_most(wish: usize, supported: usize, what: &str) -> Result<(), Reason> {
    if wish <= supported {
        Ok(())
    } else {
        Err(format!("{what}: {wish} is more than {supported}"))
    }
}

/// Says whether the wish is 0, for none, or this value.
fn none_or(wish: u32, supported: u32, what: &str) -> Result<(), Reason> {
    if wish == 0 || wish == supported {
        Ok(())
    } else {
        Err(format!("{what}: {wish:#x} is not {supported:#x}"))
    }
}

/// The completion queues and the counters that a domain promises.
const COUNT: usize = 1 << 16;
/// The endpoints of an interface of one host, as `omxd` serves them.
const ENDPOINTS: u8 = 32;

/// Allocates a block that libfabric will free.
fn block<T>() -> *mut T {
    const { assert!(size_of::<T>() <= BLOCK_LEN) };
    // SAFETY: any size may be asked for.
    let block = unsafe { libc::calloc(1, BLOCK_LEN) };
    assert!(!block.is_null(), "no memory for {BLOCK_LEN} bytes");
    block.cast()
}

/// Copies bytes to where libfabric will free them.
fn copied(bytes: &[u8]) -> *mut c_void {
    // SAFETY: as in `block`; the copy is inside what was allocated.
    unsafe {
        let copy = libc::calloc(1, bytes.len().max(1));
        assert!(!copy.is_null(), "no memory for {} bytes", bytes.len());
        ptr::copy_nonoverlapping(bytes.as_ptr(), copy.cast(), bytes.len());
        copy
    }
}

impl Support {
    /// # Safety
    /// The parts of the hints are valid or null.
    unsafe fn check(self, hints: &FiInfo) -> Result<(), Reason> {
        subset(hints.caps, self.caps, "capabilities")?;
        none_or(hints.addr_format, ADDR_FORMAT, "format of addresses")?;
        // SAFETY: the caller's promise.
        unsafe {
            hints
                .ep_attr
                .as_ref()
                .map_or(Ok(()), |wish| self.check_endpoint(wish, hints.caps))?;
            hints
                .tx_attr
                .as_ref()
                .map_or(Ok(()), |wish| self.check_transmit(wish))?;
            hints.rx_attr.as_ref().map_or(Ok(()), |wish| self.check_receive(wish))?;
            hints
                .domain_attr
                .as_ref()
                .map_or(Ok(()), |wish| self.check_domain(wish))?;
            if let Some(fabric) = hints.fabric_attr.as_ref()
                && !fabric.name.is_null()
                && CStr::from_ptr(fabric.name) != FABRIC_NAME
            {
                return Err("another fabric is asked for".to_owned());
            }
        }
        Ok(())
    }

    fn check_endpoint(self, wish: &FiEpAttr, caps: u64) -> Result<(), Reason> {
        none_or(wish.type_ as u32, FI_EP_RDM as u32, "type of endpoint")?;
        none_or(wish.protocol, PROTOCOL, "protocol")?;
        at_most(
            wish.protocol_version as usize,
            PROTOCOL_VERSION as usize,
            "version of the protocol",
        )?;
        at_most(wish.max_msg_size, self.message_len_max, "length of messages")?;
        at_most(wish.tx_ctx_cnt, 1, "transmit contexts")?;
        at_most(wish.rx_ctx_cnt, 1, "receive contexts")?;
        at_most(wish.auth_key_size, 0, "authorization key")?;
        if caps & FI_TAGGED != 0 && wish.mem_tag_format.leading_zeros() < (!self.tag_mask).leading_ones() {
            return Err("more bits of tag are asked for than are supported".to_owned());
        }
        Ok(())
    }

    fn check_transmit(self, wish: &FiTxAttr) -> Result<(), Reason> {
        // Programs give one set of capabilities for both directions.
        subset(
            wish.caps & !(FI_RECV | SECONDARY_CAPS | FI_DIRECTED_RECV | FI_REMOTE_READ | FI_REMOTE_WRITE),
            TX_CAPS & self.caps,
            "transmit capabilities",
        )?;
        subset(wish.op_flags, self.tx_op_flags, "transmit flags")?;
        subset(wish.msg_order, self.order(self.caps), "order of messages")?;
        subset(wish.comp_order, 0, "order of completions")?;
        at_most(wish.inject_size, INJECT_SIZE, "length of injected messages")?;
        at_most(wish.size, QUEUE_SIZE, "transmit queue")?;
        at_most(wish.iov_limit, IOV_LIMIT, "pieces of a message")?;
        let places = usize::from(self.caps & FI_RMA != 0);
        at_most(wish.rma_iov_limit, places, "places of a remote access")
    }

    fn check_receive(self, wish: &FiRxAttr) -> Result<(), Reason> {
        subset(
            wish.caps & !(FI_SEND | SECONDARY_CAPS | FI_READ | FI_WRITE),
            RX_CAPS & (self.caps | SECONDARY_CAPS),
            "receive capabilities",
        )?;
        subset(wish.op_flags, RX_OP_FLAGS, "receive flags")?;
        subset(wish.msg_order, self.order(self.caps), "order of messages")?;
        subset(wish.comp_order, 0, "order of completions")?;
        at_most(wish.size, QUEUE_SIZE, "receive queue")?;
        at_most(wish.iov_limit, IOV_LIMIT, "pieces of a message")
    }

    fn check_domain(self, wish: &FiDomainAttr) -> Result<(), Reason> {
        let values = [
            (wish.threading, FI_THREAD_LAST, "threading"),
            (wish.control_progress, FI_PROGRESS_MANUAL, "control progress"),
            (wish.data_progress, FI_PROGRESS_MANUAL, "data progress"),
            (wish.resource_mgmt, FI_RM_ENABLED, "resource management"),
            (wish.av_type, FI_AV_TABLE, "type of address vector"),
        ];
        for (value, last, what) in values {
            if !(0..=last).contains(&value) {
                return Err(format!("{what}: {value} is unknown"));
            }
        }
        subset(wish.caps, DOMAIN_CAPS, "capabilities of the domain")?;
        at_most(wish.cq_data_size, self.cq_data_len, "immediate data")?;
        at_most(wish.auth_key_size, 0, "authorization key")?;
        at_most(wish.max_err_data, 0, "error data")?;
        at_most(wish.cntr_cnt, if self.has_counters { COUNT } else { 0 }, "counters")?;
        at_most(wish.cq_cnt, COUNT, "completion queues")?;
        at_most(wish.ep_cnt, ENDPOINTS.into(), "endpoints")?;
        at_most(wish.max_ep_tx_ctx, 1, "transmit contexts")?;
        at_most(wish.max_ep_rx_ctx, 1, "receive contexts")?;
        at_most(wish.max_ep_stx_ctx, 0, "shared transmit contexts")?;
        at_most(wish.max_ep_srx_ctx, 0, "shared receive contexts")
    }

    /// # Safety
    /// The parts of the hints are valid or null, and were [checked](Self::check).
    unsafe fn build(
        self,
        version: u32,
        board: &Board,
        (source, destination): (PeerAddress, Option<PeerAddress>),
        hints: Option<&FiInfo>,
    ) -> *mut FiInfo {
        let info: *mut FiInfo = block();
        // SAFETY: the block is fresh and zero, which is valid for every field.
        let entry = unsafe { &mut *info };
        let wish = hints.map_or(0, |hints| hints.caps);
        entry.caps = if wish == 0 {
            self.caps
        } else {
            let rights = REMOTE_CAPS & !(FI_RMA | FI_ATOMIC);
            let remote = if wish & (FI_RMA | FI_ATOMIC) == 0 { 0 } else { rights };
            wish | SECONDARY_CAPS & self.caps | FI_SEND | FI_RECV | remote
        };
        entry.addr_format = ADDR_FORMAT;
        entry.src_addr = copied(&source.to_bytes());
        entry.src_addrlen = ADDRESS_LEN;
        if let Some(destination) = destination {
            entry.dest_addr = copied(&destination.to_bytes());
            entry.dest_addrlen = ADDRESS_LEN;
        } else if let Some(hints) = hints.filter(|hints| !hints.dest_addr.is_null()) {
            // SAFETY: the caller's promise.
            let bytes = unsafe { std::slice::from_raw_parts(hints.dest_addr.cast::<u8>(), hints.dest_addrlen) };
            entry.dest_addr = copied(bytes);
            entry.dest_addrlen = bytes.len();
        }
        entry.handle = hints.map_or(ptr::null_mut(), |hints| hints.handle);
        // SAFETY: the caller's promise.
        unsafe {
            entry.tx_attr = self.transmit_attributes(hints.and_then(|hints| hints.tx_attr.as_ref()), entry.caps);
            entry.rx_attr = self.receive_attributes(hints.and_then(|hints| hints.rx_attr.as_ref()), entry.caps);
            let domain = hints.and_then(|hints| hints.domain_attr.as_ref());
            entry.domain_attr = self.domain_attributes(domain, board, entry.caps);
        }
        entry.ep_attr = self.endpoint_attributes(entry.caps);
        let fabric: *mut FiFabricAttr = block();
        // SAFETY: as for `info`.
        let attributes = unsafe { &mut *fabric };
        attributes.name = copied(FABRIC_NAME.to_bytes_with_nul()).cast();
        attributes.prov_version = fi_version(1, 0);
        attributes.api_version = version;
        entry.fabric_attr = fabric;
        info
    }

    fn transmit_attributes(self, wish: Option<&FiTxAttr>, caps: u64) -> *mut FiTxAttr {
        let block: *mut FiTxAttr = block();
        // SAFETY: the block is fresh and zero, which is valid for every field.
        let attributes = unsafe { &mut *block };
        attributes.caps = TX_CAPS & caps;
        attributes.op_flags = self.echo(wish.map_or(0, |wish| wish.op_flags));
        attributes.msg_order = self.order(caps);
        attributes.inject_size = self.or(wish.map_or(0, |wish| wish.inject_size), INJECT_SIZE);
        attributes.size = self.or(wish.map_or(0, |wish| wish.size), QUEUE_SIZE);
        attributes.iov_limit = self.or(wish.map_or(0, |wish| wish.iov_limit), IOV_LIMIT);
        attributes.rma_iov_limit = usize::from(caps & (FI_RMA | FI_ATOMIC) != 0);
        attributes.tclass = wish.map_or(0, |wish| wish.tclass);
        block
    }

    fn receive_attributes(self, wish: Option<&FiRxAttr>, caps: u64) -> *mut FiRxAttr {
        let block: *mut FiRxAttr = block();
        // SAFETY: as in `transmit_attributes`.
        let attributes = unsafe { &mut *block };
        attributes.caps = RX_CAPS & caps;
        attributes.op_flags = self.echo(wish.map_or(0, |wish| wish.op_flags));
        attributes.msg_order = self.order(caps);
        attributes.total_buffered_recv = wish.map_or(0, |wish| wish.total_buffered_recv);
        attributes.size = self.or(wish.map_or(0, |wish| wish.size), QUEUE_SIZE);
        attributes.iov_limit = self.or(wish.map_or(0, |wish| wish.iov_limit), IOV_LIMIT);
        block
    }

    fn endpoint_attributes(self, caps: u64) -> *mut FiEpAttr {
        let block: *mut FiEpAttr = block();
        // SAFETY: as in `transmit_attributes`.
        let attributes = unsafe { &mut *block };
        attributes.type_ = FI_EP_RDM;
        attributes.protocol = PROTOCOL;
        attributes.protocol_version = PROTOCOL_VERSION;
        attributes.max_msg_size = self.message_len_max;
        if caps & FI_ATOMIC != 0 {
            attributes.max_order_raw_size = OPERAND_LEN_MAX;
            attributes.max_order_war_size = OPERAND_LEN_MAX;
            attributes.max_order_waw_size = OPERAND_LEN_MAX;
        }
        // Every second bit is set from the highest one of the tag on, as libfabric describes a tag without fields.
        attributes.mem_tag_format = 0xaaaa_aaaa_aaaa_aaaa & self.tag_mask;
        attributes.tx_ctx_cnt = 1;
        attributes.rx_ctx_cnt = 1;
        block
    }

    fn domain_attributes(self, wish: Option<&FiDomainAttr>, board: &Board, caps: u64) -> *mut FiDomainAttr {
        let block: *mut FiDomainAttr = block();
        // SAFETY: as in `transmit_attributes`.
        let attributes = unsafe { &mut *block };
        let name = CString::new(board.interface().name.as_str()).unwrap_or_default();
        attributes.name = copied(name.as_bytes_with_nul()).cast();
        attributes.threading = self.or(wish.map_or(0, |wish| wish.threading), FI_THREAD_SAFE);
        attributes.control_progress = self.or(wish.map_or(0, |wish| wish.control_progress), FI_PROGRESS_AUTO);
        attributes.data_progress = self.or(wish.map_or(0, |wish| wish.data_progress), FI_PROGRESS_MANUAL);
        attributes.resource_mgmt = FI_RM_ENABLED;
        attributes.av_type = self.echo(wish.map_or(0, |wish| wish.av_type));
        if caps & (FI_RMA | FI_ATOMIC) != 0 {
            let is_old = wish.is_some_and(|wish| wish.mr_mode & FI_MR_BASIC != 0);
            attributes.mr_mode = if is_old { FI_MR_BASIC } else { MR_MODE };
        }
        attributes.mr_key_size = 8;
        attributes.cq_data_size = self.cq_data_len;
        attributes.cq_cnt = COUNT;
        attributes.ep_cnt = ENDPOINTS.into();
        attributes.tx_ctx_cnt = ENDPOINTS.into();
        attributes.rx_ctx_cnt = ENDPOINTS.into();
        attributes.max_ep_tx_ctx = 1;
        attributes.max_ep_rx_ctx = 1;
        attributes.cntr_cnt = if self.has_counters { COUNT } else { 0 };
        attributes.mr_iov_limit = 1;
        attributes.mr_cnt = COUNT;
        attributes.caps = DOMAIN_CAPS;
        attributes.tclass = wish.map_or(0, |wish| wish.tclass);
        block
    }
}
