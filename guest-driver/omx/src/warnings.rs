//! Warnings and errors as lines on stderr, for programs that take none of the library's events themselves: a C program
//! cannot learn otherwise why it gets no answer.

use std::{
    fmt::{Debug, Write},
    sync::Mutex,
};

use ether::Time;
use tracing::{
    Event, Level, Metadata, Subscriber,
    field::{Field, Visit},
    span,
    subscriber::Interest,
};

use crate::{clock, environment::say};

/// This many lines may be shown at once, and then one in a second: what others do to a program must not fill its log.
const LINES_MAX: u32 = 32;
const LINE_EVERY_NS: u64 = 1_000_000_000;

/// Shows warnings and errors of the library on stderr from now on, in the form of [`crate::say`]. A program with a
/// subscriber of its own keeps it.
pub fn show_warnings() {
    // There is a subscriber already: the program's, or that of an earlier call.
    let _ = tracing::subscriber::set_global_default(Lines(|line: &str| {
        // Another thread shows one, or did when this process was born.
        let Ok(mut allowance) = ALLOWANCE.try_lock() else {
            return;
        };
        if allowance.take(clock::now()) {
            let left_out = std::mem::take(&mut allowance.left_out);
            drop(allowance);
            match left_out {
                0 => say(None, line),
                count => say(None, &format!("{line} ({count} lines before this one were left out)")),
            }
        }
    }));
}

static ALLOWANCE: Mutex<Allowance> = Mutex::new(Allowance {
    left: LINES_MAX,
    left_out: 0,
    since: Time::ZERO,
});

/// The number of lines that may be shown now.
struct Allowance {
    left: u32,
    left_out: u32,
    /// The time up to which lines were added.
    since: Time,
}

impl Allowance {
    /// Takes one line from the allowance, and returns whether there was one.
    fn take(&mut self, now: Time) -> bool {
        let more = now.nanos_since(self.since) / LINE_EVERY_NS;
        if more > 0 {
            self.left = LINES_MAX.min(self.left.saturating_add(u32::try_from(more).unwrap_or(u32::MAX)));
            self.since = self.since.plus_nanos(more * LINE_EVERY_NS);
        }
        let may = self.left > 0;
        self.left -= u32::from(may);
        self.left_out = self.left_out.saturating_add(u32::from(!may));
        may
    }
}

/// A subscriber that hands over each line. It knows no spans: the library opens none.
struct Lines<F>(F);

impl<F: Fn(&str) + 'static> Subscriber for Lines<F> {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if self.enabled(metadata) {
            Interest::always()
        } else {
            Interest::never()
        }
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::WARN
    }

    fn max_level_hint(&self) -> Option<tracing::level_filters::LevelFilter> {
        Some(tracing::level_filters::LevelFilter::WARN)
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line::default();
        event.record(&mut line);
        self.0(&format!("{}{}", line.message, line.others));
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

/// The sentence of an event, and its fields.
#[derive(Default)]
struct Line {
    message: String,
    others: String,
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        // Writing to memory does not fail.
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.others, " ({name} {value:?})"),
        };
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use tracing::subscriber::with_default;

    use super::*;

    #[test]
    fn many_warnings_at_once_are_followed_by_one_in_a_second() {
        let mut allowance = Allowance {
            left: LINES_MAX,
            left_out: 0,
            since: Time::ZERO,
        };
        let mut shown = |now_ns| (0..1000).filter(|_| allowance.take(Time::from_nanos(now_ns))).count();
        assert_eq!(shown(LINE_EVERY_NS / 2), LINES_MAX as usize);
        assert_eq!(shown(LINE_EVERY_NS - 1), 0);
        assert_eq!(shown(3 * LINE_EVERY_NS), 3);
        assert_eq!(shown(1_000_000 * LINE_EVERY_NS), LINES_MAX as usize);
    }

    #[test]
    fn a_warning_is_its_sentence_with_what_else_is_known() {
        let (tell, told) = mpsc::channel();
        let lines = Lines(move |line: &str| tell.send(line.to_owned()).unwrap());
        with_default(lines, || {
            tracing::warn!(interface = "eth7", "no peer {}", "answers");
            tracing::info!("not a warning");
        });
        assert_eq!(
            told.iter().collect::<Vec<_>>(),
            ["no peer answers (interface \"eth7\")"]
        );
    }
}
