//! The client of a running `vnicd`: the crate `vnicd_protocol` under the names that it has here.

pub use vnicd_protocol::{
    self as report, Drained, Info, PortPacketsGiven, PortTimer, SettingsEvent, TrunkDirection,
    client::{Capture, CaptureEnd, Ends, VnicdClient, VnicdError, Watch, trace},
    config,
    request::GroupChange,
};
