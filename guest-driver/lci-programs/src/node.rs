//! What a program needs of LCI.

use lci_port::GroupId;

/// Where a packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Target {
    /// To one node.
    Node(usize),
    /// To all others of a group; [`GroupId::ALL`] is a broadcast.
    Group(GroupId),
}

/// A packet that arrived.
#[derive(Clone, Copy, Debug)]
pub struct Arrival<'a> {
    /// The node that sent it.
    pub source: usize,
    /// The group that it was for; none if it was for this node alone.
    pub group: Option<GroupId>,
    /// Its bytes.
    pub bytes: &'a [u8],
}

/// What an upcall may do besides looking at the packet: send. What finds no free packet is sent as soon as there is one.
pub trait Outlet {
    /// Sends a packet made of two parts.
    fn send(&self, target: Target, head: &[u8], body: &[u8]);
}

/// The program's function for packets. It runs within [`Node::poll`], or at an interrupt.
pub type Upcall = Box<dyn FnMut(&dyn Outlet, Arrival<'_>) + Send>;

/// Why a program did not end well.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    /// LCI refused something, or its port does not work.
    #[error(transparent)]
    Lci(#[from] lci_port::LciError),
    /// A result is not the sequential one.
    #[error("node {node}: {what} is {found}, and a sequential run has {expected}")]
    Wrong {
        /// The node.
        node: usize,
        /// What was compared.
        what: String,
        /// Its value.
        found: String,
        /// The right value.
        expected: String,
    },
    /// A node that is needed is gone.
    #[error("node {node} is gone")]
    Gone {
        /// The node.
        node: usize,
    },
    /// Another node has removed this one.
    #[error("node {by} has removed this node: it was silent for too long, or the network between the two is broken")]
    Excluded {
        /// The other node.
        by: usize,
    },
    /// Nothing happened for too long.
    #[error("nothing has happened for {seconds} s while {what}")]
    Stalled {
        /// What was waited for.
        what: &'static str,
        /// How long.
        seconds: u64,
    },
    /// Settings that the program cannot run with.
    #[error("{0}")]
    Settings(String),
}

/// LCI as programs see it, live or simulated.
#[expect(
    async_fn_in_trait,
    reason = "programs run on one thread, and need no bounds on their futures"
)]
pub trait Node {
    /// This node.
    fn me(&self) -> usize;

    /// Nodes of the program.
    fn size(&self) -> usize;

    /// Nanoseconds of the node's clock.
    fn now_ns(&self) -> u64;

    /// How long the program waits for something that must happen.
    fn patience_ns(&self) -> u64 {
        PATIENCE_NS
    }

    /// Sets the function for packets. Packets that came before wait for it.
    fn set_upcall(&self, upcall: Upcall);

    /// Sends a packet made of two parts, if a packet is free; false if not.
    ///
    /// # Errors
    /// [`ProgramError`] if it cannot be sent at all.
    fn try_send(&self, target: Target, head: &[u8], body: &[u8]) -> Result<bool, ProgramError>;

    /// Takes what has arrived, and calls the upcall for each packet; returns how many there were.
    ///
    /// # Errors
    /// [`ProgramError`] if the port does not work or a node was removed.
    fn poll(&self) -> Result<usize, ProgramError>;

    /// Gives time to others after a poll that found nothing.
    async fn idle(&self);

    /// Computes for so many nanoseconds. Live, the computation itself takes its time, and this is nothing.
    async fn compute(&self, ns: u64);

    /// Whether the program lets itself be interrupted.
    ///
    /// # Errors
    /// [`ProgramError`] if it cannot be.
    fn set_interrupts(&self, enabled: bool) -> Result<(), ProgramError>;

    /// Creates a group; all members call this.
    ///
    /// # Errors
    /// [`ProgramError`] if a member is gone or the list is none.
    async fn create_group(&self, members: &[usize]) -> Result<GroupId, ProgramError>;
}

/// How long a program waits for something that must happen, unless it is told otherwise.
pub const PATIENCE_NS: u64 = 60_000_000_000;

/// Polls until `done` has something.
///
/// # Errors
/// [`ProgramError`] of the node, or if nothing arrives for [`Node::patience_ns`].
pub async fn wait_until<N: Node, T>(
    node: &N,
    what: &'static str,
    done: impl FnMut() -> Option<T>,
) -> Result<T, ProgramError> {
    wait_for(node, what, node.patience_ns(), done).await
}

/// Polls until `done` has something, with a limit of its own.
///
/// # Errors
/// [`ProgramError`] of the node, or if nothing arrives for `patience_ns`.
pub async fn wait_for<N: Node, T>(
    node: &N,
    what: &'static str,
    patience_ns: u64,
    mut done: impl FnMut() -> Option<T>,
) -> Result<T, ProgramError> {
    let mut since_ns = None;
    loop {
        if let Some(value) = done() {
            return Ok(value);
        }
        if node.poll()? > 0 {
            since_ns = None;
            continue;
        }
        let now_ns = node.now_ns();
        if now_ns - *since_ns.get_or_insert(now_ns) > patience_ns {
            let seconds = patience_ns / 1_000_000_000;
            return Err(ProgramError::Stalled { what, seconds });
        }
        node.idle().await;
    }
}

/// Sends a packet; polls until one is free.
///
/// # Errors
/// As [`wait_until`], and [`Node::try_send`].
pub async fn send<N: Node>(node: &N, target: Target, head: &[u8], body: &[u8]) -> Result<(), ProgramError> {
    let mut outcome = Ok(());
    wait_until(node, "a packet is to become free", || {
        match node.try_send(target, head, body) {
            Ok(sent) => sent.then_some(()),
            Err(error) => {
                outcome = Err(error);
                Some(())
            }
        }
    })
    .await?;
    outcome
}
