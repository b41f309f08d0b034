//! Tests of whole labs through the `weft` binary: real guests, real `vnicd`. They need QEMU, weft's programs
//! (`WEFT_BIN_DIR`) and a network or a filled cache for the first guest image; `WEFT_QEMU_NEWER` names a second QEMU to
//! run the tests with. Run them with one test thread: two guests and their switch share two cores already.

mod bypass;
mod cables;
mod card_engine;
mod cards;
mod commands;
mod copies;
mod counts;
mod demo;
mod esp;
mod killed;
mod lacp;
mod lci;
mod lci_bad_input;
mod life;
mod messages;
mod migration;
mod mpi;
mod multicast;
mod nic;
mod own_images;
mod readme;
mod reconcile;
mod recorder;
mod refusals;
mod reload;
mod resume;
mod routers;
mod save;
mod sessions;
mod steering;
mod support;
mod switches;
mod trace_format;
mod userspace;
mod watchdog;
