//! The Lua dissector that makes tshark and Wireshark name MXoE frames and card control frames, as text to be written
//! beside a capture: `tshark -X lua_script:weft.lua -r capture.pcapng`.
//!
//! The decoder itself is `weft.lua`; this crate only carries it, and its tests hold it against our own decoders.
#![forbid(unsafe_code)]

/// Name under which the script is best stored.
pub const FILE_NAME: &str = "weft.lua";

/// The script.
pub const SCRIPT: &str = include_str!("../weft.lua");
