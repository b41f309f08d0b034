//! Why requests to the data plane are refused.

/// Why a request was refused; nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FabricError {
    /// No port has this name.
    #[error("there is no port {0:?}")]
    NoSuchPort(String),
    /// No switch has this name.
    #[error("there is no switch {0:?}")]
    NoSuchSwitch(String),
    /// Two ports would have the same name.
    #[error("a port named {0:?} exists already")]
    PortExists(String),
    /// A value does not make sense; the sentence says which and why.
    #[error("{0}")]
    Invalid(String),
    /// A card's flight recorder has one reader at a time.
    #[error("port {0:?} is being traced already")]
    Traced(String),
    /// A port can be captured by one reader at a time.
    #[error("port {0:?} is being captured already")]
    Captured(String),
}

pub(super) fn invalid(error: impl std::fmt::Display) -> FabricError {
    FabricError::Invalid(error.to_string())
}
