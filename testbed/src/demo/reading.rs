//! The interpretation of the table in plain sentences, computed from its numbers, also where they do not show what the
//! papers lead one to expect.

use super::{
    measure::Setting,
    result::{Demo, Outcome, Spread},
};
use crate::{accel::Accel, lab::Strategy, report::chart::short};

/// Largest share of the time-out's extra delay that a mark may leave of a small message.
const LEFT_OVER_MAX: f64 = 0.15;

/// Packets of a 32-KiB message.
const MEDIUM_PACKETS: f64 = 23.0;

/// Most interrupts per 32-KiB message that Open-MX and Stream need with a long delay.
const MEDIUM_INTERRUPTS_MAX: f64 = 2.0;

/// Most interrupts of Stream per interrupt of Open-MX in a stream of marked messages: the papers have about a half.
const STREAM_SHARE_MAX: f64 = 0.6;

/// What an emulated processor does to a bulk transfer over ESP: the figure is not ESP's speed.
const OVER_ESP_EMULATED: &str = " That is no figure of ESP's speed: TCP hands the card up to 64 KiB at a time, which the card cuts, \
     while the kernels of both guests handle each 1500-byte frame of ESP by itself, which takes an emulated processor long. \
     The book's chapter Performance compares the two between hosts.";

/// Returns the paragraphs under the table.
pub(super) fn paragraphs(demo: &Demo) -> Vec<String> {
    let disabled = demo.find(Setting::new(Strategy::Disabled, 0));
    let mut paragraphs = vec![how(demo)];
    if let Some(disabled) = disabled {
        for delay_us in [1000, 75] {
            if let Some(at) = AtDelay::of(demo, disabled, delay_us) {
                paragraphs.push(at.small());
                paragraphs.push(at.medium());
                paragraphs.push(at.stream());
            }
        }
        paragraphs.extend(plain_traffic(demo, disabled));
    }
    paragraphs.push(reasons(demo));
    paragraphs
}

fn how(demo: &Demo) -> String {
    let world = match demo.accel {
        Accel::Kvm => "The guests run on the host's processor (KVM).",
        Accel::Tcg => {
            "The guests' processors are emulated (TCG): everything in a guest takes far longer than on a real one, so compare \
             the numbers with each other, not with those of real machines."
        }
    };
    format!(
        "{world} Times and rates are medians (rounds in which the settings took turns: {}); interrupts are those decided by the \
         receiving card. Rounds of one setting differ, too: two settings are said to differ only where the middle halves of their \
         rounds, from quartile to quartile, do not overlap, and there are at least three rounds.",
        demo.rounds
    )
}

/// The three strategies at one delay, beside no coalescing at all.
struct AtDelay<'a> {
    delay_us: u32,
    disabled: &'a Outcome,
    timeout: &'a Outcome,
    open_mx: &'a Outcome,
    stream: &'a Outcome,
}

impl<'a> AtDelay<'a> {
    fn of(demo: &'a Demo, disabled: &'a Outcome, delay_us: u32) -> Option<Self> {
        let find = |strategy| demo.find(Setting::new(strategy, delay_us));
        Some(Self {
            delay_us,
            disabled,
            timeout: find(Strategy::Timeout)?,
            open_mx: find(Strategy::OpenMx)?,
            stream: find(Strategy::Stream)?,
        })
    }

    fn delay(&self) -> String {
        if self.delay_us.is_multiple_of(1000) {
            format!("{} ms", self.delay_us / 1000)
        } else {
            format!("{} µs", self.delay_us)
        }
    }

    fn small(&self) -> String {
        let time = |outcome: &Outcome| outcome.small.rtt_us_median;
        let base = time(self.disabled);
        let added = time(self.timeout) - base;
        let mut text = format!(
            "Small messages, delay {}: there and back takes {} µs when every packet interrupts, {} µs with the time-out",
            self.delay(),
            short(base),
            short(time(self.timeout)),
        );
        // Each direction waits for one timer; much less than that is the noise of the machine.
        if added < 0.5 * f64::from(self.delay_us) || !differ(self.timeout.small.rtt_us, self.disabled.small.rtt_us) {
            text += &format!(
                ". The difference of {} µs is less than half of one delay, or within the spread of the rounds: it does not show above \
                 the noise of this machine. Open-MX takes {} µs, Stream {} µs.",
                short(added),
                short(time(self.open_mx)),
                short(time(self.stream))
            );
            return text;
        }
        text += &format!(
            ", {} µs with Open-MX and {} µs with Stream.",
            short(time(self.open_mx)),
            short(time(self.stream))
        );
        let left = |outcome: &Outcome| (time(outcome) - base) / added;
        let (open_mx, stream) = (left(self.open_mx), left(self.stream));
        let shares = format!("{} with Open-MX, {} with Stream", percent(open_mx), percent(stream));
        text += &match (open_mx <= LEFT_OVER_MAX, stream <= LEFT_OVER_MAX) {
            (true, true) => format!(
                " The mark makes the card interrupt at once: of the {} µs that the time-out adds, {shares} is left. That is \
                 what the papers show.",
                short(added)
            ),
            _ => format!(
                " Of the {} µs that the time-out adds, {shares} is left. The papers lead one to expect at most {}: this run \
                 does not show it{}.",
                short(added),
                percent(LEFT_OVER_MAX),
                noise_hint(self.delay_us)
            ),
        };
        text
    }

    fn medium(&self) -> String {
        let per = |outcome: &Outcome| outcome.medium.interrupts_per_message();
        let (disabled, open_mx, stream) = (per(self.disabled), per(self.open_mx), per(self.stream));
        let mut text = format!(
            "32-KiB messages, delay {}: each is {MEDIUM_PACKETS} packets, only the last one marked; some replies are \
             acknowledged by one more. The receiving card interrupts {} times per message without coalescing, {} times with the time-out, {} with Open-MX, {} with \
             Stream.",
            self.delay(),
            short(disabled),
            short(per(self.timeout)),
            short(open_mx),
            short(stream)
        );
        let few = if self.delay_us >= 1000 {
            MEDIUM_INTERRUPTS_MAX
        } else {
            MEDIUM_PACKETS / 2.0
        };
        text += &if open_mx <= few && stream <= few {
            let time = |outcome: &Outcome| outcome.medium.rtt_us_median;
            let how = if open_mx <= MEDIUM_INTERRUPTS_MAX && stream <= MEDIUM_INTERRUPTS_MAX {
                "The message is announced when it is complete, not packet by packet"
            } else {
                "The mark announces the end of the message at once; its packets arrive over a longer time than the delay, so that \
                 time-outs announce some before"
            };
            format!(
                " {how}. It takes {} µs with Open-MX, {} µs without coalescing and {} µs with the time-out{}.",
                short(time(self.open_mx)),
                short(time(self.disabled)),
                short(time(self.timeout)),
                unless_they_differ(&[
                    self.open_mx.medium.rtt_us,
                    self.disabled.medium.rtt_us,
                    self.timeout.medium.rtt_us
                ])
            )
        } else {
            format!(
                " At most {} were expected with Open-MX and Stream: the packets of a message do not arrive close enough \
                 together on this machine{}.",
                short(few),
                noise_hint(self.delay_us)
            )
        };
        text
    }

    fn stream(&self) -> String {
        let per_packet = |outcome: &Outcome| {
            outcome.stream.counted.interrupts as f64 / (outcome.stream.counted.packets.max(1)) as f64
        };
        let (open_mx, of_stream) = (per_packet(self.open_mx), per_packet(self.stream));
        let share = if open_mx > 0.0 { of_stream / open_mx } else { 1.0 };
        let mut text = format!(
            "A stream of marked 128-byte messages, delay {}: {} messages per second without coalescing, {} with the time-out, \
             {} with Open-MX, {} with Stream{}. Per packet, Stream decides {} of the interrupts of Open-MX",
            self.delay(),
            short(self.disabled.stream.messages_per_s),
            short(self.timeout.stream.messages_per_s),
            short(self.open_mx.stream.messages_per_s),
            short(self.stream.stream.messages_per_s),
            unless_they_differ(
                &[self.disabled, self.timeout, self.open_mx, self.stream].map(|outcome| outcome.stream.rate)
            ),
            percent(share)
        );
        text += if share <= STREAM_SHARE_MAX {
            ": a mark waits for the packets that are just arriving behind it."
        } else {
            ": packets do not arrive in groups large enough for Stream to save more than Open-MX does already."
        };
        text
    }
}

/// Returns whether two settings differ by more than the spread of their rounds.
fn differ(one: Option<Spread>, other: Option<Spread>) -> bool {
    matches!((one, other), (Some(one), Some(other)) if one.differs_from(&other))
}

/// Returns what has to be added to numbers that must not be compared: none of these settings differs from another one.
fn unless_they_differ(spreads: &[Option<Spread>]) -> &'static str {
    let any = spreads
        .iter()
        .enumerate()
        .any(|(index, one)| spreads[..index].iter().any(|other| differ(*one, *other)));
    if any {
        ""
    } else {
        ", which is no difference: the rounds of one setting vary as much"
    }
}

/// Explains why short delays are hard to see.
fn noise_hint(delay_us: u32) -> &'static str {
    if delay_us < 1000 {
        ", where the guests' own jitter is as long as the delay"
    } else {
        ""
    }
}

/// Renders a share in percent; negative shares are noise.
fn percent(share: f64) -> String {
    format!("{:.0} %", share.max(0.0) * 100.0)
}

fn plain_traffic(demo: &Demo, disabled: &Outcome) -> Option<String> {
    let at = |strategy| demo.find(Setting::new(strategy, 1000));
    let (timeout, open_mx, stream) = (at(Strategy::Timeout)?, at(Strategy::OpenMx)?, at(Strategy::Stream)?);
    let ping = |outcome: &Outcome| outcome.ping_ms.map(|spread| spread.median);
    let (none, with_timeout) = (ping(disabled)?, ping(timeout)?);
    let (with_open_mx, with_stream) = (ping(open_mx)?, ping(stream)?);
    let mut text = format!(
        "IP packets carry no mark, so every strategy treats them like the time-out does: ping takes {} ms without coalescing, \
         and with a delay of 1 ms {} ms (time-out), {} ms (Open-MX), {} ms (Stream)",
        short(none),
        short(with_timeout),
        short(with_open_mx),
        short(with_stream)
    );
    text += if [open_mx, stream]
        .into_iter()
        .any(|other| differ(other.ping_ms, timeout.ping_ms))
    {
        "; the last three should be alike, and this run's noise is larger than that."
    } else {
        "; the last three do not differ beyond the spread of the rounds."
    };
    let sockets = |rate: fn(&Outcome) -> Option<Spread>, who: &str| {
        let (none, waiting) = (rate(disabled)?, rate(timeout)?);
        Some(format!(
            " {who} reaches {} Mbit/s without coalescing and {} with the 1-ms time-out{}.",
            short(none.median),
            short(waiting.median),
            unless_they_differ(&[Some(none), Some(waiting)])
        ))
    };
    text.extend(sockets(|outcome| outcome.tcp_mbit_per_s, "TCP"));
    let over_esp = "That program over ESP, stream sockets without TCP and IP, whose frames carry a mark where a call of the program ends,";
    if let Some(sentence) = sockets(|outcome| outcome.esp_mbit_per_s, over_esp) {
        text += &sentence;
        if demo.accel == Accel::Tcg {
            text += OVER_ESP_EMULATED;
        }
    }
    Some(text)
}

fn reasons(demo: &Demo) -> String {
    let parts = demo
        .outcomes
        .iter()
        .flat_map(|outcome| [&outcome.small.counted, &outcome.medium.counted, &outcome.stream.counted]);
    let (mut decided, mut explained, mut signalled) = (0, 0, 0);
    for part in parts {
        decided += part.interrupts;
        explained += part.reasons.values().sum::<u64>();
        signalled += part.signalled;
    }
    let sum = if decided == explained {
        "each carries its reason, and the reasons add up to the total".to_owned()
    } else {
        format!("but the reasons add up to {explained}: the counters of the card are wrong")
    };
    format!(
        "The receiving card decided {decided} interrupts while messages were measured: {sum}. {} of them were signalled; for \
         the others the guest's driver was busy and wanted none.",
        percent(signalled as f64 / decided.max(1) as f64)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::result::tests::example;

    #[test]
    fn what_the_papers_show_is_called_that() {
        let text = paragraphs(&example(false)).join("\n");
        assert!(
            text.contains("Of the 2000 µs") || text.contains("of the 2000 µs that the time-out adds, 0 % with Open-MX")
        );
        assert!(text.contains("That is what the papers show"), "{text}");
        assert!(
            text.contains(
                "interrupts 23 times per message without coalescing, 3 times with the time-out, 1 with Open-MX"
            )
        );
        assert!(text.contains("each carries its reason, and the reasons add up to the total"));
    }

    #[test]
    fn what_a_run_does_not_show_is_not_claimed() {
        let text = paragraphs(&example(true)).join("\n");
        assert!(!text.contains("That is what the papers show"), "{text}");
        assert!(
            text.contains("it does not show above the noise of this machine"),
            "{text}"
        );
        assert!(text.contains("do not arrive close enough together"), "{text}");
        assert!(text.contains("do not arrive in groups large enough"), "{text}");
    }

    #[test]
    fn the_figure_over_esp_of_an_emulated_processor_is_said_not_to_be_the_speed_of_esp() {
        let mut demo = example(false);
        let warns = |demo: &Demo| paragraphs(demo).join("\n").contains("That is no figure of ESP's speed");
        assert!(warns(&demo));
        demo.accel = Accel::Kvm;
        assert!(!warns(&demo));
    }

    #[test]
    fn noise_is_not_called_a_difference() {
        let text = paragraphs(&example(false)).join("\n");
        assert!(
            text.contains("Mbit/s without coalescing and 460 with the 1-ms time-out, which is no difference"),
            "{text}"
        );
        assert!(
            text.contains(
                "where a call of the program ends, reaches 220 Mbit/s without coalescing and 220 with the 1-ms time-out, which is no"
            ),
            "{text}"
        );
        assert!(text.contains("20.0 k with Stream, which is no difference"), "{text}");
        let mut demo = example(false);
        let tcp = |quartiles: (f64, f64)| Spread {
            median: quartiles.0,
            quartiles,
            rounds: 5,
        };
        demo.outcomes[0].tcp_mbit_per_s = Some(tcp((590.0, 610.0)));
        demo.outcomes[4].tcp_mbit_per_s = Some(tcp((262.0, 270.0)));
        let text = paragraphs(&demo).join("\n");
        assert!(
            text.contains("590 Mbit/s without coalescing and 262 with the 1-ms time-out."),
            "{text}"
        );
        assert!(text.contains("do not overlap"), "the rule is told");
    }

    #[test]
    fn reasons_that_do_not_add_up_are_called_wrong() {
        let mut demo = example(false);
        demo.outcomes[0].small.counted.reasons.clear();
        assert!(
            paragraphs(&demo)
                .join("\n")
                .contains("the counters of the card are wrong")
        );
    }
}
