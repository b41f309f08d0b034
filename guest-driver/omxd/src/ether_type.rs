//! The EtherType of an interface's frames (`mxoe-wire.md` 1.1): the usual one, or the one with which the original
//! Open-MX was built.

use ether::EtherType;

/// Lower numbers are lengths of frames of another kind (IEEE 802.3).
const ETHER_TYPE_MIN: u16 = 0x600;

/// EtherTypes of other protocols, with their names. IPv6's is not among them: the reference's users gave it to hosts
/// whose kernels were slow with any other.
const TAKEN: [(EtherType, &str); 6] = [
    (EtherType::IPV4, "IPv4's"),
    (EtherType::ARP, "ARP's"),
    (EtherType::VLAN, "the one of VLAN tags"),
    (EtherType::SERVICE_VLAN, "the one of VLAN tags"),
    (EtherType::CARD_CONTROL, "the one of frames to a Weft card"),
    (EtherType::CARD_TO_CARD, "the one of frames between Weft cards"),
];

/// Reads an EtherType: up to four hexadecimal digits, with or without `0x`.
///
/// # Errors
/// A sentence that says why messages cannot have this one.
pub(crate) fn parse(text: &str) -> Result<EtherType, String> {
    let text = text.trim();
    let digits = text
        .strip_prefix("0x")
        .or_else(|| text.strip_prefix("0X"))
        .unwrap_or(text);
    let number = Some(digits)
        .filter(|digits| digits.chars().all(|digit| digit.is_ascii_hexdigit()))
        .and_then(|digits| u16::from_str_radix(digits, 16).ok())
        .ok_or("an EtherType has one to four hexadecimal digits, such as 0x86df")?;
    let ether_type = EtherType(number);
    if number < ETHER_TYPE_MIN {
        return Err(format!(
            "{ether_type} is no EtherType but a frame's length: the lowest one is 0x{ETHER_TYPE_MIN:04x}"
        ));
    }
    match TAKEN.iter().find(|(taken, _)| *taken == ether_type) {
        Some((_, whose)) => Err(format!(
            "{ether_type} is {whose}: messages need one that is not used on the network otherwise"
        )),
        None => Ok(ether_type),
    }
}

/// Whether there is ESP, and under which EtherType.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OfEsp {
    /// There is none.
    Off,
    /// Its frames have this one.
    On(EtherType),
}

impl OfEsp {
    /// Returns the EtherType, if there is ESP.
    pub const fn ether_type(self) -> Option<EtherType> {
        match self {
            Self::Off => None,
            Self::On(ether_type) => Some(ether_type),
        }
    }
}

/// Reads the EtherType of ESP, or that there is none.
///
/// # Errors
/// A sentence that says why ESP cannot have this one.
pub(crate) fn parse_esp(text: &str) -> Result<OfEsp, String> {
    if text.trim() == "off" {
        return Ok(OfEsp::Off);
    }
    match parse(text)? {
        EtherType::IPV6 => Err(format!("{} is IPv6's, which hosts need beside ESP", EtherType::IPV6)),
        ether_type => Ok(OfEsp::On(ether_type)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ether_type_is_hexadecimal_with_or_without_a_prefix() {
        for text in ["86df", "0x86df", "0X86DF", " 86DF "] {
            assert_eq!(parse(text), Ok(EtherType::MXOE), "{text}");
        }
        assert_eq!(parse("600"), Ok(EtherType(0x600)));
        // As the reference's users have it.
        assert_eq!(parse("0x86dd"), Ok(EtherType::IPV6));
    }

    #[test]
    fn esp_has_an_ether_type_of_its_own_or_is_off() {
        assert_eq!(parse_esp("4553"), Ok(OfEsp::On(EtherType::ESP)));
        assert_eq!(parse_esp(" off "), Ok(OfEsp::Off));
        for text in ["86dd", "800", "on", ""] {
            assert!(parse_esp(text).is_err(), "{text}");
        }
    }

    #[test]
    fn an_ether_type_that_means_something_else_is_refused_with_a_sentence() {
        for (text, reason) in [
            ("", "hexadecimal"),
            ("0x", "hexadecimal"),
            ("+86df", "hexadecimal"),
            ("wombat", "hexadecimal"),
            ("186df", "hexadecimal"),
            ("0x05ff", "length"),
            ("0", "length"),
            ("800", "IPv4's"),
            ("806", "ARP's"),
            ("8100", "VLAN"),
            ("88a8", "VLAN"),
            ("88b5", "a Weft card"),
            ("88B6", "between Weft cards"),
        ] {
            let sentence = parse(text).unwrap_err();
            assert!(
                sentence.contains(reason) && !sentence.contains('\n'),
                "{text}: {sentence}"
            );
        }
    }
}
