//! A process that serves measurements, and what is said to it: orders as lines of JSON on its standard input, answers on its
//! standard output.

use std::{
    io::{BufRead, BufReader, Lines, Write},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};

use super::{work::Work, world::Setting};

/// What the other side is asked.
#[derive(Debug, Serialize, Deserialize)]
pub enum Order {
    /// Address of the interface of the side that measures.
    Begin { here: String },
    /// Interface and authority for this.
    Prepare(Setting),
    /// Serve a measurement.
    Serve(Work),
    /// Serve these in turns.
    ServeTurns(Vec<Work>),
}

/// How the other side can be reached.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Reach {
    /// TCP port, where it has one.
    pub port: u16,
    /// The thread that answers.
    pub thread: u32,
}

/// What it answers.
#[derive(Debug, Serialize, Deserialize)]
pub enum Answer {
    Done { figure: Option<f64> },
    Ready(Reach),
    Error(String),
}

/// See the module.
pub struct Partner {
    // Closed before it is waited for.
    orders: Option<ChildStdin>,
    answers: Lines<BufReader<ChildStdout>>,
    child: Child,
}

impl Partner {
    /// Starts this program by `command` as the one that serves.
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

    /// Number of the process that was started.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Gives an order and waits until it is obeyed.
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

    /// Waits until an order is obeyed.
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
