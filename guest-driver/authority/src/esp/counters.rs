//! The counters of an authority for ESP: one name and one sentence each.

#[rustfmt::skip]
ether::counters! {
    /// An event of ESP that the authority counts.
    pub enum EspCounter:

    Frames "ESP_FRAMES" "frames that the authority got",
    Malformed "ESP_MALFORMED" "frames that are neither ESP nor EDP, dropped",
    Datagrams "ESP_DATAGRAMS" "EDP datagrams, which no program takes, dropped",
    SynNoListener "ESP_SYN_NO_LISTENER" "connections refused because no program listens there",
    SynBadAddress "ESP_SYN_BAD_ADDRESS" "connections refused because the peer claims an IP address that cannot be its own",
    Handshakes "ESP_HANDSHAKES" "handshakes finished",
    Tokens "ESP_TOKENS" "connections announced to their listeners",
    TokenRefused "ESP_TOKEN_REFUSED" "connections reset because their listener was gone, or closed them unclaimed",
    TokenExpired "ESP_TOKEN_EXPIRED" "connections reset because no program claimed them in time",
    TokenPeerEnded "ESP_TOKEN_PEER_ENDED" "connections that ended before a program claimed them",
    Claims "ESP_CLAIMS" "connections handed over to programs",
    ClaimUnknown "ESP_CLAIM_UNKNOWN" "claims of connections that are not there",
    ClaimNotAllowed "ESP_CLAIM_NOT_ALLOWED" "claims of another user's connections, refused",
    Listens "ESP_LISTENS" "listeners registered",
    ListenNotAllowed "ESP_LISTEN_NOT_ALLOWED" "listeners refused because the program has no socket that listens there",
    ListenersGone "ESP_LISTENERS_GONE" "listeners forgotten",
    PingsAnswered "ESP_PINGS_ANSWERED" "pings answered",
    PingsSent "ESP_PINGS_SENT" "pings sent",
    Pongs "ESP_PONGS" "answers to these pings",
    PongsStray "ESP_PONGS_STRAY" "answers to no ping of this authority, or late ones, dropped",
    Resolved "ESP_RESOLVED" "IP addresses found on this Ethernet",
    Unresolved "ESP_UNRESOLVED" "questions for IP addresses that no host answered in time",
    ResolvedFromCache "ESP_RESOLVED_FROM_CACHE" "questions for IP addresses answered from memory",
    SendFailed "ESP_SEND_FAILED" "frames of the authority that the interface did not take",
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_counter_has_a_name_and_a_sentence_of_its_own() {
        let names: HashSet<_> = EspCounter::ALL.iter().map(|counter| counter.name()).collect();
        let sentences: HashSet<_> = EspCounter::ALL.iter().map(|counter| counter.sentence()).collect();
        assert_eq!(
            (names.len(), sentences.len()),
            (EspCounter::ALL.len(), EspCounter::ALL.len())
        );
        for (at, counter) in EspCounter::ALL.iter().enumerate() {
            assert_eq!(*counter as usize, at);
        }
    }
}
