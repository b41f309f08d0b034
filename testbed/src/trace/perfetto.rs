//! The events in Chrome's trace event format, which <https://ui.perfetto.dev> opens: a process per node, and for each
//! receive queue a track with its packets and interrupts, one with its DMAs, and a counter of what is not announced
//! yet.

use std::{
    collections::{BTreeMap, VecDeque},
    io::{self, Write},
};

use firmware::recorder::{Record, RecordKind};
use serde::Serialize;
use serde_json::{Value, json};

use super::{CardTrace, drop_words, first_ns, is_of_card, reason};

/// Number of tracks of one card: more than twice as many as a card has queues.
const TRACKS_PER_CARD: usize = 1000;

/// An entry of `traceEvents`.
#[derive(Debug, Serialize)]
struct Event<'a> {
    name: &'a str,
    ph: &'static str,
    pid: usize,
    tid: usize,
    /// Time in microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    ts: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dur: Option<f64>,
    /// Scope of an instant event: its track, its process.
    #[serde(skip_serializing_if = "Option::is_none")]
    s: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cat: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    args: Option<Value>,
}

/// Writes all traces as one JSON object.
///
/// # Errors
/// Fails when `out` cannot be written.
pub fn write_json(traces: &[CardTrace], out: impl Write) -> io::Result<()> {
    let mut writer = Writer {
        out,
        first_ns: first_ns(traces),
        separator: "",
        next_dma: 0,
    };
    let origin = traces.first().map_or(0, |trace| trace.origin_unix_ns) + writer.first_ns;
    let about = json!({ "tool": concat!("weft ", env!("CARGO_PKG_VERSION")), "start_unix_ns": origin.to_string() });
    write!(
        writer.out,
        "{{\"displayTimeUnit\":\"ns\",\"otherData\":{about},\"traceEvents\":["
    )?;
    let mut nodes: Vec<&str> = Vec::new();
    for (card, trace) in traces.iter().enumerate() {
        let (node, nic) = trace.nic.rsplit_once('.').unwrap_or((&trace.nic, "card"));
        let pid = match nodes.iter().position(|known| *known == node) {
            Some(known) => known + 1,
            None => {
                nodes.push(node);
                writer.metadata("process_name", (nodes.len(), 0), node)?;
                nodes.len()
            }
        };
        writer.card(trace, nic, pid, 1 + card * TRACKS_PER_CARD)?;
    }
    writeln!(writer.out, "\n]}}")?;
    writer.out.flush()
}

/// The pending work of a receive queue.
#[derive(Default)]
struct Queue {
    /// Packets that no interrupt announced yet: their times and numbers.
    unannounced: VecDeque<(u64, u32)>,
    /// DMAs that have begun, by number.
    dmas: VecDeque<u64>,
    /// Time until which the track has a span.
    shown_until_ns: u64,
}

struct Writer<W> {
    out: W,
    first_ns: u64,
    separator: &'static str,
    next_dma: u64,
}

impl<W: Write> Writer<W> {
    fn event(&mut self, event: &Event<'_>) -> io::Result<()> {
        writeln!(self.out, "{}", self.separator)?;
        self.separator = ",";
        serde_json::to_writer(&mut self.out, event).map_err(io::Error::from)
    }

    fn metadata(&mut self, name: &str, (pid, tid): (usize, usize), value: &str) -> io::Result<()> {
        self.event(&Event {
            ts: None,
            args: Some(json!({ "name": value })),
            ..plain(name, "M", (pid, tid))
        })
    }

    fn micros(&self, at_ns: u64) -> Option<f64> {
        Some(at_ns.saturating_sub(self.first_ns) as f64 / 1000.0)
    }

    fn instant(&mut self, name: &str, place: (usize, usize), at_ns: u64, args: Value) -> io::Result<()> {
        let event = Event {
            ts: self.micros(at_ns),
            s: Some("t"),
            args: args.as_object().is_some_and(|args| !args.is_empty()).then_some(args),
            ..plain(name, "i", place)
        };
        self.event(&event)
    }

    fn card(&mut self, trace: &CardTrace, nic: &str, pid: usize, first_tid: usize) -> io::Result<()> {
        let mut queues: BTreeMap<u16, Queue> = BTreeMap::new();
        let of_card = (pid, first_tid);
        self.metadata("thread_name", of_card, &format!("{nic} sends, drops"))?;
        for record in &trace.records {
            let at = record.at.as_nanos();
            if is_of_card(record) {
                let count = record.count;
                match record.kind {
                    RecordKind::Drop => {
                        let (direction, why) = drop_words(record);
                        let args = json!({ "frames": count, "way": direction });
                        self.instant(&format!("drop: {why}"), of_card, at, args)?;
                    }
                    _ => self.instant(
                        "forward",
                        of_card,
                        at,
                        json!({ "frames": count, "bytes": record.number }),
                    )?,
                }
                continue;
            }
            let tid = first_tid + 1 + 2 * usize::from(record.queue);
            if !queues.contains_key(&record.queue) {
                let name = format!("{nic} queue {}", record.queue);
                self.metadata("thread_name", (pid, tid), &name)?;
                self.metadata("thread_name", (pid, tid + 1), &format!("{name} DMA"))?;
            }
            let queue = queues.entry(record.queue).or_default();
            let reason = reason(record, &trace.strategies);
            self.of_queue(queue, (record, &reason), nic, (pid, tid))?;
        }
        Ok(())
    }

    fn of_queue(
        &mut self,
        queue: &mut Queue,
        (record, reason): (&Record, &str),
        nic: &str,
        place: (usize, usize),
    ) -> io::Result<()> {
        let at = record.at.as_nanos();
        let dma_place = (place.0, place.1 + 1);
        let packets = json!({ "packets": record.count });
        match record.kind {
            RecordKind::Arrive => {
                queue.unannounced.push_back((at, record.count));
                let args = json!({ "packets": record.count, "bytes": record.number });
                self.instant("arrive", place, at, args)?;
                self.unannounced(queue, record, nic, place)?;
            }
            RecordKind::DmaStart => {
                for _ in 0..record.count {
                    queue.dmas.push_back(self.next_dma);
                    self.dma("b", self.next_dma, at, dma_place)?;
                    self.next_dma += 1;
                }
            }
            RecordKind::DmaEnd => {
                let known = (record.count as usize).min(queue.dmas.len());
                for number in queue.dmas.drain(..known).collect::<Vec<_>>() {
                    self.dma("e", number, at, dma_place)?;
                }
                if known == 0 {
                    // No time is modelled, or they began before the recorder.
                    self.instant("DMA done", dma_place, at, packets)?;
                }
            }
            RecordKind::Raise => {
                self.waited(queue, record, place)?;
                let args = json!({ "packets": record.count, "interrupt": record.number, "reason": reason });
                self.instant(&format!("irq: {reason}"), place, at, args)?;
                self.unannounced(queue, record, nic, place)?;
            }
            RecordKind::Lost => {
                // The pending work is not known any more.
                *queue = Queue {
                    shown_until_ns: queue.shown_until_ns,
                    ..Queue::default()
                };
                self.instant("events overwritten", place, at, json!({ "events": record.number }))?;
            }
            RecordKind::Mark => self.instant("mark", place, at, packets)?,
            kind => self.instant(kind.name(), place, at, json!({}))?,
        }
        Ok(())
    }

    fn dma(&mut self, ph: &'static str, id: u64, at_ns: u64, place: (usize, usize)) -> io::Result<()> {
        let event = Event {
            ts: self.micros(at_ns),
            cat: Some("dma"),
            id: Some(id),
            ..plain("DMA", ph, place)
        };
        self.event(&event)
    }

    /// Writes the time from the oldest packet that an interrupt announces to the interrupt, as a span.
    fn waited(&mut self, queue: &mut Queue, raise: &Record, place: (usize, usize)) -> io::Result<()> {
        let at = raise.at.as_nanos();
        let since = queue.unannounced.front().map(|(since, _)| *since);
        let mut left = raise.count;
        while left > 0
            && let Some((_, count)) = queue.unannounced.front_mut()
        {
            let taken = left.min(*count);
            left -= taken;
            *count -= taken;
            if *count == 0 {
                queue.unannounced.pop_front();
            }
        }
        // Spans of one track must not overlap: what waited for the last interrupt as well begins behind it.
        let Some(since) = since
            .map(|since| since.max(queue.shown_until_ns))
            .filter(|since| *since < at)
        else {
            return Ok(());
        };
        queue.shown_until_ns = at;
        let event = Event {
            ts: self.micros(since),
            dur: Some((at - since) as f64 / 1000.0),
            args: Some(json!({ "packets": raise.count })),
            ..plain("packets wait", "X", place)
        };
        self.event(&event)
    }

    fn unannounced(&mut self, queue: &Queue, record: &Record, nic: &str, place: (usize, usize)) -> io::Result<()> {
        let sum: u64 = queue.unannounced.iter().map(|(_, count)| u64::from(*count)).sum();
        let name = format!("{nic} queue {} unannounced", record.queue);
        let event = Event {
            ts: self.micros(record.at.as_nanos()),
            args: Some(json!({ "packets": sum })),
            ..plain(&name, "C", place)
        };
        self.event(&event)
    }
}

fn plain<'a>(name: &'a str, ph: &'static str, (pid, tid): (usize, usize)) -> Event<'a> {
    Event {
        name,
        ph,
        pid,
        tid,
        ts: None,
        dur: None,
        s: None,
        cat: None,
        id: None,
        args: None,
    }
}

#[cfg(test)]
#[path = "../../tests/lab/trace_format.rs"]
mod trace_format;

#[cfg(test)]
mod tests {
    use ether::Time;
    use firmware::{Card, CardConfig, Coalescing, DmaModel, PacketInfo, StrategyKind, recorder::RECORD_LEN};

    use super::{trace_format::check, *};

    /// Makes the trace of a card with random traffic, as `weft` reads it.
    fn trace(strategy: StrategyKind, dma: DmaModel) -> CardTrace {
        let mut nic = Card::new(CardConfig {
            queue_pairs: 2,
            coalescing: Coalescing {
                strategy,
                ..Coalescing::DEFAULT
            },
            dma,
            ..CardConfig::default()
        });
        nic.start_recorder(1 << 16);
        let mut bytes = Vec::new();
        for round in 0..400u64 {
            let now = Time::from_nanos(7_000_000 + round * 20_000 + round * round % 7_000);
            for n in 0..round % 9 {
                let packet = PacketInfo {
                    len: 100,
                    marked: n * round % 5 == 1,
                };
                nic.rx((n % 2) as u16).arrive(now, packet).expect("room");
            }
            for queue in 0..2 {
                while nic.rx(queue).poll(now).is_some() {
                    nic.rx(queue).note_signalled();
                }
            }
            nic.note_forwarded(now, 2, 300);
            if round % 50 == 0 {
                nic.note_dropped(now, 0);
                nic.drain_recorder(&mut bytes);
            }
        }
        nic.drain_recorder(&mut bytes);
        let (records, rest) = bytes.as_chunks::<RECORD_LEN>();
        assert!(rest.is_empty());
        let mut trace = CardTrace {
            nic: "n1.eth0".to_owned(),
            origin_unix_ns: 1_700_000_000_000_000_000,
            strategies: StrategyKind::NAMES.iter().map(ToString::to_string).collect(),
            records: records.iter().filter_map(Record::from_bytes).collect(),
        };
        trace.sort();
        trace
    }

    fn written(traces: &[CardTrace]) -> String {
        let mut out = Vec::new();
        write_json(traces, &mut out).expect("memory takes it");
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn every_trace_is_what_the_format_asks_for() {
        let dma = DmaModel::new(30_000, 1_000_000_000, 3);
        for &strategy in StrategyKind::ALL {
            for dma in [DmaModel::ZERO, dma] {
                let trace = trace(strategy, dma);
                let text = written(std::slice::from_ref(&trace));
                let events = check(&text).unwrap_or_else(|error| panic!("{strategy}: {error}"));
                assert!(events > trace.records.len(), "nothing is left out");
                assert!(text.contains("\"eth0 queue 1 DMA\"") && text.contains("\"drop: no_buffer\""));
                let modelled = dma != DmaModel::ZERO;
                assert_eq!(
                    text.contains("\"ph\":\"b\""),
                    modelled,
                    "DMAs that take time have a length"
                );
                assert_eq!(
                    text.contains("\"ph\":\"X\""),
                    modelled || strategy != StrategyKind::Disabled
                );
            }
        }
    }

    #[test]
    fn nothing_and_what_was_overwritten_make_a_whole_file_too() {
        assert_eq!(check(&written(&[])), Ok(0));
        let mut trace = trace(StrategyKind::Timeout, DmaModel::ZERO);
        let lost = Record {
            number: 70,
            ..Record::new(trace.records[40].at, RecordKind::Lost)
        };
        trace.records.insert(40, lost);
        let mut other = trace.clone();
        other.nic = "n2.eth0".to_owned();
        let text = written(&[trace, other]);
        check(&text).expect("the format");
        assert!(text.contains("\"events\":70") && text.contains("\"n2\""));
        assert!(check("{\"traceEvents\":[{\"name\":\"x\",\"ph\":\"X\",\"pid\":1,\"tid\":1,\"ts\":1}]}").is_err());
    }
}
