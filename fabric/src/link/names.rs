//! The names that the two levels of a queue have in JSON, flat beside the other settings of a link: `queue_bytes`, `ecn_ns`, …
//!
//! In a change, the three names of a level are one setting: if one of them is given, those that are not are lifted.

use super::QueueLevel;

/// The modules that write a level in settings, and read and write it in a change. If `$zero_is_none`, a level of 0 in a change stands
/// for none, which could not be told from no change otherwise.
macro_rules! level {
    ($settings:ident, $change:ident: $bytes:ident, $frames:ident, $ns:ident, $zero_is_none:literal) => {
        pub(super) mod $settings {
            use serde::{Deserialize, Serialize, Serializer};

            use super::QueueLevel;

            #[derive(Serialize, Deserialize)]
            pub(in super::super) struct Names {
                #[serde(skip_serializing_if = "Option::is_none")]
                pub $bytes: Option<u64>,
                #[serde(skip_serializing_if = "Option::is_none")]
                pub $frames: Option<u32>,
                #[serde(skip_serializing_if = "Option::is_none")]
                pub $ns: Option<u64>,
            }

            pub(in super::super) fn serialize<S: Serializer>(
                level: &QueueLevel,
                serializer: S,
            ) -> Result<S::Ok, S::Error> {
                let names = Names {
                    $bytes: level.bytes,
                    $frames: level.frames,
                    $ns: level.ns,
                };
                names.serialize(serializer)
            }
        }

        pub(super) mod $change {
            use serde::{Deserialize, Deserializer, Serializer};

            use super::{QueueLevel, $settings::Names};

            pub(in super::super) fn serialize<S: Serializer>(
                level: &Option<QueueLevel>,
                serializer: S,
            ) -> Result<S::Ok, S::Error> {
                let level = match *level {
                    Some(QueueLevel::NONE) if $zero_is_none => QueueLevel::bytes(0),
                    level => level.unwrap_or_default(),
                };
                super::$settings::serialize(&level, serializer)
            }

            pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
                deserializer: D,
            ) -> Result<Option<QueueLevel>, D::Error> {
                let names = Names::deserialize(deserializer)?;
                let level = QueueLevel {
                    bytes: names.$bytes,
                    frames: names.$frames,
                    ns: names.$ns,
                };
                let counts = QueueLevel {
                    bytes: level.bytes.filter(|bytes| !$zero_is_none || *bytes > 0),
                    frames: level.frames.filter(|frames| !$zero_is_none || *frames > 0),
                    ns: level.ns.filter(|ns| !$zero_is_none || *ns > 0),
                };
                Ok((level != QueueLevel::NONE).then_some(counts))
            }
        }
    };
}

level!(queue, changed_queue: queue_bytes, queue_frames, queue_ns, false);
level!(ecn, changed_ecn: ecn_bytes, ecn_frames, ecn_ns, true);
