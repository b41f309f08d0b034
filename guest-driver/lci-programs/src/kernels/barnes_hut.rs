//! Bodies that attract each other, by the algorithm of Barnes and Hut (R-BV5): in each step every node reads all bodies, builds the tree
//! of cells, moves its own bodies, and spins on a counter in the shared memory until all others have, so the kernel does not end where
//! interrupts are disabled.

use super::{COUNTER, Settings, check, share};
use crate::{
    node::{Node, ProgramError},
    numbers::Numbers,
    region::Regions,
};

/// Bodies of a region.
const BODIES: usize = 16;
const BODY_LEN: usize = 56;
/// A cell that is this much smaller than its distance is taken as one body.
const OPENING: f64 = 0.5;
const SOFTENING: f64 = 1e-3;
const STEP: f64 = 1e-3;
/// Cells within cells at most: bodies at one place are taken together there.
const DEPTH_MAX: usize = 40;

type Vector = [f64; 3];

#[derive(Clone, Copy, Debug, PartialEq)]
struct Body {
    at: Vector,
    speed: Vector,
    mass: f64,
}

impl Body {
    fn encode(&self) -> Vec<u8> {
        let all = self.at.iter().chain(&self.speed).chain([&self.mass]);
        all.flat_map(|number| number.to_le_bytes()).collect()
    }

    fn decode(bytes: &[u8]) -> Self {
        let number = |nth: usize| {
            bytes
                .as_chunks()
                .0
                .get(nth)
                .map_or(0.0, |number| f64::from_le_bytes(*number))
        };
        Self {
            at: [number(0), number(1), number(2)],
            speed: [number(3), number(4), number(5)],
            mass: number(6),
        }
    }

    fn advance(&mut self, pull: Vector) {
        for ((at, speed), pull) in self.at.iter_mut().zip(&mut self.speed).zip(pull) {
            *speed += pull * STEP;
            *at += *speed * STEP;
        }
    }
}

/// A cube of space: its mass, and the cubes in it.
struct Cell {
    centre: Vector,
    half: f64,
    mass: f64,
    /// Sum of the places of its bodies, weighted by mass.
    moment: Vector,
    single: Option<Body>,
    below: [Option<Box<Cell>>; 8],
}

impl Cell {
    fn new(centre: Vector, half: f64) -> Self {
        Self {
            centre,
            half,
            mass: 0.0,
            moment: [0.0; 3],
            single: None,
            below: Default::default(),
        }
    }

    fn of(bodies: &[Body]) -> Self {
        let farthest = bodies
            .iter()
            .flat_map(|body| body.at)
            .fold(1.0, |far: f64, at| far.max(at.abs()));
        let mut cell = Self::new([0.0; 3], farthest);
        bodies.iter().for_each(|body| cell.add(*body, 0));
        cell
    }

    fn add(&mut self, body: Body, depth: usize) {
        let is_first = self.mass == 0.0;
        self.mass += body.mass;
        for axis in 0..3 {
            self.moment[axis] += body.at[axis] * body.mass;
        }
        if is_first {
            self.single = Some(body);
        } else if depth < DEPTH_MAX {
            if let Some(single) = self.single.take() {
                self.push_down(single, depth);
            }
            self.push_down(body, depth);
        }
    }

    fn push_down(&mut self, body: Body, depth: usize) {
        let side = |axis: usize| body.at[axis] >= self.centre[axis];
        let nth = (0..3).map(|axis| usize::from(side(axis)) << axis).sum::<usize>();
        let half = self.half / 2.0;
        let centre = std::array::from_fn(|axis| self.centre[axis] + if side(axis) { half } else { -half });
        let cell = self.below[nth].get_or_insert_with(|| Box::new(Self::new(centre, half)));
        cell.add(body, depth + 1);
    }

    /// The pull of everything in the cell on what is `at`.
    fn pull(&self, at: Vector, pull: &mut Vector) {
        if self.mass == 0.0 {
            return;
        }
        let distance: Vector = std::array::from_fn(|axis| self.moment[axis] / self.mass - at[axis]);
        let square = distance.iter().map(|d| d * d).sum::<f64>() + SOFTENING;
        let has_below = self.below.iter().any(Option::is_some);
        if has_below && 4.0 * self.half * self.half > OPENING * OPENING * square {
            self.below.iter().flatten().for_each(|cell| cell.pull(at, pull));
            return;
        }
        let strength = self.mass / (square * square.sqrt());
        for axis in 0..3 {
            pull[axis] += distance[axis] * strength;
        }
    }
}

fn bodies(count: usize) -> Vec<Body> {
    let mut numbers = Numbers::new(9);
    let mut vector = |scale: f64| std::array::from_fn(|_| (numbers.next_f64() - 0.5) * scale);
    (0..count)
        .map(|nth| Body {
            at: vector(2.0),
            speed: vector(0.1),
            mass: 1.0 + nth as f64 / count as f64,
        })
        .collect()
}

fn encode(bodies: &[Body]) -> Vec<u8> {
    bodies.iter().flat_map(Body::encode).collect()
}

/// The bodies after some steps in one process.
pub fn sequential(regions: usize, steps: u64) -> Vec<u8> {
    let mut bodies = bodies(regions * BODIES);
    for _ in 0..steps {
        let cell = Cell::of(&bodies);
        for body in &mut bodies {
            let mut pull = [0.0; 3];
            cell.pull(body.at, &mut pull);
            body.advance(pull);
        }
    }
    encode(&bodies)
}

async fn all<N: Node>(regions: &Regions<'_, N>, count: usize) -> Result<Vec<Body>, ProgramError> {
    let mut bodies = Vec::new();
    for region in 0..count {
        let bytes = regions.read(region as u32).await?;
        bodies.extend(bytes.as_chunks::<BODY_LEN>().0.iter().map(|bytes| Body::decode(bytes)));
    }
    Ok(bodies)
}

/// Moves the bodies of `count` regions of 16 each for some steps; returns the nanoseconds that it took.
///
/// # Errors
/// [`ProgramError`] of the node, [`ProgramError::Stalled`] without interrupts, or if the result is not that of [`sequential`].
pub async fn run<N: Node>(
    node: &N,
    settings: &Settings,
    count: usize,
    steps: u64,
    expected: &[u8],
) -> Result<u64, ProgramError> {
    let regions = Regions::new(node, BODIES * BODY_LEN, settings.interrupts, settings.patience_ns).await?;
    let own = share(count, node.size(), node.me());
    let mut round = 0;
    let start = bodies(count * BODIES);
    for region in own.clone() {
        let bytes = encode(&start[region * BODIES..(region + 1) * BODIES]);
        regions
            .write(region as u32, |into| into.copy_from_slice(&bytes))
            .await?;
    }
    regions.barrier().await?;
    let start_ns = node.now_ns();
    for _ in 0..steps {
        let everything = all(&regions, count).await?;
        let cell = Cell::of(&everything);
        round += 1;
        regions.spin_barrier(COUNTER, round).await?;
        for region in own.clone() {
            let mut moved = everything[region * BODIES..(region + 1) * BODIES].to_vec();
            for body in &mut moved {
                let mut pull = [0.0; 3];
                cell.pull(body.at, &mut pull);
                body.advance(pull);
            }
            node.compute(BODIES as u64 * 2_000).await;
            let bytes = encode(&moved);
            regions
                .write(region as u32, |into| into.copy_from_slice(&bytes))
                .await?;
        }
        round += 1;
        regions.spin_barrier(COUNTER, round).await?;
    }
    let took_ns = node.now_ns() - start_ns;
    let result = all(&regions, count).await?;
    regions.finish().await?;
    check(node.me(), "the bodies", &encode(&result), expected)?;
    Ok(took_ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_pull_nearly_as_their_bodies_do() {
        let bodies = bodies(200);
        let cell = Cell::of(&bodies);
        let [mut approximate, mut exact] = [[0.0; 3]; 2];
        let at = [1.5, -1.5, 1.5];
        cell.pull(at, &mut approximate);
        for body in &bodies {
            Cell::of(&[*body]).pull(at, &mut exact);
        }
        for axis in 0..3 {
            assert!(
                (approximate[axis] - exact[axis]).abs() < 0.03 * exact[axis].abs(),
                "{approximate:?} {exact:?}"
            );
        }
    }
}
