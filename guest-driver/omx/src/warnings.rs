//! Warnings and errors as lines on stderr, for programs that take none of the library's events themselves: a C program has no other way
//! to learn why nobody answers it.

use std::fmt::{Debug, Write};

use tracing::{
    Event, Level, Metadata, Subscriber,
    field::{Field, Visit},
    span,
    subscriber::Interest,
};

use crate::environment::say;

/// Shows warnings and errors of the library on stderr from now on, in the form of [`crate::say`]. A program that has a subscriber of
/// its own keeps that.
pub fn show_warnings() {
    // Somebody else was first: the program, or an earlier call.
    let _ = tracing::subscriber::set_global_default(Lines(|line: &str| say(None, line)));
}

/// What is done with a line. It knows no spans: the library opens none.
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

/// An event's sentence, and what else it has.
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
    fn a_warning_is_its_sentence_with_what_else_is_known() {
        let (tell, told) = mpsc::channel();
        let lines = Lines(move |line: &str| tell.send(line.to_owned()).unwrap());
        with_default(lines, || {
            tracing::warn!(interface = "eth7", "nobody {}", "answers");
            tracing::info!("not for everybody");
        });
        assert_eq!(told.iter().collect::<Vec<_>>(), ["nobody answers (interface \"eth7\")"]);
    }
}
