//! The dialect of an interface: sizes, marking and EtherType, which two peers must have been given alike, because nothing
//! on the wire announces them.

mod decode;
mod emit;
mod view;

pub use decode::WireError;
pub use emit::EmitError;
use ether::EtherType;
pub use view::{FrameView, Head};

use super::Sizes;

/// Everything about the wire that is configured and not announced: how to read and write frames of one interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Dialect {
    sizes: Sizes,
    marks: bool,
    ether_type: EtherType,
}

impl Dialect {
    /// These sizes, the usual EtherType, marking off.
    #[inline]
    pub const fn new(sizes: Sizes) -> Self {
        Self {
            sizes,
            marks: false,
            ether_type: EtherType::MXOE,
        }
    }

    /// This dialect with marking on or off. Off: bit 7 is never written, and a frame that carries it is of unknown type.
    #[inline]
    #[must_use]
    pub const fn with_marks(mut self, marks: bool) -> Self {
        self.marks = marks;
        self
    }

    /// This dialect under another EtherType (native mode of Open-MX can be built so).
    #[inline]
    #[must_use]
    pub const fn with_ether_type(mut self, ether_type: EtherType) -> Self {
        self.ether_type = ether_type;
        self
    }

    /// The sizes.
    #[inline]
    pub const fn sizes(&self) -> &Sizes {
        &self.sizes
    }

    /// Whether the mark is understood and written.
    #[inline]
    pub const fn marks(&self) -> bool {
        self.marks
    }

    /// The EtherType of the frames.
    #[inline]
    pub const fn ether_type(&self) -> EtherType {
        self.ether_type
    }
}
