//! The Lua dissector that lets tshark and Wireshark decode MXoE frames and card control frames, as text to be written
//! beside a capture: `tshark -X lua_script:weft.lua -r capture.pcapng`.
//!
//! The decoder itself is `weft.lua`; this crate only carries it, and its tests compare it with the decoders of the
//! workspace.
#![forbid(unsafe_code)]

/// File name to store the script under.
pub const FILE_NAME: &str = "weft.lua";

/// Text of the script.
pub const SCRIPT: &str = include_str!("../weft.lua");
