//! A process that serves measurements, and the protocol with it: orders as lines of JSON on its standard input, answers
//! on its standard output.

use std::{
    io::{BufRead, BufReader, Lines, Write},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};

use super::{work::Work, world::Setting};

/// An order to the other side.
#[derive(Debug, Serialize, Deserialize)]
pub enum Order {
    /// Sets up the other side; gives it the address of the measuring side's interface.
    Begin { here: String },
    /// Prepares interface and authority with this setting.
    Prepare(Setting),
    /// Serves a measurement.
    Serve(Work),
    /// Serves these measurements in turns.
    ServeTurns(Vec<Work>),
}

/// How the other side can be reached.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Reach {
    /// TCP port; 0 where the measurement has none.
    pub port: u16,
    /// Thread that answers.
    pub thread: u32,
}

/// An answer of the other side.
#[derive(Debug, Serialize, Deserialize)]
pub enum Answer {
    Done { figure: Option<f64> },
    Ready(Reach),
    Error(String),
}

/// The handle of the process that serves measurements.
pub struct Partner {
    // It is closed before the process is waited for.
    orders: Option<ChildStdin>,
    answers: Lines<BufReader<ChildStdout>>,
    child: Child,
}

impl Partner {
    /// Starts this program with `command` as the serving side.
    pub fn start(mut command: Command, cores: &[usize]) -> anyhow::Result<Self> {
        let cores = cores.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        let mut child = command
            .args(["openmx", "--other-side", "--cores", &cores])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start the other side")?;
        let orders = child.stdin.take();
        let answers = BufReader::new(child.stdout.take().context("no pipe")?).lines();
        Ok(Self { orders, answers, child })
    }

    /// Returns the number of the process that was started.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Gives an order and waits until it is carried out.
    pub fn order(&mut self, order: &Order) -> anyhow::Result<Option<f64>> {
        self.tell(order)?;
        self.done()
    }

    /// Gives an order and waits until the other side can be reached.
    pub fn begin(&mut self, order: &Order) -> anyhow::Result<Reach> {
        self.tell(order)?;
        match self.hear()? {
            Answer::Ready(reach) => Ok(reach),
            Answer::Error(sentence) => bail!("the other side: {sentence}"),
            Answer::Done { .. } => bail!("the other side is out of step"),
        }
    }

    /// Waits until an order is carried out.
    pub fn done(&mut self) -> anyhow::Result<Option<f64>> {
        match self.hear()? {
            Answer::Done { figure } => Ok(figure),
            Answer::Error(sentence) => bail!("the other side: {sentence}"),
            Answer::Ready(_) => bail!("the other side is out of step"),
        }
    }

    fn tell(&mut self, order: &Order) -> anyhow::Result<()> {
        let orders = self.orders.as_mut().context("the other side has ended")?;
        writeln!(orders, "{}", serde_json::to_string(order)?).context("the other side has ended")
    }

    fn hear(&mut self) -> anyhow::Result<Answer> {
        let line = self.answers.next().context("the other side has ended")??;
        serde_json::from_str(&line).with_context(|| format!("the other side said {line}"))
    }
}

impl Drop for Partner {
    fn drop(&mut self) {
        self.orders = None;
        _ = self.child.wait();
    }
}
