//! What the JSON schema says of values beyond their kind: ranges of numbers, and the forms of names, addresses, times and sizes. What
//! depends on other keys, on what exists, or on arithmetic, a schema cannot say, and `check` does.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

use super::units::{Size, Span};

/// A number of an IPv4 address.
const OCTET: &str = "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])";
/// The name of an environment variable.
pub(super) const VARIABLE: &str = "^[A-Za-z_][A-Za-z0-9_]*$";
/// The name of a kernel setting, or the beginning of one.
pub(super) const KERNEL_SETTING: &str = "^[A-Za-z0-9_:@-]+([./][A-Za-z0-9_:@-]+)*$";
/// Texts with a number that `count` puts in.
const NUMBERED: &str = ".*\\{.*";

/// Units of time with their nanoseconds.
const TIMES: [(&str, u64); 4] = [("ns", 1), ("(us|µs)", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000)];

/// A whole number from `MIN` to `MAX`.
pub(super) struct Whole<const MIN: i64, const MAX: i64>;

/// A time of at most `MAX_NS`, and at least `MIN_NS`, which is 0 or a power of ten.
pub(super) struct Time<const MIN_NS: u64, const MAX_NS: u64>;

/// The memory of a guest, in whole MiB as far as a pattern can say it.
pub(super) struct Memory;

macro_rules! inline_schema {
    ([$($generics:tt)*] $type:ty, $generator:ident => $schema:expr) => {
        impl<$($generics)*> JsonSchema for $type {
            fn inline_schema() -> bool {
                true
            }
            fn schema_name() -> Cow<'static, str> {
                stringify!($type).into()
            }
            fn schema_id() -> Cow<'static, str> {
                std::any::type_name::<Self>().into()
            }
            fn json_schema($generator: &mut SchemaGenerator) -> Schema {
                $schema
            }
        }
    };
}

inline_schema!([const MIN: i64, const MAX: i64] Whole<MIN, MAX>, _generator => {
    json_schema!({ "type": "integer", "minimum": MIN, "maximum": MAX })
});
inline_schema!([const MIN_NS: u64, const MAX_NS: u64] Time<MIN_NS, MAX_NS>, generator => {
    narrowed::<Span>(generator, &time(MIN_NS, MAX_NS))
});
inline_schema!([] Memory, generator => narrowed::<Size>(generator, &memory()));

/// Makes the schema of a kind of value that is further restricted.
fn narrowed<T: JsonSchema>(generator: &mut SchemaGenerator, pattern: &str) -> Schema {
    let mut schema = generator.subschema_for::<T>();
    schema.insert("pattern".to_owned(), pattern.into());
    schema
}

macro_rules! forms {
    ($($(#[$doc:meta])* $type:ident = $pattern:expr;)*) => {
        $(
            $(#[$doc])*
            pub(super) struct $type;
            inline_schema!([] $type, _generator => json_schema!({ "type": "string", "pattern": $pattern }));
        )*
    };
}

forms! {
    /// The name of a node or switch, or with `count` a text that names are made of.
    NameText = format!("^({}|{NUMBERED})$", name("[A-Za-z0-9._-]"));
    /// The name of a switch or an aggregate.
    PlainName = format!("^{}$", name("[A-Za-z0-9._-]"));
    /// A NIC of a node, as a cable names it.
    CableEnd = "^[A-Za-z]([A-Za-z0-9._-]{0,22}[A-Za-z0-9])?\\.eth[0-9]+$";
    /// The speed of a NIC; that it is a whole number of Mbit/s is left to `check`.
    Speed = "^(?=[0-9.]*[1-9])[0-9]+(\\.[0-9]{1,9})? ?[kKmMgG][bB][iI][tT]$";
    /// The name of a lab.
    LabName = format!("^{}$", name("[A-Za-z0-9_-]"));
    /// A unicast MAC address.
    MacText = format!("^([0-9a-fA-F][02468aceACE](:[0-9a-fA-F]{{2}}){{5}}|{NUMBERED})$");
    /// An IPv4 address with a prefix length, or none.
    Address = format!("^(none|{}|{NUMBERED})$", ipv4());
    /// An IPv4 network.
    Subnet = format!("^{}$", ipv4());
    /// An IPv6 address with a prefix length, or none.
    Address6 = format!("^(none|{}|{NUMBERED})$", ipv6());
    /// An IPv6 network.
    Subnet6 = format!("^{}$", ipv6());
    /// The name of a Debian package.
    PackageName = "^[a-z0-9][a-z0-9+.-]*$";
    /// The name of a kernel module.
    ModuleName = "^[A-Za-z0-9_-]+$";
    /// A plain path in a guest.
    GuestPath = "^(?!.*/\\.{1,2}(/|$))(/[^/\\x00-\\x1f\\x7f-\\x9f]+)+$";
    /// Permissions of a file.
    Permissions = "^(0o)*0*[0-7]{1,4}$";
}

/// Returns the schema of keys that match a pattern.
pub(super) fn named(pattern: &str) -> serde_json::Value {
    serde_json::json!({ "pattern": pattern })
}

fn name(letters: &str) -> String {
    format!("(?!.*\\.\\.)(?!.*\\.eth[0-9]+$)[A-Za-z]({letters}{{0,22}}[A-Za-z0-9])?")
}

fn ipv4() -> String {
    format!("{OCTET}(\\.{OCTET}){{3}}/(8|9|[12][0-9]|30)")
}

fn ipv6() -> String {
    "(?=[^/]*:[^/]*:)[0-9a-fA-F:.]{2,45}/(8|9|[1-9][0-9]|1[01][0-9]|12[0-6])".to_owned()
}

/// Returns the pattern of lists of VLANs; whether ranges are in order is left to `check`.
pub(super) fn vlan_list() -> String {
    let number = format!(" *0*({}) *", whole_numbers(1, u64::from(vnicd_protocol::VLAN_MAX)));
    let part = format!("{number}(-{number})?");
    format!("^( *(all|none)? *|{part}(,{part})*)$")
}

/// Returns the pattern of times from `min_ns` to `max_ns`.
fn time(min_ns: u64, max_ns: u64) -> String {
    let mut forms: Vec<_> = TIMES
        .iter()
        .map(|(unit, worth)| decimal(min_ns.div_ceil(*worth), max_ns / worth, unit))
        .collect();
    if min_ns == 0 {
        forms.push("0".to_owned());
    } else {
        // Parts of a unit that is larger than the least time are left to `check`.
        forms.extend(
            TIMES
                .iter()
                .filter(|(_, worth)| *worth > min_ns)
                .map(|(unit, _)| format!("0*0\\.[0-9]{{1,9}} ?{unit}")),
        );
    }
    format!("^({})$", forms.join("|"))
}

/// Returns the pattern of sizes of a guest's memory.
fn memory() -> String {
    let (min, max) = (
        u64::from(crate::guest_memory::MEMORY_MIB_MIN),
        super::memory::MEMORY_MIB_MAX,
    );
    let whole =
        |unit: &str, worth: u64| format!("0*({})(\\.0{{1,9}})? ?{unit}", whole_numbers(min * worth, max * worth));
    let of_gib = format!(
        "0*(({})(\\.[0-9]{{1,9}})?|{}(\\.0{{1,9}})?) ?(G|GiB)",
        whole_numbers(0, (max >> 10) - 1),
        max >> 10
    );
    format!(
        "^({}|{}|{}|{of_gib})$",
        whole("(M|MiB)", 1),
        whole("(k|K|KiB)", 1 << 10),
        whole("B", 1 << 20)
    )
}

/// Returns the pattern of decimal numbers from `min` to `max` with a unit.
fn decimal(min: u64, max: u64, unit: &str) -> String {
    if max == 0 {
        return format!("0+(\\.[0-9]{{1,9}})? ?{unit}");
    }
    if min >= max {
        return format!("0*{max}(\\.0{{1,9}})? ?{unit}");
    }
    format!(
        "0*(({})(\\.[0-9]{{1,9}})?|{max}(\\.0{{1,9}})?) ?{unit}",
        whole_numbers(min, max - 1)
    )
}

/// Returns the pattern of whole numbers from `min` to `max`, without leading zeros.
fn whole_numbers(min: u64, max: u64) -> String {
    let mut forms = Vec::new();
    let mut from = min;
    loop {
        // Numbers of equal length are taken together.
        let longest = 10_u64
            .checked_pow(from.max(1).ilog10() + 1)
            .map_or(u64::MAX, |next| next - 1);
        let to = max.min(longest);
        same_length(&from.to_string(), &to.to_string(), String::new(), &mut forms);
        if to == max {
            return forms.join("|");
        }
        from = to + 1;
    }
}

/// Adds the patterns of the numbers between two of equal length, behind what they have in common.
fn same_length(from: &str, to: &str, common: String, forms: &mut Vec<String>) {
    let (Some(low), Some(high)) = (from.chars().next(), to.chars().next()) else {
        forms.push(common);
        return;
    };
    let (rest_from, rest_to) = (&from[1..], &to[1..]);
    let rest = rest_from.len();
    if low == high {
        return same_length(rest_from, rest_to, format!("{common}{low}"), forms);
    }
    let (mut first, mut last) = (low as u8, high as u8);
    if !rest_from.chars().all(|digit| digit == '0') {
        same_length(rest_from, &"9".repeat(rest), format!("{common}{low}"), forms);
        first += 1;
    }
    let ends_early = !rest_to.chars().all(|digit| digit == '9');
    if ends_early {
        last -= 1;
    }
    if first <= last {
        let digits = match rest {
            0 => String::new(),
            _ => format!("[0-9]{{{rest}}}"),
        };
        forms.push(format!("{common}[{}-{}]{digits}", char::from(first), char::from(last)));
    }
    if ends_early {
        same_length(&"0".repeat(rest), rest_to, format!("{common}{high}"), forms);
    }
}
