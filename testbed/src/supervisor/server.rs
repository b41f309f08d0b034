//! Answers requests on `weft.sock`, with a thread per connection. Only this user can connect, since only this user can
//! enter the folder.

use std::{
    io::{BufRead, BufReader, Read, Write},
    os::unix::net::{UnixListener, UnixStream},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use anyhow::{Context, Result, bail};
use serde::Serialize;

use super::{LabState, Shared, cable_carrier, guest_process, reconcile, reload, save, thread};
use crate::{
    supervisor_client::protocol::{Answer, LabPhase, NodePhase, REQUEST_LEN_MAX, Request},
    vnicd_client::{
        TrunkDirection,
        report::{CoalescingChange, CoalescingSettings, Direction, LinkChange, PortLinks, TrunkLinks},
    },
};

/// Number of simultaneous connections: each is a thread, and more parallel `weft exec` are a mistake in a script.
const CONNECTIONS_MAX: usize = 256;

/// Binds the socket and starts answering.
pub(super) fn listen(shared: Arc<Shared>) -> Result<()> {
    let path = shared.state.supervisor_socket()?;
    let listener = UnixListener::bind(&path).with_context(|| format!("cannot listen on {}", path.display()))?;
    thread("server", move || {
        let connections = Arc::new(AtomicUsize::new(0));
        for stream in listener.incoming() {
            let Ok(stream) = stream else { continue };
            if connections.fetch_add(1, Ordering::Relaxed) >= CONNECTIONS_MAX {
                connections.fetch_sub(1, Ordering::Relaxed);
                _ = answer::<()>(
                    &stream,
                    Err(anyhow::anyhow!("more than {CONNECTIONS_MAX} requests at once")),
                );
                continue;
            }
            let (shared, counter) = (Arc::clone(&shared), Arc::clone(&connections));
            let served = thread("client", move || {
                // A client that leaves in the middle of an answer does not wait for it.
                if let Err(error) = serve(&shared, &stream) {
                    tracing::debug!(%error, "a client went away");
                }
                counter.fetch_sub(1, Ordering::Relaxed);
            });
            if served.is_err() {
                connections.fetch_sub(1, Ordering::Relaxed);
            }
        }
    })
}

fn serve(shared: &Arc<Shared>, stream: &UnixStream) -> Result<()> {
    let mut reader = BufReader::new(stream);
    loop {
        let mut line = Vec::new();
        if (&mut reader).take(REQUEST_LEN_MAX).read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        let request = match serde_json::from_slice(&line) {
            Ok(request) => request,
            Err(error) => return answer::<()>(stream, Err(anyhow::anyhow!("not a request: {error}"))),
        };
        match request {
            Request::Status => answer(stream, Ok(shared.status(&shared.inner())))?,
            Request::Topology => answer(stream, Ok(shared.settings().topology(&shared.lab())))?,
            Request::Watch => return watch(shared, stream),
            Request::Restart { node } => answer(stream, guest_process::restart(shared, &node))?,
            Request::PowerOff { node, force } => answer(stream, cable_carrier::power_off(shared, &node, force))?,
            Request::Coalesce { port, change } => answer(stream, coalesce(shared, &port, &change))?,
            Request::Link {
                port,
                direction,
                change,
            } => answer(stream, cable(shared, &port, direction, &change))?,
            Request::Trunk {
                a,
                b,
                number,
                direction,
                change,
            } => answer(stream, trunk(shared, (&a, &b), number, direction, &change))?,
            Request::Apply {
                file,
                dry_run,
                other_file,
            } => answer(stream, reconcile::reconcile(shared, &file, dry_run, other_file))?,
            Request::Reload { program } => answer(stream, reload::reload(shared, &program))?,
            Request::Save { target, replace, stop } => {
                let order = save::Order {
                    target: &target,
                    replace,
                    stop,
                };
                if save::serve(shared, order, stream)? {
                    return end(shared, &mut reader);
                }
            }
            Request::Agent { node } => return agent(shared, &node, stream),
            Request::Down => return end(shared, &mut reader),
        }
    }
}

/// Ends the lab; the client waits for the end of this connection, which is the end of this process.
fn end(shared: &Shared, client: &mut impl Read) -> Result<()> {
    shared.update(|inner| inner.phase = LabPhase::Stopping);
    _ = client.read(&mut [0])?;
    Ok(())
}

pub(super) fn answer<T: Serialize>(mut stream: &UnixStream, result: Result<T>) -> Result<()> {
    let answer = match result {
        Ok(value) => Answer::Ok(value),
        Err(error) => Answer::Error(format!("{error:#}")),
    };
    let mut line = serde_json::to_vec(&answer)?;
    line.push(b'\n');
    Ok(stream.write_all(&line)?)
}

fn watch(shared: &Shared, stream: &UnixStream) -> Result<()> {
    let mut seen = None;
    loop {
        let news = shared.wait_for(None, |inner| {
            (seen != Some(inner.version)).then(|| (inner.version, shared.status(inner)))
        });
        let Some((version, status)) = news else { return Ok(()) };
        seen = Some(version);
        let stopping = status.phase == LabPhase::Stopping;
        answer(stream, Ok(status))?;
        if stopping {
            return Ok(());
        }
    }
}

pub(super) fn coalesce(shared: &Shared, port: &str, change: &CoalescingChange) -> Result<CoalescingSettings> {
    // The lock is kept while `vnicd` is asked, so that no older answer is remembered after this one.
    let mut settings = shared.settings();
    let now = shared.vnicd()?.change(port, change)?;
    settings.set_coalescing(port, now.clone());
    Ok(now)
}

/// Changes the cable of a card, which may lead to another card.
fn cable(shared: &Arc<Shared>, port: &str, direction: Direction, change: &LinkChange) -> Result<PortLinks> {
    let lab = shared.lab();
    let Some(far) = lab.far_end(port) else {
        return link(shared, port, direction, change);
    };
    let in_force = |port: &str| {
        shared
            .settings()
            .link(port)
            .cloned()
            .context("a cable without settings")
    };
    let before = in_force(far)?;
    if direction != Direction::FromGuest {
        link(shared, far, Direction::FromGuest, change)?;
    }
    if direction != Direction::ToGuest
        && let Err(refused) = link(shared, port, Direction::FromGuest, change)
    {
        if direction == Direction::Both {
            // Nothing is changed where one direction is refused.
            link(shared, far, Direction::FromGuest, &(&before.from_guest).into())?;
        }
        return Err(refused);
    }
    in_force(port)
}

/// Changes what is set at a card's own end of its cable.
pub(super) fn link(shared: &Arc<Shared>, port: &str, direction: Direction, change: &LinkChange) -> Result<PortLinks> {
    let lab = shared.lab();
    let ends = [Some(port), lab.far_end(port)].into_iter().flatten();
    let mut settings = shared.settings();
    let now = shared.vnicd()?.link(port, direction, change)?;
    let was_up: Vec<_> = ends.map(|end| (end, settings.link_is_up(end))).collect();
    settings.set_link(port, now.clone());
    let changed: Vec<_> = (was_up.into_iter())
        .filter(|(end, was_up)| settings.link_is_up(end) != *was_up)
        .collect();
    drop(settings);
    for (end, _) in changed {
        cable_carrier::apply_to(shared, end)?;
    }
    Ok(now)
}

pub(super) fn trunk(
    shared: &Shared,
    (a, b): (&str, &str),
    number: Option<usize>,
    direction: TrunkDirection,
    change: &LinkChange,
) -> Result<TrunkLinks> {
    let mut settings = shared.settings();
    let now = shared.vnicd()?.trunk((a, b), number, direction, change)?;
    settings.set_trunk(a, b, number.unwrap_or(1), now.clone());
    Ok(now)
}

fn agent(shared: &Shared, name: &str, stream: &UnixStream) -> Result<()> {
    let reachable = |inner: &mut LabState| match (inner.phase, inner.nodes.get(name)) {
        (_, None) => Some(Err(anyhow::anyhow!("there is no node {name} in this lab"))),
        // The agent will be there in a moment.
        (LabPhase::Starting | LabPhase::Up, Some(guest)) if guest.status.phase == NodePhase::Starting => None,
        (_, Some(guest)) => Some(match (&guest.channel, guest.why_no_agent()) {
            (Some(_), Some(why)) => Err(anyhow::anyhow!(why)),
            (Some(channel), None) => Ok(channel.clone()),
            (None, _) => Err(anyhow::anyhow!("{name} is {}", guest.status.phase.name())),
        }),
    };
    let found = guest_process::wait_for_start(shared, name, reachable);
    let channel = found.unwrap_or_else(|| Err(anyhow::anyhow!("{name} is {}", NodePhase::Starting.name())));
    let channel = match channel {
        Ok(channel) => channel,
        Err(error) => return answer::<()>(stream, Err(error)),
    };
    answer(stream, Ok(()))?;
    if let Err(error) = channel.relay(stream.try_clone()?) {
        bail!("the connection to the agent of {name} broke: {error}");
    }
    Ok(())
}
