//! Quantities with units as people write them in a lab file and on the command line: `10Gbit`, `75us`, `128M`, `0.1%`.
//! Their spelling follows `tc` and QEMU. All values are integers; this module does not know what a quantity is used
//! for.

use std::{fmt, str::FromStr};

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{Error, Visitor},
};

/// Number of digits after the decimal point that are read; more do not matter at nanosecond or bit resolution.
const FRACTION_DIGITS_MAX: usize = 9;

/// A bit rate of a link or DMA engine, in bits per second; 0 is unlimited. Written `10Gbit`, `100Mbit`, `unlimited`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rate(pub u64);

/// A span of time in nanoseconds. Written `500ns`, `75us`, `1.5ms`, `2s`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span(pub u64);

/// An amount of memory in bytes. Written `128M`, `64KiB`, `1G` (powers of 1024, as QEMU reads them).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size(pub u64);

/// A probability in millionths. Written `0.1%` or `250ppm`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Share(pub u32);

/// Splits `text` into a decimal number and its unit, and multiplies by the value of the unit in `scale`.
fn parse_scaled(text: &str, scale: impl Fn(&str) -> Option<u64>) -> Option<u64> {
    let text = text.trim();
    let unit_at = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(unit_at);
    let worth = u128::from(scale(unit.trim())?);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() || fraction.len() > FRACTION_DIGITS_MAX || (number.contains('.') && fraction.is_empty()) {
        return None;
    }
    let mut value = whole.parse::<u128>().ok()?.checked_mul(worth)?;
    if !fraction.is_empty() {
        let divisor = 10u128.pow(u32::try_from(fraction.len()).ok()?);
        value += fraction.parse::<u128>().ok()? * worth / divisor;
    }
    u64::try_from(value).ok()
}

/// Writes `value` with the largest of `units` that it is a whole multiple of.
fn write_scaled(f: &mut fmt::Formatter<'_>, value: u64, units: &[(u64, &str)]) -> fmt::Result {
    let (worth, unit) = units
        .iter()
        .rev()
        .find(|(worth, _)| value.is_multiple_of(*worth) && value >= *worth)
        .unwrap_or(&units[0]);
    write!(f, "{}{unit}", value / worth)
}

impl FromStr for Rate {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        if text == "unlimited" {
            return Ok(Self(0));
        }
        parse_scaled(text, |unit| match unit.to_ascii_lowercase().as_str() {
            "bit" => Some(1),
            "kbit" => Some(1_000),
            "mbit" => Some(1_000_000),
            "gbit" => Some(1_000_000_000),
            _ => None,
        })
        .filter(|bps| *bps > 0)
        .map(Self)
        .ok_or_else(|| format!("\"{text}\" is not a bit rate: write it as \"10Gbit\", \"100Mbit\" or \"unlimited\""))
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => f.write_str("unlimited"),
            bps => write_scaled(
                f,
                bps,
                &[
                    (1, "bit"),
                    (1_000, "kbit"),
                    (1_000_000, "Mbit"),
                    (1_000_000_000, "Gbit"),
                ],
            ),
        }
    }
}

impl FromStr for Span {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        if text == "0" {
            return Ok(Self(0));
        }
        parse_scaled(text, |unit| match unit {
            "ns" => Some(1),
            "us" | "µs" => Some(1_000),
            "ms" => Some(1_000_000),
            "s" => Some(1_000_000_000),
            _ => None,
        })
        .map(Self)
        .ok_or_else(|| format!("\"{text}\" is not a time: write it as \"500ns\", \"75us\", \"1.5ms\" or \"2s\""))
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 {
            return f.write_str("0");
        }
        write_scaled(
            f,
            self.0,
            &[(1, "ns"), (1_000, "us"), (1_000_000, "ms"), (1_000_000_000, "s")],
        )
    }
}

impl FromStr for Size {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        parse_scaled(text, |unit| match unit {
            "B" => Some(1),
            "k" | "K" | "KiB" => Some(1 << 10),
            "M" | "MiB" => Some(1 << 20),
            "G" | "GiB" => Some(1 << 30),
            _ => None,
        })
        .map(Self)
        .ok_or_else(|| format!("\"{text}\" is not a size: write it as \"64K\", \"128M\" or \"1G\" (powers of 1024)"))
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_scaled(f, self.0, &[(1, "B"), (1 << 10, "K"), (1 << 20, "M"), (1 << 30, "G")])
    }
}

impl FromStr for Share {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        if text == "0" {
            return Ok(Self(0));
        }
        parse_scaled(text, |unit| match unit {
            "%" => Some(10_000),
            "ppm" => Some(1),
            _ => None,
        })
        .and_then(|ppm| u32::try_from(ppm).ok())
        .filter(|ppm| *ppm <= 1_000_000)
        .map(Self)
        .ok_or_else(|| {
            format!("\"{text}\" is not a probability: write it as \"0.1%\" (at most \"100%\") or \"250ppm\"")
        })
        .and_then(|share| {
            // A rounded share of 0 would silently disable what the user asked for.
            if share.0 == 0 && text.contains(|digit| matches!(digit, '1'..='9')) {
                return Err(format!(
                    "\"{text}\" is too small a probability: write \"1ppm\", the least there is, or \"0\""
                ));
            }
            Ok(share)
        })
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => f.write_str("0"),
            ppm if ppm % 10_000 == 0 => write!(f, "{}%", ppm / 10_000),
            ppm if ppm % 1_000 == 0 => write!(f, "{}.{}%", ppm / 10_000, ppm / 1_000 % 10),
            ppm if ppm % 100 == 0 => write!(f, "{}.{:02}%", ppm / 10_000, ppm / 100 % 100),
            ppm => write!(f, "{ppm}ppm"),
        }
    }
}

/// Implements parsing from text in files, a pattern in the schema, and one sentence for a mistake in both places.
macro_rules! written_as_text {
    ($type:ident, $what:literal, $pattern:expr, $example:literal) => {
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Text;
                impl Visitor<'_> for Text {
                    type Value = $type;
                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        write!(f, "{} in quotes, such as \"{}\"", $what, $example)
                    }
                    fn visit_str<E: Error>(self, text: &str) -> Result<$type, E> {
                        text.parse().map_err(E::custom)
                    }
                }
                deserializer.deserialize_str(Text)
            }
        }
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
        impl schemars::JsonSchema for $type {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($type).into()
            }
            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({ "type": "string", "pattern": $pattern, "examples": [$example] })
            }
        }
    };
}

pub(super) use written_as_text;

written_as_text!(
    Rate,
    "a bit rate",
    "^(unlimited|(?=[0-9.]*[1-9])[0-9]+(\\.[0-9]{1,9})? ?[kKmMgG]?[bB][iI][tT])$",
    "10Gbit"
);
written_as_text!(Span, "a time", "^(0|[0-9]+(\\.[0-9]{1,9})? ?(ns|us|µs|ms|s))$", "75us");
written_as_text!(
    Size,
    "a size",
    "^[0-9]+(\\.[0-9]{1,9})? ?(B|k|K|KiB|M|MiB|G|GiB)$",
    "128M"
);
/// Percents up to 100, or millionths.
pub(super) const SHARE: &str =
    "(0|0*([0-9]{1,2}(\\.[0-9]{1,9})?|100(\\.0{1,9})?) ?%|0*([0-9]{1,6}(\\.[0-9]{1,9})?|1000000(\\.0{1,9})?) ?ppm)";

written_as_text!(Share, "a probability", format!("^{SHARE}$"), "0.1%");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_read_as_people_write_them() {
        assert_eq!("10Gbit".parse(), Ok(Rate(10_000_000_000)));
        assert_eq!("2.5gbit".parse(), Ok(Rate(2_500_000_000)));
        assert_eq!("unlimited".parse(), Ok(Rate(0)));
        assert_eq!("75us".parse(), Ok(Span(75_000)));
        assert_eq!("1.5 ms".parse(), Ok(Span(1_500_000)));
        assert_eq!("128M".parse(), Ok(Size(128 << 20)));
        assert_eq!("0.1%".parse(), Ok(Share(1_000)));
        assert_eq!("100%".parse(), Ok(Share(1_000_000)));
        assert_eq!("0.0%".parse(), Ok(Share(0)));
    }

    #[test]
    fn nonsense_is_refused_and_never_overflows() {
        for text in [
            "",
            "10",
            "Gbit",
            "10Gbps",
            "-1Gbit",
            "1.Gbit",
            ".5Gbit",
            "99999999999999999999Gbit",
            "0bit",
        ] {
            assert!(text.parse::<Rate>().is_err(), "{text}");
        }
        for text in ["75", "1h", "1e3us", "18446744073709551615s"] {
            assert!(text.parse::<Span>().is_err(), "{text}");
        }
        for text in ["101%", "1", "-1%", "0.00000001%", "0.9ppm"] {
            assert!(text.parse::<Share>().is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_written_reads_back_as_the_same() {
        for bps in [0, 1, 1_500, 100_000_000, 10_000_000_000, 12_345_678] {
            assert_eq!(Rate(bps).to_string().parse(), Ok(Rate(bps)));
        }
        for ns in [0, 1, 75_000, 1_000_000, 1_500_000_000] {
            assert_eq!(Span(ns).to_string().parse(), Ok(Span(ns)));
        }
        for (ppm, text) in [
            (0, "0"),
            (1, "1ppm"),
            (100, "0.01%"),
            (1_000, "0.1%"),
            (9_999, "9999ppm"),
            (10_000, "1%"),
            (10_100, "1.01%"),
            (999_900, "99.99%"),
            (1_000_000, "100%"),
        ] {
            assert_eq!(Share(ppm).to_string(), text);
            assert_eq!(text.parse(), Ok(Share(ppm)));
        }
        for bytes in [0, 1, 1536, 128 << 20] {
            assert_eq!(Size(bytes).to_string().parse(), Ok(Size(bytes)));
        }
    }
}
