//! The one node of a program.

use std::sync::{PoisonError, RwLock};

use lci_port::Lci;

use crate::boundary::Failure;

static NODE: RwLock<Option<Lci>> = RwLock::new(None);

/// The node of this program.
pub(crate) fn node() -> Result<Lci, Failure> {
    let node = NODE.read().unwrap_or_else(PoisonError::into_inner);
    let node = node
        .clone()
        .ok_or_else(|| Failure("there is no node; lci_init makes one".to_owned()))?;
    if !node.is_own() {
        return Err(Failure(
            "the node belongs to the process that called lci_init, of which this one is a child".to_owned(),
        ));
    }
    Ok(node)
}

/// Makes `node` the node of this program, if it has none.
pub(crate) fn set(node: Lci) -> Result<(), Failure> {
    let mut slot = NODE.write().unwrap_or_else(PoisonError::into_inner);
    if slot.is_some() {
        return Err(Failure(
            "this program is a node already; lci_finalize ends it".to_owned(),
        ));
    }
    *slot = Some(node);
    Ok(())
}

/// Takes the node out.
pub(crate) fn take() -> Option<Lci> {
    NODE.write().unwrap_or_else(PoisonError::into_inner).take()
}
