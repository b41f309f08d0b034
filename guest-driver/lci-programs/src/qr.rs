//! QR factorization by Householder reflections with column pivoting (R-BV4): columns are spread over the nodes in turn. In each step
//! all agree on the longest column (reduce to all), and its owner broadcasts the reflection.

use crate::{
    messages::{Forwarding, Messages},
    node::{Node, ProgramError},
    numbers::{Numbers, check_sum},
};

const LONGEST: u16 = 1;
const AGREED: u16 = 2;
const REFLECTION: u16 = 3;

/// A column of the matrix and whether it had its turn.
#[derive(Clone, Debug, PartialEq)]
struct Column {
    number: usize,
    values: Vec<f64>,
    is_done: bool,
}

impl Column {
    fn new(size: usize, number: usize) -> Self {
        let mut numbers = Numbers::new(number as u64 + 77);
        Self {
            number,
            values: (0..size).map(|_| numbers.next_f64() - 0.5).collect(),
            is_done: false,
        }
    }

    /// The square of its length from row `step` on.
    fn square(&self, step: usize) -> f64 {
        self.values[step..].iter().map(|value| value * value).sum()
    }

    /// The reflection that clears this column below row `step`.
    fn reflection(&self, step: usize) -> Vec<f64> {
        let mut v = self.values[step..].to_vec();
        let norm = self.square(step).sqrt();
        v[0] += if v[0] < 0.0 { -norm } else { norm };
        let length = v.iter().map(|value| value * value).sum::<f64>().sqrt();
        if length > 0.0 {
            v.iter_mut().for_each(|value| *value /= length);
        }
        v
    }

    fn reflect(&mut self, step: usize, v: &[f64]) {
        let rows = &mut self.values[step..];
        let product: f64 = rows.iter().zip(v).map(|(value, v)| value * v).sum();
        for (value, v) in rows.iter_mut().zip(v) {
            *value -= 2.0 * product * v;
        }
    }
}

/// The longest of some columns that had no turn: its square and its number; the lower number wins.
fn longest(columns: &[Column], step: usize) -> (f64, usize) {
    let open = columns.iter().filter(|column| !column.is_done);
    open.map(|column| (column.square(step), column.number))
        .fold((-1.0, usize::MAX), longer)
}

fn longer(a: (f64, usize), b: (f64, usize)) -> (f64, usize) {
    if b.0 > a.0 || b.0 == a.0 && b.1 < a.1 { b } else { a }
}

/// One step at the owner of some columns.
fn apply(columns: &mut [Column], step: usize, pivot: usize, v: &[f64]) {
    for column in columns.iter_mut().filter(|column| !column.is_done) {
        column.reflect(step, v);
        column.is_done = column.number == pivot;
    }
}

/// A sequential run: the columns of R, in the order of the columns.
#[derive(Clone, Debug)]
pub struct Factorized(Vec<Column>);

/// The result of a sequential run.
pub fn sequential(size: usize) -> Factorized {
    let mut columns: Vec<_> = (0..size).map(|number| Column::new(size, number)).collect();
    for step in 0..size {
        let (_, pivot) = longest(&columns, step);
        let v = columns[pivot].reflection(step);
        apply(&mut columns, step, pivot, &v);
    }
    Factorized(columns)
}

fn encode((square, number): (f64, usize)) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&square.to_le_bytes());
    bytes[8..].copy_from_slice(&(number as u64).to_le_bytes());
    bytes
}

fn decode(bytes: &[u8]) -> Option<(f64, usize)> {
    let [square, number] = *bytes.as_chunks::<8>().0 else {
        return None;
    };
    Some((f64::from_le_bytes(square), u64::from_le_bytes(number) as usize))
}

/// Everybody's longest column: the nodes tell node 0, and that tells all.
async fn agree<N: Node>(messages: &Messages<'_, N>, own: (f64, usize)) -> Result<(f64, usize), ProgramError> {
    let node = messages.node();
    let nonsense = || ProgramError::Settings("a node sent no pivot".to_owned());
    if node.me() > 0 {
        messages.send(0, LONGEST, &encode(own)).await?;
        return decode(&messages.receive(0, AGREED).await?).ok_or_else(nonsense);
    }
    let mut longest = own;
    for other in 1..node.size() {
        let theirs = decode(&messages.receive(other, LONGEST).await?).ok_or_else(nonsense)?;
        longest = longer(longest, theirs);
    }
    messages.broadcast(AGREED, &encode(longest)).await?;
    Ok(longest)
}

/// Factorizes a matrix of `size` rows and columns and returns the time that it took in nanoseconds. `expected` is compared with the own
/// columns, if there is one: every bit is the same.
///
/// # Errors
/// [`ProgramError`] of the node, or if the result is another one.
pub async fn run<N: Node>(
    node: &N,
    size: usize,
    forwarding: Forwarding,
    expected: Option<&Factorized>,
) -> Result<u64, ProgramError> {
    let messages = Messages::new(node, forwarding);
    let (me, nodes) = (node.me(), node.size());
    let mut columns: Vec<_> = (me..size)
        .step_by(nodes)
        .map(|number| Column::new(size, number))
        .collect();
    messages.barrier().await?;
    let start_ns = node.now_ns();
    for step in 0..size {
        let (_, pivot) = agree(&messages, longest(&columns, step)).await?;
        let owner = pivot % nodes;
        let v: Vec<f64> = if owner == me {
            let v = columns[pivot / nodes].reflection(step);
            let bytes: Vec<_> = v.iter().flat_map(|value| value.to_le_bytes()).collect();
            messages.broadcast(REFLECTION, &bytes).await?;
            v
        } else {
            let bytes = messages.receive(owner, REFLECTION).await?;
            bytes
                .as_chunks()
                .0
                .iter()
                .map(|word| f64::from_le_bytes(*word))
                .collect()
        };
        apply(&mut columns, step, pivot, &v);
        node.compute((columns.len() * (size - step)) as u64).await;
    }
    messages.barrier().await?;
    let took_ns = node.now_ns() - start_ns;
    let Some(Factorized(expected)) = expected else {
        return Ok(took_ns);
    };
    let is_right = columns.iter().all(|column| *column == expected[column.number]);
    if !is_right {
        let sum = |columns: &mut dyn Iterator<Item = &Column>| {
            check_sum(
                columns
                    .flat_map(|column| &column.values)
                    .flat_map(|value| value.to_le_bytes()),
            )
        };
        return Err(ProgramError::Wrong {
            node: me,
            what: "the check sum of R".to_owned(),
            found: format!("{:#x}", sum(&mut columns.iter())),
            expected: format!("{:#x}", sum(&mut expected.iter().skip(me).step_by(nodes))),
        });
    }
    Ok(took_ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_factorization_is_triangular_and_keeps_lengths() {
        let size = 20;
        let Factorized(columns) = sequential(size);
        for column in columns {
            let before = Column::new(size, column.number).square(0);
            assert!((column.square(0) - before).abs() < 1e-9, "reflections keep lengths");
        }
    }
}
