//! The verbs about whole labs.

mod background;
pub(super) mod clean;
pub(super) mod deploy;
pub(super) mod down;
pub(super) mod import;
pub(super) mod init;
mod keep;
pub(super) mod ps;
mod reconcile;
mod restore;
pub(super) mod save;
pub(super) mod up;
pub(super) mod wait;
