//! Settings of cables that are more than one quantity: limits of a queue, models of loss, kinds of jitter. Words and
//! order are those of `tc`. The crate `fabric` applies them.

use std::{fmt, str::FromStr};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{Error, MapAccess, Visitor, value::MapAccessDeserializer},
};

use super::units::{Share, Size, Span, written_as_text};
use vnicd_protocol::{JitterDistribution, LinkChange, LinkSettings, QueueLevel};

/// Largest number of packets in a limit.
const PACKETS_MAX: u32 = vnicd_protocol::QUEUE_FRAMES_MAX;

/// How full a queue may be. Written `64K`, `100 packets` or `20ms`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueLimit {
    /// Bytes, as on the wire.
    Bytes(u64),
    /// Packets, of any size.
    Packets(u32),
    /// Nanoseconds until the last is sent.
    Time(u64),
}

impl QueueLimit {
    /// Converts a level to a limit, in the first of its units.
    fn of(level: QueueLevel) -> Option<Self> {
        let QueueLevel { bytes, frames, ns } = level;
        bytes
            .map(Self::Bytes)
            .or(frames.map(Self::Packets))
            .or(ns.map(Self::Time))
    }

    /// Returns the level at which the limit is reached.
    #[must_use]
    pub fn level(self) -> QueueLevel {
        match self {
            Self::Bytes(bytes) => QueueLevel::bytes(bytes),
            Self::Packets(packets) => QueueLevel::frames(packets),
            Self::Time(ns) => QueueLevel::nanos(ns),
        }
    }

    /// Returns the queue limit in force.
    #[must_use]
    pub fn of_queue(settings: &LinkSettings) -> Option<Self> {
        Self::of(settings.queue_max)
    }

    /// Returns whether a queue that is limited to `limit` never grows beyond this, as far as equal units can tell.
    #[must_use]
    pub fn is_beyond(self, limit: Self) -> bool {
        match (self, limit) {
            (Self::Bytes(this), Self::Bytes(limit)) | (Self::Time(this), Self::Time(limit)) => this >= limit,
            (Self::Packets(this), Self::Packets(limit)) => this >= limit,
            _ => false,
        }
    }
}

impl FromStr for QueueLimit {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic()).trim_end();
        if let "packet" | "packets" | "frame" | "frames" = text[number.len()..].trim() {
            if let Ok(packets) = number.parse::<u64>() {
                return match u32::try_from(packets) {
                    Ok(packets) if packets <= PACKETS_MAX => Ok(Self::Packets(packets)),
                    _ => Err(format!(
                        "\"{text}\" are too many: write at most \"{PACKETS_MAX} packets\", or a size or a time"
                    )),
                };
            }
        } else if let Ok(size) = text.parse::<Size>() {
            return Ok(Self::Bytes(size.0));
        } else if let Ok(span) = text.parse::<Span>() {
            return Ok(Self::Time(span.0));
        }
        Err(format!(
            "\"{text}\" is not a length of a queue: write it as \"64K\", \"100 packets\" or \"20ms\""
        ))
    }
}

impl fmt::Display for QueueLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(bytes) => Size(*bytes).fmt(f),
            Self::Packets(1) => f.write_str("1 packet"),
            Self::Packets(packets) => write!(f, "{packets} packets"),
            Self::Time(ns) => Span(*ns).fmt(f),
        }
    }
}

/// The length of a queue above which packets are marked (ECN). Written like a limit, or `off`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EcnThreshold(pub Option<QueueLimit>);

impl EcnThreshold {
    /// Returns the threshold in force.
    #[must_use]
    pub fn of(settings: &LinkSettings) -> Self {
        Self(QueueLimit::of(settings.ecn_above))
    }

    /// Returns the level above which packets are marked.
    #[must_use]
    pub fn level(self) -> QueueLevel {
        self.0.map_or(QueueLevel::NONE, QueueLimit::level)
    }
}

impl FromStr for EcnThreshold {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "off" => Ok(Self(None)),
            _ => match text.parse()? {
                QueueLimit::Bytes(0) | QueueLimit::Packets(0) | QueueLimit::Time(0) => Err(format!(
                    "\"{text}\" is no threshold: write \"off\", or \"1B\" to mark every packet that has to wait"
                )),
                limit => Ok(Self(Some(limit))),
            },
        }
    }
}

impl fmt::Display for EcnThreshold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            None => f.write_str("off"),
            Some(limit) => limit.fmt(f),
        }
    }
}

const LEVEL: &str = "[0-9]+(\\.[0-9]{1,9})? ?(B|k|K|KiB|M|MiB|G|GiB|ns|us|µs|ms|s)|[0-9]+ ?(packet|frame)s?";

written_as_text!(
    QueueLimit,
    "a size, a number of packets or a time",
    format!("^(0|{LEVEL})$"),
    "100 packets"
);
written_as_text!(
    EcnThreshold,
    "a size, a number of packets or a time",
    format!("^(off|{LEVEL})$"),
    "32K"
);

/// Which frames are lost by chance. Written `0.1%`, or as `tc` has the Gilbert-Elliott model: `gemodel P [R [1-H [1-K]]]`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Loss {
    /// Share of the frames outside of bursts that are lost: 1-k.
    pub outside: Share,
    /// Probability that a burst begins behind a frame: p; 0 means that there are none.
    pub enter: Share,
    /// Probability that a burst ends behind a frame: r.
    pub leave: Share,
    /// Share of the frames in a burst that are lost: 1-h.
    pub in_burst: Share,
}

const ALL: Share = Share(1_000_000);

impl Loss {
    /// Makes a model in which every frame has an equal chance of loss.
    fn even(outside: Share) -> Self {
        Self {
            outside,
            ..Self::default()
        }
    }

    /// Makes a model with bursts; missing values are as in `tc`: no memory, all lost in a burst, none outside.
    fn bursts(enter: Share, leave: Option<Share>, in_burst: Option<Share>, outside: Option<Share>) -> Self {
        Self {
            outside: outside.unwrap_or_default(),
            enter,
            leave: leave.unwrap_or(Share(ALL.0 - enter.0)),
            in_burst: in_burst.unwrap_or(ALL),
        }
    }

    /// Returns the model in force.
    #[must_use]
    pub fn of(settings: &LinkSettings) -> Self {
        Self {
            outside: Share(settings.loss_ppm),
            enter: Share(settings.loss_enter_ppm),
            leave: Share(settings.loss_leave_ppm),
            in_burst: Share(settings.loss_in_burst_ppm),
        }
    }

    /// Replaces the former model by this one.
    pub fn set(self, change: &mut LinkChange) {
        change.loss_ppm = Some(self.outside.0);
        change.loss_enter_ppm = Some(self.enter.0);
        change.loss_leave_ppm = Some(self.leave.0);
        change.loss_in_burst_ppm = Some(self.in_burst.0);
    }
}

impl FromStr for Loss {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let words: Vec<_> = text.split([' ', ',']).filter(|word| !word.is_empty()).collect();
        let Some((&"gemodel", shares)) = words.split_first() else {
            return text.parse().map(Self::even);
        };
        let shares = shares
            .iter()
            .map(|word| word.parse())
            .collect::<Result<Vec<Share>, _>>()?;
        let at = |index: usize| shares.get(index).copied();
        match at(0) {
            Some(enter) if shares.len() <= 4 => Ok(Self::bursts(enter, at(1), at(2), at(3))),
            _ => Err(format!(
                "\"{text}\" is not a loss model: write it as \"gemodel 1% 25%\" or \"gemodel P R 1-H 1-K\""
            )),
        }
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.enter {
            Share(0) => self.outside.fmt(f),
            enter => write!(f, "gemodel {enter} {} {} {}", self.leave, self.in_burst, self.outside),
        }
    }
}

/// The Gilbert-Elliott model as a table.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "BurstLoss")]
struct LossTable {
    /// Probability that a burst of loss begins behind a frame (p).
    enter: Share,
    /// Probability that it ends behind a frame (r; default: what `enter` leaves of 100%).
    leave: Option<Share>,
    /// Probability that a frame in a burst is lost (1-h; default `100%`).
    in_burst: Option<Share>,
    /// Probability that a frame outside of one is lost (1-k; default `0`).
    outside: Option<Share>,
}

impl<'de> Deserialize<'de> for Loss {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextOrTable;
        impl<'de> Visitor<'de> for TextOrTable {
            type Value = Loss;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(
                    "a probability in quotes, such as \"0.1%\", or a table, such as { enter = \"1%\", leave = \"25%\" }",
                )
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<Loss, E> {
                text.parse().map_err(E::custom)
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Loss, A::Error> {
                let table = LossTable::deserialize(MapAccessDeserializer::new(map))?;
                Ok(Loss::bursts(table.enter, table.leave, table.in_burst, table.outside))
            }
        }
        deserializer.deserialize_any(TextOrTable)
    }
}

impl JsonSchema for Loss {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Loss".into()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let table = generator.subschema_for::<LossTable>();
        let share = super::units::SHARE;
        json_schema!({
            "anyOf": [
                {
                    "type": "string",
                    "pattern": format!("^({share}|gemodel([ ,]+{share}){{1,4}})$"),
                    "examples": ["0.1%", "gemodel 1% 25%"]
                },
                table
            ]
        })
    }
}

/// How the delays of frames spread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Distribution {
    /// Evenly, up to the jitter before and behind the delay.
    Uniform,
    /// The bell curve, with the jitter as its standard deviation.
    Normal,
    /// A long tail of late frames (shape 3), with the jitter as its standard deviation.
    Pareto,
}

impl From<Distribution> for JitterDistribution {
    fn from(distribution: Distribution) -> Self {
        match distribution {
            Distribution::Uniform => Self::Uniform,
            Distribution::Normal => Self::Normal,
            Distribution::Pareto => Self::Pareto,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_are_limited_in_the_unit_that_is_written() {
        for (text, limit) in [
            ("64K", QueueLimit::Bytes(65_536)),
            ("0B", QueueLimit::Bytes(0)),
            ("100 packets", QueueLimit::Packets(100)),
            ("1packet", QueueLimit::Packets(1)),
            ("7 frames", QueueLimit::Packets(7)),
            ("20ms", QueueLimit::Time(20_000_000)),
        ] {
            assert_eq!(text.parse(), Ok(limit));
            assert_eq!(limit.to_string().parse(), Ok(limit));
        }
        for text in [
            "",
            "100",
            "packets",
            "-1 packets",
            "1.5 packets",
            "65537 packets",
            "99999999999 packets",
            "5 cars",
            "µ",
        ] {
            assert!(text.parse::<QueueLimit>().is_err(), "{text}");
        }
        assert_eq!("off".parse(), Ok(EcnThreshold(None)));
        assert_eq!("5ms".parse(), Ok(EcnThreshold(Some(QueueLimit::Time(5_000_000)))));
        assert!("0B".parse::<EcnThreshold>().is_err());
    }

    #[test]
    fn losses_are_written_as_in_tc_or_as_a_table() {
        let bursts = |enter, leave, in_burst, outside| Loss {
            outside: Share(outside),
            enter: Share(enter),
            leave: Share(leave),
            in_burst: Share(in_burst),
        };
        for (text, loss) in [
            ("0.1%", bursts(0, 0, 0, 1_000)),
            ("gemodel 1%", bursts(10_000, 990_000, 1_000_000, 0)),
            ("gemodel 1% 25%", bursts(10_000, 250_000, 1_000_000, 0)),
            ("gemodel,1%,25%,70%,10ppm", bursts(10_000, 250_000, 700_000, 10)),
        ] {
            assert_eq!(text.parse(), Ok(loss), "{text}");
            assert_eq!(loss.to_string().parse(), Ok(loss));
        }
        for text in ["gemodel", "gemodel 1% 2% 3% 4% 5%", "gemodel 1", "gilbert 1%", "101%"] {
            assert!(text.parse::<Loss>().is_err(), "{text}");
        }
        #[derive(Deserialize)]
        struct File {
            loss: Loss,
        }
        let read = |text: &str| toml::from_str::<File>(text).map(|file| file.loss);
        assert_eq!(read("loss = \"0.1%\"").unwrap(), bursts(0, 0, 0, 1_000));
        assert_eq!(
            read("loss = { enter = \"1%\", leave = \"25%\", in_burst = \"90%\", outside = \"1ppm\" }").unwrap(),
            bursts(10_000, 250_000, 900_000, 1)
        );
        assert!(read("loss = { leave = \"1%\" }").is_err() && read("loss = { enter = \"1%\", r = \"1%\" }").is_err());
    }

    #[test]
    fn a_model_of_loss_takes_the_place_of_the_one_before() {
        let mut settings = LinkSettings::default();
        for text in ["gemodel 1% 25%", "2%", "0"] {
            let loss: Loss = text.parse().unwrap();
            let mut change = LinkChange::default();
            loss.set(&mut change);
            change.apply_to(&mut settings);
            assert_eq!(Loss::of(&settings), loss);
        }
        assert_eq!(settings, LinkSettings::default());
    }
}
