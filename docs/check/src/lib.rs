//! Tests that hold the documentation to its word: the Rust examples in READMEs and in the book are compiled and run, links and
//! cited documents exist, and the pages made from the code are up to date. Commands that need a running lab are tested in `testbed/tests/lab`.
#![forbid(unsafe_code)]

/// The Rust code in documents, as doctests.
#[cfg(doctest)]
mod examples {
    #[doc = include_str!("../../../fabric/ether/README.md")]
    struct Ether;
    #[doc = include_str!("../../../fabric/README.md")]
    struct Fabric;
    #[doc = include_str!("../../../fabric/settings/README.md")]
    struct Settings;
    #[doc = include_str!("../../../guest-driver/authority/README.md")]
    struct Authority;
    #[doc = include_str!("../../../guest-driver/card-control/README.md")]
    struct CardControl;
    #[doc = include_str!("../../../guest-driver/esp/README.md")]
    struct Esp;
    #[doc = include_str!("../../../guest-driver/lci/README.md")]
    struct Lci;
    #[doc = include_str!("../../../guest-driver/mxoe/README.md")]
    struct Mxoe;
    #[doc = include_str!("../../../guest-driver/netif/README.md")]
    struct Netif;
    #[doc = include_str!("../../../guest-driver/omx/README.md")]
    struct Omx;
    #[doc = include_str!("../../book/src/strategy.md")]
    struct WritingAStrategy;
    #[doc = include_str!("../../../vnic/protocol/README.md")]
    struct VnicdProtocol;
}
