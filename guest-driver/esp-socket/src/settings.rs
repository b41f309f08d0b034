//! Settings that users make by variables of the environment.

/// So long a thread that waits looks for frames before it sleeps, in nanoseconds: about four round trips over veth.
const SPIN_NS: u64 = 50_000;

/// Returns how long a thread that waits looks for frames before it sleeps (`ESP_SPIN_US`, in microseconds).
pub(crate) fn spin_ns() -> u64 {
    let wanted = std::env::var("ESP_SPIN_US").ok();
    wanted
        .and_then(|us| us.parse::<u64>().ok())
        .map_or(SPIN_NS, |us| us.saturating_mul(1000))
}

/// Whether a connection that cannot be made by ESP is an error (`ESP_FALLBACK=never`).
pub(crate) fn never_falls_back() -> bool {
    std::env::var_os("ESP_FALLBACK").is_some_and(|value| value == "never")
}
