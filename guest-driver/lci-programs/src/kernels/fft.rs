//! A Fourier transform of *n* × *n* points in rows, one region for each: rows, a twist, and transpositions in which all nodes read from
//! all (R-BV6).

use super::{Settings, check, share};
use crate::{
    node::{Node, ProgramError},
    numbers::Numbers,
    region::Regions,
};

type Point = (f64, f64);
type Rows = Vec<Vec<Point>>;

const POINT_LEN: usize = 16;

fn multiply(a: Point, b: Point) -> Point {
    (a.0 * b.0 - a.1 * b.1, a.0 * b.1 + a.1 * b.0)
}

/// The *k*-th root of *n*.
fn root(k: usize, n: usize) -> Point {
    let angle = -std::f64::consts::TAU * (k % n) as f64 / n as f64;
    (angle.cos(), angle.sin())
}

/// The transform of a power of two of points.
fn transform(points: &[Point]) -> Vec<Point> {
    let n = points.len();
    if n == 1 {
        return points.to_vec();
    }
    let half = |from: usize| transform(&points.iter().skip(from).step_by(2).copied().collect::<Vec<_>>());
    let (even, odd) = (half(0), half(1));
    let mut result = vec![(0.0, 0.0); n];
    for k in 0..n / 2 {
        let twisted = multiply(root(k, n), odd[k]);
        result[k] = (even[k].0 + twisted.0, even[k].1 + twisted.1);
        result[k + n / 2] = (even[k].0 - twisted.0, even[k].1 - twisted.1);
    }
    result
}

fn input(n: usize) -> Rows {
    let mut numbers = Numbers::new(5);
    let mut point = || (numbers.next_f64() - 0.5, numbers.next_f64() - 0.5);
    (0..n).map(|_| (0..n).map(|_| point()).collect()).collect()
}

fn transposed(rows: &Rows, own: std::ops::Range<usize>) -> Rows {
    own.map(|column| rows.iter().map(|row| row[column]).collect()).collect()
}

/// The rows after the first transposition: transformed, and twisted.
fn first(rows: &mut Rows, start: usize, n: usize) {
    for (row, number) in rows.iter_mut().zip(start..) {
        *row = transform(row);
        for (point, column) in row.iter_mut().zip(0..) {
            *point = multiply(*point, root(number * column, n * n));
        }
    }
}

fn second(rows: &mut Rows) {
    rows.iter_mut().for_each(|row| *row = transform(row));
}

/// The transform of all points in one process.
pub fn sequential(n: usize) -> Vec<u8> {
    let mut rows = transposed(&input(n), 0..n);
    first(&mut rows, 0, n);
    rows = transposed(&rows, 0..n);
    second(&mut rows);
    encode(&transposed(&rows, 0..n))
}

fn encode(rows: &[Vec<Point>]) -> Vec<u8> {
    let points = rows.iter().flatten();
    points
        .flat_map(|(re, im)| [re.to_le_bytes(), im.to_le_bytes()])
        .flatten()
        .collect()
}

fn decode(bytes: &[u8]) -> Vec<Point> {
    let numbers: Vec<_> = bytes
        .as_chunks()
        .0
        .iter()
        .map(|number| f64::from_le_bytes(*number))
        .collect();
    numbers.as_chunks::<2>().0.iter().map(|[re, im]| (*re, *im)).collect()
}

async fn all<N: Node>(regions: &Regions<'_, N>, n: usize) -> Result<Rows, ProgramError> {
    let mut rows = Vec::new();
    for row in 0..n {
        rows.push(decode(&regions.read(row as u32).await?));
    }
    Ok(rows)
}

async fn put<N: Node>(regions: &Regions<'_, N>, rows: &Rows, start: usize) -> Result<(), ProgramError> {
    for (row, number) in rows.iter().zip(start..) {
        let bytes = encode(std::slice::from_ref(row));
        regions
            .write(number as u32, |region| region.copy_from_slice(&bytes))
            .await?;
    }
    regions.barrier().await
}

/// Transforms `n` × `n` points, `n` a power of two; returns the nanoseconds that it took.
///
/// # Errors
/// [`ProgramError`] of the node, or if the result is not that of [`sequential`].
pub async fn run<N: Node>(node: &N, settings: &Settings, n: usize, expected: &[u8]) -> Result<u64, ProgramError> {
    if !n.is_power_of_two() {
        return Err(ProgramError::Settings(
            "a transform has a power of two of rows".to_owned(),
        ));
    }
    let regions = Regions::new(node, n * POINT_LEN, settings.interrupts, settings.patience_ns).await?;
    let own = share(n, node.size(), node.me());
    put(&regions, &input(n)[own.clone()].to_vec(), own.start).await?;
    let start_ns = node.now_ns();
    for step in 0..3 {
        let mut rows = transposed(&all(&regions, n).await?, own.clone());
        regions.barrier().await?;
        match step {
            0 => first(&mut rows, own.start, n),
            1 => second(&mut rows),
            _ => {}
        }
        node.compute((own.len() * n) as u64 * 50).await;
        put(&regions, &rows, own.start).await?;
    }
    let took_ns = node.now_ns() - start_ns;
    let result = all(&regions, n).await?;
    regions.finish().await?;
    check(node.me(), "the transform", &encode(&result), expected)?;
    Ok(took_ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_transform_is_that_of_its_definition() {
        let n = 4;
        let points: Vec<_> = input(n).concat();
        let result = decode(&sequential(n));
        for (k, found) in result.iter().enumerate() {
            let terms = points
                .iter()
                .enumerate()
                .map(|(at, point)| multiply(*point, root(at * k, n * n)));
            let sum = terms.fold((0.0, 0.0), |sum, term| (sum.0 + term.0, sum.1 + term.1));
            assert!(
                (sum.0 - found.0).abs() + (sum.1 - found.1).abs() < 1e-9,
                "{k}: {found:?} {sum:?}"
            );
        }
    }
}
