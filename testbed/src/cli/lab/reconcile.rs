//! `weft up` on a running lab: shows the plan, and lets the supervisor carry it out.

use std::io::{self, Write};

use anyhow::{Result, ensure};

use super::{
    up::UpArgs,
    wait::{Patience, wait},
};
use crate::{
    cli::common::CommonOptions,
    lab::{
        Lab,
        plan::{Action, Plan},
    },
    prepare,
    report::{progress::Progress, say, table},
    supervisor_client::{client::Client, protocol::Request},
};

/// Reconciles a running lab with its file.
pub(super) fn reconcile(options: &CommonOptions, args: &UpArgs, client: &Client, lab: &Lab) -> Result<()> {
    let file = std::path::absolute(&args.file)?;
    let request = |dry_run| Request::Apply {
        file: file.clone(),
        dry_run,
        other_file: args.reconcile,
    };
    let plan: Plan = client.request(&request(true))?;
    show_plan(options, &plan, "changes of the running lab")?;
    if args.dry_run || plan.is_empty() {
        return Ok(());
    }
    let progress = Progress::new(0);
    let accel = client.status()?.accel;
    // The slow part is done here, where its progress is shown.
    prepare::means(lab, accel.into(), &progress)?;
    progress.finish();
    let done: Plan = client.request(&request(false))?;
    ensure!(
        done == plan,
        "the lab changed meanwhile, and other things were done:\n{}",
        done.text()
    );
    let come = [Action::Add, Action::Restart, Action::Start];
    let names: Vec<String> = come
        .into_iter()
        .flat_map(|action| plan.nodes(action).map(str::to_owned))
        .filter(|name| lab.node(name).is_some_and(|node| node.has_agent()))
        .collect();
    if !names.is_empty() {
        wait(client, &names, Patience::Silence(args.guests.boot_timeout))?;
    }
    if !options.json {
        say(format_args!("lab {} is as {} says", lab.name, args.file.display()));
    }
    Ok(())
}

/// Prints a plan under a heading.
pub(super) fn show_plan(options: &CommonOptions, plan: &Plan, what: &str) -> Result<()> {
    if options.json {
        return table::print_json(plan);
    }
    let text = if plan.is_empty() {
        format!("lab {}: nothing to do\n", plan.lab)
    } else {
        format!("lab {}: {what}:\n{}", plan.lab, plan.text())
    };
    Ok(io::stdout().write_all(text.as_bytes())?)
}
