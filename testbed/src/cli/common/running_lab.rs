//! The running lab that a verb applies to.

use anyhow::{Result, bail};

use super::{
    failure::{Usage, did_you_mean},
    options::CommonOptions,
};
use crate::{
    state::{self, StateDir},
    supervisor_client::client::Client,
};

/// Returns the lab that the options name, or the only one that runs.
pub(in crate::cli) fn client(options: &CommonOptions) -> Result<Client> {
    let running = state::running_labs()?;
    let name = match (&options.lab, running.as_slice()) {
        (Some(name), _) if running.contains(name) => name,
        (Some(name), []) => bail!(
            "the lab {name} does not run (none does): `weft up` starts one{}",
            state::ended_labs()
        ),
        (Some(name), _) => {
            let hint = did_you_mean(name, &running);
            bail!("the lab {name} does not run{hint} (running: {})", running.join(", "));
        }
        (None, [only]) => only,
        (None, []) => bail!("no lab is running: `weft up` starts one{}", state::ended_labs()),
        (None, _) => {
            return Err(Usage(format!("several labs run, name one with --lab: {}", running.join(", "))).into());
        }
    };
    Ok(Client::new(StateDir::of(name)))
}
