//! Instructions per packet of the receive pipeline, for each strategy, in batches of 64 as `vnicd` takes them.
//!
//! Callgrind (`gungraun`) counts them, so a busy machine changes no figure. `cargo bench -p weft-firmware` runs the benchmark;
//! it needs valgrind and `gungraun-runner` in the version of the library.

// gungraun's macros make public items without documentation.
#![allow(missing_docs)]

use std::hint::black_box;

use ether::Time;
use firmware::{
    Card, CardConfig, Coalescing, DmaModel, Event, MisorderSettings, PacketInfo, PipelineConfig, RxPipeline,
    SteeringMode, SteeringSettings, StrategyKind,
};
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
    queue_with(strategy, DmaModel::new(700, 16_000_000_000, 2))
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
#[bench::adaptive(args = (StrategyKind::Adaptive), setup = queue)]
#[bench::adaptive_open_mx(args = (StrategyKind::AdaptiveOpenMx), setup = queue)]
#[bench::adaptive_stream(args = (StrategyKind::AdaptiveStream), setup = queue)]
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
#[bench::adaptive(args = (StrategyKind::Adaptive), setup = queue)]
#[bench::adaptive_open_mx(args = (StrategyKind::AdaptiveOpenMx), setup = queue)]
#[bench::adaptive_stream(args = (StrategyKind::AdaptiveStream), setup = queue)]
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

/// A card with so many queues, all ready, and the header of a frame for it.
fn steered(queue_pairs: u16, mode: SteeringMode, ether_type: u16) -> (Card, [u8; firmware::INLINE_HEADER_LEN]) {
    let mut nic = Card::new(CardConfig {
        queue_pairs,
        ..CardConfig::default()
    });
    let settings = SteeringSettings {
        mode,
        ..SteeringSettings::DEFAULT
    };
    nic.steering_mut().set(settings).expect("no table");
    nic.steering_mut().set_ready(u64::MAX);
    let mut header = [0x06; firmware::INLINE_HEADER_LEN];
    header[12..14].copy_from_slice(&ether_type.to_be_bytes());
    match ether_type {
        0x0800 => header[14..24].copy_from_slice(&[0x45, 0, 0, 60, 0, 0, 0, 0, 64, 6]),
        0x86dd => header[14] = 0x60,
        _ => header[16] = 0x25,
    }
    (nic, header)
}

// The queues of 64 frames are chosen (M-GF9).
#[library_benchmark]
#[bench::one_queue(args = (1, SteeringMode::Endpoint, 0x86df), setup = steered)]
#[bench::mxoe(args = (4, SteeringMode::Endpoint, 0x86df), setup = steered)]
#[bench::ipv4_tcp(args = (4, SteeringMode::Endpoint, 0x0800), setup = steered)]
#[bench::ipv6_tcp(args = (4, SteeringMode::Endpoint, 0x86dd), setup = steered)]
#[bench::off(args = (4, SteeringMode::Off, 0x0800), setup = steered)]
fn steer_64((mut nic, header): (Card, [u8; firmware::INLINE_HEADER_LEN])) -> Card {
    for _ in 0..BATCH {
        black_box(nic.steering_mut().queue(black_box(&header)));
    }
    nic
}

/// A card whose injector has this degree, and the header of a fragment of a medium message.
fn misordering(degree: u8) -> (Card, [u8; firmware::INLINE_HEADER_LEN]) {
    let (mut nic, mut header) = steered(1, SteeringMode::Flow, 0x86df);
    nic.misorder_mut()
        .set(MisorderSettings::of_degree(degree))
        .expect("a degree");
    // A marked TINY makes the partner known; then fragment 6 of 32 KiB, cut in 1452 bytes.
    header[16] = 0xa5;
    nic.misorder_mut().sent(&header);
    header[16] = 0x27;
    header[20..24].copy_from_slice(&(32u32 << 10).to_be_bytes());
    header[40..44].copy_from_slice(&[1452u16.to_be_bytes()[0], 1452u16.to_be_bytes()[1], 6, 0]);
    (nic, header)
}

// 64 fragments are looked at by the injector (M-GF6).
#[library_benchmark]
#[bench::off(args = (0), setup = misordering)]
#[bench::degree_3(args = (3), setup = misordering)]
fn misorder_64((mut nic, header): (Card, [u8; firmware::INLINE_HEADER_LEN])) -> Card {
    for _ in 0..BATCH {
        black_box(nic.misorder_mut().sent(black_box(&header)));
    }
    nic
}

library_benchmark_group!(
    name = receive,
    benchmarks = [
        batch_of_64_unmarked,
        batch_of_64_marked,
        batch_of_64_modelled_dma,
        classify_64,
        steer_64,
        misorder_64
    ]
);

main!(library_benchmark_groups = receive);
