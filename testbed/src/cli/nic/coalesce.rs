//! `weft nic coalesce`: shows and changes when cards interrupt their guests.

use anyhow::Result;

use crate::{
    cli::common::{CommonOptions, Named, ON_OFF, client, one_of, ports, show},
    lab::{
        settings::{FRAMES_MAX, coalescing_delay_argument},
        units::Span,
    },
    report::table::{self, Columns},
    supervisor_client::protocol::Request,
    vnicd_client::report::{CoalescingChange, CoalescingSettings},
};

/// Show or change when a card interrupts its guest.
#[derive(Debug, clap::Args)]
#[command(add = show(&[
    ("weft nic coalesce n1", "what is set"),
    ("weft nic coalesce n1 open-mx --delay 1ms", "another strategy"),
    ("weft nic coalesce n1.eth0 timeout --delay 75us --frames 32", "with a count limit"),
]))]
pub(in crate::cli) struct CoalesceArgs {
    /// `NODE` or `NODE.ethN`.
    nic: String,
    /// The strategy, such as open-mx. An unknown name is answered with the list.
    strategy: Option<String>,
    /// Longest time a packet waits for its interrupt.
    #[arg(long, value_name = "TIME", value_parser = coalescing_delay_argument)]
    delay: Option<Span>,
    /// Interrupt when this many packets wait; 0 for no limit.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=i64::from(FRAMES_MAX)))]
    frames: Option<u32>,
    /// Whether the card honours latency marks.
    #[arg(long, value_parser = one_of(ON_OFF))]
    marks: Option<bool>,
}

pub(in crate::cli) fn run(options: &CommonOptions, args: &CoalesceArgs) -> Result<()> {
    let mut change = CoalescingChange::default();
    change.all.strategy = args.strategy.clone();
    change.all.delay_ns = args.delay.map(|delay| delay.0);
    change.all.frames_max = args.frames;
    change.all.marks = args.marks;
    let client = client(options)?;
    let mut rows = Vec::new();
    for port in ports(&client, Some(&args.nic))? {
        let request = Request::Coalesce {
            port: port.name.clone(),
            change: change.clone(),
        };
        rows.push(Named {
            nic: port.name,
            settings: client.request::<CoalescingSettings>(&request)?,
        });
    }
    if !options.json {
        rows = rows.into_iter().flat_map(with_its_queues).collect();
    }
    let columns = Columns::<Named<CoalescingSettings>>::default()
        .words("NIC", |row| row.nic.clone())
        .words("STRATEGY", |row| row.settings.all.strategy.clone())
        .numbers("DELAY", |row| Span(row.settings.all.delay_ns).to_string())
        .numbers("FRAMES", |row| match row.settings.all.frames_max {
            0 => "-".to_owned(),
            frames => frames.to_string(),
        })
        .words("MARKS", |row| {
            if row.settings.all.marks { "on" } else { "off" }.to_owned()
        });
    table::print(options.json, &rows, &columns)
}

/// Makes table rows from the settings of a card, and of each queue whose settings differ.
fn with_its_queues(row: Named<CoalescingSettings>) -> Vec<Named<CoalescingSettings>> {
    let queues = row.settings.queues.iter().map(|queue| Named {
        nic: format!("{} queue {}", row.nic, queue.queue),
        settings: CoalescingSettings {
            all: queue.coalescing.clone(),
            watchdog_ns: queue.watchdog_ns,
            queues: Vec::new(),
        },
    });
    let queues: Vec<_> = queues.collect();
    std::iter::once(row).chain(queues).collect()
}
