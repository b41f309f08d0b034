//! The structures and numbers of [`super`] against libfabric's own headers (`libfabric-dev`): a C program prints those of the
//! headers.

use std::{collections::BTreeMap, fmt::Write as _, fs, mem::offset_of, process::Command};

use super::*;

/// Lists the sizes and the places of fields, each under the expression by which C knows it.
fn layouts() -> Vec<(String, usize)> {
    let mut list = Vec::new();
    macro_rules! layout {
        ($ours:ident, $theirs:literal, $($field:ident = $name:literal),* $(,)?) => {
            list.push((format!("sizeof(struct {})", $theirs), size_of::<$ours>()));
            $(list.push((format!("offsetof(struct {}, {})", $theirs, $name), offset_of!($ours, $field)));)*
        };
    }
    layout!(Fid, "fid", fclass = "fclass", context = "context", ops = "ops");
    layout!(
        FidOps,
        "fi_ops",
        size = "size",
        close = "close",
        bind = "bind",
        control = "control",
        ops_open = "ops_open",
        tostr = "tostr",
        ops_set = "ops_set"
    );
    layout!(
        FiProvider,
        "fi_provider",
        version = "version",
        fi_version = "fi_version",
        context = "context",
        name = "name",
        getinfo = "getinfo",
        fabric = "fabric",
        cleanup = "cleanup"
    );
    layout!(
        FiInfo,
        "fi_info",
        next = "next",
        caps = "caps",
        mode = "mode",
        addr_format = "addr_format",
        src_addrlen = "src_addrlen",
        dest_addrlen = "dest_addrlen",
        src_addr = "src_addr",
        dest_addr = "dest_addr",
        handle = "handle",
        tx_attr = "tx_attr",
        rx_attr = "rx_attr",
        ep_attr = "ep_attr",
        domain_attr = "domain_attr",
        fabric_attr = "fabric_attr",
        nic = "nic"
    );
    layout!(
        FiTxAttr,
        "fi_tx_attr",
        caps = "caps",
        mode = "mode",
        op_flags = "op_flags",
        msg_order = "msg_order",
        comp_order = "comp_order",
        inject_size = "inject_size",
        size = "size",
        iov_limit = "iov_limit",
        rma_iov_limit = "rma_iov_limit",
        tclass = "tclass"
    );
    layout!(
        FiRxAttr,
        "fi_rx_attr",
        caps = "caps",
        mode = "mode",
        op_flags = "op_flags",
        msg_order = "msg_order",
        comp_order = "comp_order",
        total_buffered_recv = "total_buffered_recv",
        size = "size",
        iov_limit = "iov_limit"
    );
    layout!(
        FiEpAttr,
        "fi_ep_attr",
        type_ = "type",
        protocol = "protocol",
        protocol_version = "protocol_version",
        max_msg_size = "max_msg_size",
        msg_prefix_size = "msg_prefix_size",
        max_order_raw_size = "max_order_raw_size",
        max_order_war_size = "max_order_war_size",
        max_order_waw_size = "max_order_waw_size",
        mem_tag_format = "mem_tag_format",
        tx_ctx_cnt = "tx_ctx_cnt",
        rx_ctx_cnt = "rx_ctx_cnt",
        auth_key_size = "auth_key_size",
        auth_key = "auth_key"
    );
    layout!(
        FiDomainAttr,
        "fi_domain_attr",
        domain = "domain",
        name = "name",
        threading = "threading",
        control_progress = "control_progress",
        data_progress = "data_progress",
        resource_mgmt = "resource_mgmt",
        av_type = "av_type",
        mr_mode = "mr_mode",
        mr_key_size = "mr_key_size",
        cq_data_size = "cq_data_size",
        cq_cnt = "cq_cnt",
        ep_cnt = "ep_cnt",
        tx_ctx_cnt = "tx_ctx_cnt",
        rx_ctx_cnt = "rx_ctx_cnt",
        max_ep_tx_ctx = "max_ep_tx_ctx",
        max_ep_rx_ctx = "max_ep_rx_ctx",
        max_ep_stx_ctx = "max_ep_stx_ctx",
        max_ep_srx_ctx = "max_ep_srx_ctx",
        cntr_cnt = "cntr_cnt",
        mr_iov_limit = "mr_iov_limit",
        caps = "caps",
        mode = "mode",
        auth_key = "auth_key",
        auth_key_size = "auth_key_size",
        max_err_data = "max_err_data",
        mr_cnt = "mr_cnt",
        tclass = "tclass"
    );
    layout!(
        FiFabricAttr,
        "fi_fabric_attr",
        fabric = "fabric",
        name = "name",
        prov_name = "prov_name",
        prov_version = "prov_version",
        api_version = "api_version"
    );
    layout!(
        FidFabric,
        "fid_fabric",
        fid = "fid",
        ops = "ops",
        api_version = "api_version"
    );
    layout!(
        FabricOps,
        "fi_ops_fabric",
        size = "size",
        domain = "domain",
        passive_ep = "passive_ep",
        eq_open = "eq_open",
        wait_open = "wait_open",
        trywait = "trywait",
        domain2 = "domain2"
    );
    layout!(FidDomain, "fid_domain", fid = "fid", ops = "ops", mr = "mr");
    layout!(
        DomainOps,
        "fi_ops_domain",
        size = "size",
        av_open = "av_open",
        cq_open = "cq_open",
        endpoint = "endpoint",
        scalable_ep = "scalable_ep",
        cntr_open = "cntr_open",
        poll_open = "poll_open",
        stx_ctx = "stx_ctx",
        srx_ctx = "srx_ctx",
        query_atomic = "query_atomic",
        query_collective = "query_collective",
        endpoint2 = "endpoint2"
    );
    layout!(
        MrOps,
        "fi_ops_mr",
        size = "size",
        reg = "reg",
        regv = "regv",
        regattr = "regattr"
    );
    layout!(
        FiMrAttr,
        "fi_mr_attr",
        mr_iov = "mr_iov",
        iov_count = "iov_count",
        access = "access",
        offset = "offset",
        requested_key = "requested_key",
        context = "context",
        auth_key_size = "auth_key_size",
        auth_key = "auth_key",
        iface = "iface",
        device = "device"
    );
    layout!(FidMr, "fid_mr", fid = "fid", mem_desc = "mem_desc", key = "key");
    layout!(
        FiAvAttr,
        "fi_av_attr",
        type_ = "type",
        rx_ctx_bits = "rx_ctx_bits",
        count = "count",
        ep_per_node = "ep_per_node",
        name = "name",
        map_addr = "map_addr",
        flags = "flags"
    );
    layout!(FidAv, "fid_av", fid = "fid", ops = "ops");
    layout!(
        AvOps,
        "fi_ops_av",
        size = "size",
        insert = "insert",
        insertsvc = "insertsvc",
        insertsym = "insertsym",
        remove = "remove",
        lookup = "lookup",
        straddr = "straddr",
        av_set = "av_set"
    );
    layout!(
        FiCqAttr,
        "fi_cq_attr",
        size = "size",
        flags = "flags",
        format = "format",
        wait_obj = "wait_obj",
        signaling_vector = "signaling_vector",
        wait_cond = "wait_cond",
        wait_set = "wait_set"
    );
    layout!(FidCq, "fid_cq", fid = "fid", ops = "ops");
    layout!(
        CqOps,
        "fi_ops_cq",
        size = "size",
        read = "read",
        readfrom = "readfrom",
        readerr = "readerr",
        sread = "sread",
        sreadfrom = "sreadfrom",
        signal = "signal",
        strerror = "strerror"
    );
    layout!(
        FiCqTaggedEntry,
        "fi_cq_tagged_entry",
        op_context = "op_context",
        flags = "flags",
        len = "len",
        buf = "buf",
        data = "data",
        tag = "tag"
    );
    layout!(
        FiCqErrEntry,
        "fi_cq_err_entry",
        op_context = "op_context",
        flags = "flags",
        len = "len",
        buf = "buf",
        data = "data",
        tag = "tag",
        olen = "olen",
        err = "err",
        prov_errno = "prov_errno",
        err_data = "err_data",
        err_data_size = "err_data_size"
    );
    layout!(
        FiCntrAttr,
        "fi_cntr_attr",
        events = "events",
        wait_obj = "wait_obj",
        wait_set = "wait_set",
        flags = "flags"
    );
    layout!(FidCntr, "fid_cntr", fid = "fid", ops = "ops");
    layout!(
        CntrOps,
        "fi_ops_cntr",
        size = "size",
        read = "read",
        readerr = "readerr",
        add = "add",
        set = "set",
        wait = "wait",
        adderr = "adderr",
        seterr = "seterr"
    );
    layout!(
        FiEqAttr,
        "fi_eq_attr",
        size = "size",
        flags = "flags",
        wait_obj = "wait_obj",
        signaling_vector = "signaling_vector",
        wait_set = "wait_set"
    );
    layout!(FidEq, "fid_eq", fid = "fid", ops = "ops");
    layout!(
        EqOps,
        "fi_ops_eq",
        size = "size",
        read = "read",
        readerr = "readerr",
        write = "write",
        sread = "sread",
        strerror = "strerror"
    );
    layout!(
        FidEp,
        "fid_ep",
        fid = "fid",
        ops = "ops",
        cm = "cm",
        msg = "msg",
        rma = "rma",
        tagged = "tagged",
        atomic = "atomic",
        collective = "collective"
    );
    layout!(
        EpOps,
        "fi_ops_ep",
        size = "size",
        cancel = "cancel",
        getopt = "getopt",
        setopt = "setopt",
        tx_ctx = "tx_ctx",
        rx_ctx = "rx_ctx",
        rx_size_left = "rx_size_left",
        tx_size_left = "tx_size_left"
    );
    layout!(
        CmOps,
        "fi_ops_cm",
        size = "size",
        setname = "setname",
        getname = "getname",
        getpeer = "getpeer",
        connect = "connect",
        listen = "listen",
        accept = "accept",
        reject = "reject",
        shutdown = "shutdown",
        join = "join"
    );
    layout!(
        FiMsg,
        "fi_msg",
        msg_iov = "msg_iov",
        desc = "desc",
        iov_count = "iov_count",
        addr = "addr",
        context = "context",
        data = "data"
    );
    layout!(
        FiMsgTagged,
        "fi_msg_tagged",
        msg_iov = "msg_iov",
        desc = "desc",
        iov_count = "iov_count",
        addr = "addr",
        tag = "tag",
        ignore = "ignore",
        context = "context",
        data = "data"
    );
    layout!(
        MsgOps,
        "fi_ops_msg",
        size = "size",
        recv = "recv",
        recvv = "recvv",
        recvmsg = "recvmsg",
        send = "send",
        sendv = "sendv",
        sendmsg = "sendmsg",
        inject = "inject",
        senddata = "senddata",
        injectdata = "injectdata"
    );
    layout!(
        TaggedOps,
        "fi_ops_tagged",
        size = "size",
        recv = "recv",
        recvv = "recvv",
        recvmsg = "recvmsg",
        send = "send",
        sendv = "sendv",
        sendmsg = "sendmsg",
        inject = "inject",
        senddata = "senddata",
        injectdata = "injectdata"
    );
    layout!(FiRmaIov, "fi_rma_iov", addr = "addr", len = "len", key = "key");
    layout!(
        FiMsgRma,
        "fi_msg_rma",
        msg_iov = "msg_iov",
        desc = "desc",
        iov_count = "iov_count",
        addr = "addr",
        rma_iov = "rma_iov",
        rma_iov_count = "rma_iov_count",
        context = "context",
        data = "data"
    );
    layout!(
        RmaOps,
        "fi_ops_rma",
        size = "size",
        read = "read",
        readv = "readv",
        readmsg = "readmsg",
        write = "write",
        writev = "writev",
        writemsg = "writemsg",
        inject = "inject",
        writedata = "writedata",
        injectdata = "injectdata"
    );
    layout!(FiIoc, "fi_ioc", addr = "addr", count = "count");
    layout!(FiRmaIoc, "fi_rma_ioc", addr = "addr", count = "count", key = "key");
    layout!(FiAtomicAttr, "fi_atomic_attr", count = "count", size = "size");
    layout!(
        FiMsgAtomic,
        "fi_msg_atomic",
        msg_iov = "msg_iov",
        desc = "desc",
        iov_count = "iov_count",
        addr = "addr",
        rma_iov = "rma_iov",
        rma_iov_count = "rma_iov_count",
        datatype = "datatype",
        op = "op",
        context = "context",
        data = "data"
    );
    layout!(
        AtomicOps,
        "fi_ops_atomic",
        size = "size",
        write = "write",
        writev = "writev",
        writemsg = "writemsg",
        inject = "inject",
        readwrite = "readwrite",
        readwritev = "readwritev",
        readwritemsg = "readwritemsg",
        compwrite = "compwrite",
        compwritev = "compwritev",
        compwritemsg = "compwritemsg",
        writevalid = "writevalid",
        readwritevalid = "readwritevalid",
        compwritevalid = "compwritevalid"
    );
    list
}

/// Lists the numbers.
fn numbers() -> Vec<(&'static str, u64)> {
    macro_rules! numbers {
        ($($name:ident),* $(,)?) => { vec![$((stringify!($name), $name as u64)),*] };
    }
    numbers![
        FI_ADDR_UNSPEC,
        FI_ADDR_NOTAVAIL,
        FI_ENOENT,
        FI_EIO,
        FI_EAGAIN,
        FI_EACCES,
        FI_EBUSY,
        FI_ENODEV,
        FI_EINVAL,
        FI_ENOSYS,
        FI_ENOMSG,
        FI_ENODATA,
        FI_EOPNOTSUPP,
        FI_EMSGSIZE,
        FI_ENOPROTOOPT,
        FI_ECONNRESET,
        FI_ETIMEDOUT,
        FI_ECONNREFUSED,
        FI_EHOSTUNREACH,
        FI_ECANCELED,
        FI_ETOOSMALL,
        FI_EOPBADSTATE,
        FI_EAVAIL,
        FI_EBADFLAGS,
        FI_ENOCQ,
        FI_ETRUNC,
        FI_ENOAV,
        FI_MSG,
        FI_RMA,
        FI_TAGGED,
        FI_READ,
        FI_WRITE,
        FI_RECV,
        FI_SEND,
        FI_REMOTE_READ,
        FI_REMOTE_WRITE,
        FI_MULTI_RECV,
        FI_REMOTE_CQ_DATA,
        FI_MORE,
        FI_PEEK,
        FI_FENCE,
        FI_COMPLETION,
        FI_INJECT,
        FI_INJECT_COMPLETE,
        FI_TRANSMIT_COMPLETE,
        FI_DELIVERY_COMPLETE,
        FI_MATCH_COMPLETE,
        FI_LOCAL_COMM,
        FI_REMOTE_COMM,
        FI_SOURCE,
        FI_DISCARD,
        FI_CLAIM,
        FI_DIRECTED_RECV,
        FI_SELECTIVE_COMPLETION,
        FI_ORDER_SAS,
        FI_ATOMIC,
        FI_FETCH_ATOMIC,
        FI_COMPARE_ATOMIC,
        FI_ORDER_ATOMIC_RAR,
        FI_ORDER_ATOMIC_RAW,
        FI_ORDER_ATOMIC_WAR,
        FI_ORDER_ATOMIC_WAW,
        FI_INT8,
        FI_UINT8,
        FI_INT16,
        FI_UINT16,
        FI_INT32,
        FI_UINT32,
        FI_INT64,
        FI_UINT64,
        FI_FLOAT,
        FI_DOUBLE,
        FI_MIN,
        FI_MAX,
        FI_SUM,
        FI_PROD,
        FI_LOR,
        FI_LAND,
        FI_BOR,
        FI_BAND,
        FI_LXOR,
        FI_BXOR,
        FI_ATOMIC_READ,
        FI_ATOMIC_WRITE,
        FI_CSWAP,
        FI_CSWAP_NE,
        FI_CSWAP_LE,
        FI_CSWAP_LT,
        FI_CSWAP_GE,
        FI_CSWAP_GT,
        FI_MSWAP,
        FI_MR_BASIC,
        FI_MR_VIRT_ADDR,
        FI_MR_ALLOCATED,
        FI_MR_PROV_KEY,
        FI_KEY_NOTAVAIL,
        FI_EP_RDM,
        FI_AV_MAP,
        FI_AV_TABLE,
        FI_PROGRESS_AUTO,
        FI_PROGRESS_MANUAL,
        FI_THREAD_SAFE,
        FI_RM_ENABLED,
        FI_PROV_SPECIFIC,
        FI_CLASS_FABRIC,
        FI_CLASS_DOMAIN,
        FI_CLASS_EP,
        FI_CLASS_AV,
        FI_CLASS_MR,
        FI_CLASS_EQ,
        FI_CLASS_CQ,
        FI_CLASS_CNTR,
        FI_GETOPSFLAG,
        FI_SETOPSFLAG,
        FI_ENABLE,
        FI_OPT_ENDPOINT,
        FI_OPT_MIN_MULTI_RECV,
        FI_WAIT_NONE,
        FI_WAIT_UNSPEC,
        FI_WAIT_YIELD,
        FI_CQ_FORMAT_UNSPEC,
        FI_CQ_FORMAT_CONTEXT,
        FI_CQ_FORMAT_MSG,
        FI_CQ_FORMAT_DATA,
        FI_CQ_FORMAT_TAGGED,
    ]
}

#[test]
fn structures_and_numbers_are_those_of_libfabrics_headers() {
    let mut program = String::from(
        "#include <stddef.h>\n#include <stdio.h>\n#include <rdma/fabric.h>\n#include <rdma/fi_atomic.h>\n\
         #include <rdma/fi_cm.h>\n#include <rdma/fi_domain.h>\n#include <rdma/fi_endpoint.h>\n#include <rdma/fi_eq.h>\n\
         #include <rdma/fi_errno.h>\n#include <rdma/fi_rma.h>\n#include <rdma/fi_tagged.h>\n\
         #include <rdma/providers/fi_prov.h>\nint main(void) {\n",
    );
    let layouts = layouts();
    let numbers = numbers();
    let expected: BTreeMap<&str, u64> = layouts
        .iter()
        .map(|(name, value)| (name.as_str(), *value as u64))
        .chain(numbers.iter().copied())
        .collect();
    for name in expected.keys() {
        writeln!(
            program,
            "    printf(\"%s=%llu\\n\", \"{name}\", (unsigned long long) ({name}));"
        )
        .unwrap();
    }
    program.push_str("    return 0;\n}\n");
    let folder = tempfile::tempdir().unwrap();
    let (source, binary) = (folder.path().join("layout.c"), folder.path().join("layout"));
    fs::write(&source, program).unwrap();
    let compiled = Command::new("gcc").arg("-o").args([&binary, &source]).status();
    assert!(
        compiled.is_ok_and(|status| status.success()),
        "gcc and the headers of libfabric-dev are needed"
    );
    let output = Command::new(&binary).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let theirs: BTreeMap<&str, u64> = said
        .lines()
        .filter_map(|line| line.split_once('='))
        .map(|(name, value)| (name, value.parse().unwrap()))
        .collect();
    assert_eq!(theirs, expected);
}
