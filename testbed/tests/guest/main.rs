//! Tests of real guests without a card: the minimal image, QEMU, the agent and its channel. They need QEMU, a network
//! (or a filled cache) for the first image, and weft's programs for guests (`WEFT_BIN_DIR`).

mod accel;
mod boot;
mod commands;
mod image;
mod support;
