//! Instructions per packet of the receive pipeline, for each strategy, in batches of 64 as `vnicd` takes them.
//!
//! Counted by Callgrind (`gungraun`), so the figures are the same on a busy machine. Run with `cargo bench -p firmware`;
//! needs valgrind and `gungraun-runner` of the same version as the library.

// gungraun's macros make public items without documentation.
#![allow(missing_docs)]

use std::hint::black_box;

use ether::Time;
use firmware::{Coalescing, DmaModel, Event, PacketInfo, PipelineConfig, RxPipeline, StrategyKind};
use gungraun::prelude::*;

/// Frames taken in one go.
const BATCH: u64 = 64;

/// A queue that has already seen traffic.
fn queue(strategy: StrategyKind) -> RxPipeline {
    queue_with(strategy, DmaModel::ZERO)
}

fn queue_with(strategy: StrategyKind, dma: DmaModel) -> RxPipeline {
    let coalescing = Coalescing {
        strategy,
        ..Coalescing::DEFAULT
    };
    let mut rx = RxPipeline::new(&PipelineConfig { coalescing, dma });
    batch(&mut rx, 1_000, false);
    rx
}

fn modelled(strategy: StrategyKind) -> RxPipeline {
    queue_with(
        strategy,
        DmaModel {
            setup_ns: 700,
            rate_bps: 16_000_000_000,
            parallelism: 2,
        },
    )
}

#[inline(always)]
fn batch(rx: &mut RxPipeline, now_ns: u64, marked: bool) -> u64 {
    let now = Time::from_nanos(now_ns);
    for _ in 0..BATCH {
        let _ = black_box(rx.arrive(now, black_box(PacketInfo { len: 64, marked })));
    }
    let mut published = 0;
    while let Some(event) = rx.poll(now) {
        if let Event::Completed { count, .. } = black_box(event) {
            published += u64::from(count);
        }
    }
    published
}

// 64 unmarked frames arrive and complete.
#[library_benchmark]
#[bench::disabled(args = (StrategyKind::Disabled), setup = queue)]
#[bench::timeout(args = (StrategyKind::Timeout), setup = queue)]
#[bench::open_mx(args = (StrategyKind::OpenMx), setup = queue)]
#[bench::stream(args = (StrategyKind::Stream), setup = queue)]
fn batch_of_64_unmarked(mut rx: RxPipeline) -> RxPipeline {
    black_box(batch(&mut rx, 2_000, false));
    rx
}

// 64 marked frames arrive and complete.
#[library_benchmark]
#[bench::disabled(args = (StrategyKind::Disabled), setup = queue)]
#[bench::timeout(args = (StrategyKind::Timeout), setup = queue)]
#[bench::open_mx(args = (StrategyKind::OpenMx), setup = queue)]
#[bench::stream(args = (StrategyKind::Stream), setup = queue)]
fn batch_of_64_marked(mut rx: RxPipeline) -> RxPipeline {
    black_box(batch(&mut rx, 2_000, true));
    rx
}

// 64 unmarked frames arrive, with a modelled DMA (which does not complete in time).
#[library_benchmark]
#[bench::timeout(args = (StrategyKind::Timeout), setup = modelled)]
fn batch_of_64_modelled_dma(mut rx: RxPipeline) -> RxPipeline {
    black_box(batch(&mut rx, 2_000, false));
    rx
}

// The mark of 64 headers is read.
#[library_benchmark]
#[bench::mxoe(args = (0x86df))]
#[bench::ipv4(args = (0x0800))]
fn classify_64(ether_type: u16) -> u32 {
    let mut header = [0x80; firmware::INLINE_HEADER_LEN];
    header[12..14].copy_from_slice(&ether_type.to_be_bytes());
    (0..BATCH)
        .map(|_| u32::from(PacketInfo::classify(black_box(&header), 64, true).marked))
        .sum()
}

library_benchmark_group!(
    name = receive,
    benchmarks = [
        batch_of_64_unmarked,
        batch_of_64_marked,
        batch_of_64_modelled_dma,
        classify_64
    ]
);

main!(library_benchmark_groups = receive);
