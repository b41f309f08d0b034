//! How the MPI implementations of the image `mpi` start ranks in nodes, over Weft's libfabric provider, over TCP, or over
//! TCP's calls by ESP.

use std::time::Duration;

use anyhow::{Result, ensure};

use crate::guest_channel::{Exec, ExitStatus, GuestChannel};

/// Time that a guest may take to answer a short question about its ranks.
pub(super) const ANSWER_TIME: Duration = Duration::from_secs(30);

/// An MPI implementation of the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Mpi {
    /// Open MPI 4.1 of Debian.
    Open,
    /// MPICH 5.0 out of its Python wheel.
    Mpich,
}

/// What carries the messages of all ranks, also of those in one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    /// Weft's libfabric provider.
    Provider,
    /// TCP: Open MPI's own, or the provider `tcp` of MPICH's libfabric.
    Tcp,
    /// TCP's calls with the ranks under `esp-run`: streams without TCP and IP. Ranks of one node have TCP between them.
    Esp,
}

/// A node with the number of ranks that it runs.
pub(crate) type Share = (String, usize);

/// Returns whether a command in a guest succeeded.
pub(crate) fn is_success(status: ExitStatus) -> bool {
    status.shell_code() == 0
}

/// Spreads ranks evenly over nodes, in their order; nodes without ranks are left out.
pub(crate) fn shares(nodes: &[String], ranks: usize) -> Vec<Share> {
    let (each, more) = (ranks / nodes.len().max(1), ranks % nodes.len().max(1));
    let shares = nodes
        .iter()
        .enumerate()
        .map(|(index, node)| (node.clone(), each + usize::from(index < more)));
    shares.filter(|(_, ranks)| *ranks > 0).collect()
}

/// Fails unless the node has the MPI implementation.
pub(crate) fn check_image(channel: &GuestChannel, node: &str, mpi: Mpi) -> Result<()> {
    let output = channel.output(&["/bin/sh", "-c", "test -x \"$1\"", "sh", mpi.launcher()], ANSWER_TIME)?;
    ensure!(
        is_success(output.status),
        "{node} has no {}: nodes for MPI have `image = \"mpi\"` in the lab file",
        mpi.launcher()
    );
    Ok(())
}

/// Returns whether the node has a program of this name or path, where commands begin.
pub(crate) fn has_program(channel: &GuestChannel, program: &str) -> Result<bool> {
    let output = channel.output(
        &["/bin/sh", "-c", "command -v \"$1\" >/dev/null", "sh", program],
        ANSWER_TIME,
    )?;
    Ok(is_success(output.status))
}

impl Mpi {
    /// Returns the path of its `mpirun` in a node.
    const fn launcher(self) -> &'static str {
        match self {
            Self::Open => "/usr/bin/mpirun",
            Self::Mpich => "/opt/mpich/bin/mpirun",
        }
    }

    /// Returns the variables that choose the transport.
    const fn chosen(self, transport: Transport) -> &'static [(&'static str, &'static str)] {
        match (self, transport) {
            // Ranks that share a processor let each other run. Windows are emulated on messages.
            (Self::Open, Transport::Provider) => &[
                ("OMPI_MCA_pml", "cm"),
                ("OMPI_MCA_mtl", "ofi"),
                ("OMPI_MCA_mtl_ofi_provider_include", "mx"),
                ("OMPI_MCA_osc", "pt2pt,sm"),
                ("OMPI_MCA_mpi_yield_when_idle", "1"),
            ],
            (Self::Open, Transport::Tcp | Transport::Esp) => &[
                ("OMPI_MCA_pml", "ob1"),
                ("OMPI_MCA_btl", "self,tcp"),
                ("OMPI_MCA_mpi_yield_when_idle", "1"),
            ],
            // Without `NOLOCAL`, the ranks of a node would use memory that they share.
            (Self::Mpich, Transport::Provider) => &[
                ("FI_PROVIDER", "mx"),
                ("MPIR_CVAR_CH4_NETMOD", "ofi"),
                ("MPIR_CVAR_NOLOCAL", "1"),
            ],
            (Self::Mpich, Transport::Tcp | Transport::Esp) => &[
                ("FI_PROVIDER", "tcp"),
                ("MPIR_CVAR_CH4_NETMOD", "ofi"),
                ("MPIR_CVAR_NOLOCAL", "1"),
            ],
        }
    }

    /// Returns the command that runs a program over a transport, with further variables for all ranks. Each endpoint of the provider
    /// adds a line to the file `statistics`.
    pub(crate) fn exec(
        self,
        shares: &[Share],
        transport: Transport,
        statistics: &str,
        variables: &[(String, String)],
        command: &[String],
    ) -> Exec {
        let ranks: usize = shares.iter().map(|(_, ranks)| ranks).sum();
        let hosts: Vec<_> = shares.iter().map(|(node, ranks)| format!("{node}:{ranks}")).collect();
        let (hosts, ranks) = (hosts.join(","), ranks.to_string());
        let options = match self {
            Self::Open => vec!["-n", &ranks, "--host", &hosts, "--bind-to", "none"],
            Self::Mpich => vec!["-n", &ranks, "-hosts", &hosts],
        };
        let mut argv: Vec<_> = [self.launcher()]
            .into_iter()
            .chain(options)
            .map(str::to_owned)
            .collect();
        if self == Self::Open {
            // It passes on its own variables, and others only by name.
            let names = variables.iter().map(|(name, _)| name.as_str());
            let names = ["FI_MX_STATISTICS"].into_iter().chain(names);
            argv.extend(names.flat_map(|name| ["-x", name]).map(str::to_owned));
        }
        if transport == Transport::Esp {
            argv.push("esp-run".to_owned());
            // A connection that ESP cannot make is an error, so that what is measured is ESP; within a node there is none.
            if shares.iter().all(|(_, ranks)| *ranks == 1) {
                argv.push("--never-fall-back".to_owned());
            }
        }
        argv.extend(command.iter().cloned());
        let chosen = self.chosen(transport).iter().copied();
        let env = chosen.chain([("FI_MX_STATISTICS", statistics)]);
        let env = env.map(|(name, value)| (name.to_owned(), value.to_owned()));
        Exec {
            argv,
            env: env.chain(variables.iter().cloned()).collect(),
            ..Exec::default()
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Spreads ranks over nodes with these names.
    pub(crate) fn spread(nodes: &[&str], ranks: usize) -> Vec<Share> {
        let nodes: Vec<_> = nodes.iter().map(|&node| node.to_owned()).collect();
        shares(&nodes, ranks)
    }

    #[test]
    fn ranks_are_spread_evenly_over_the_nodes() {
        let share = |node: &str, ranks| (node.to_owned(), ranks);
        assert_eq!(
            spread(&["n1", "n2", "n3"], 4),
            [share("n1", 2), share("n2", 1), share("n3", 1)]
        );
        assert_eq!(spread(&["n1", "n2", "n3"], 2), [share("n1", 1), share("n2", 1)]);
        assert!(spread(&[], 2).is_empty());
    }

    #[test]
    fn both_implementations_are_given_hosts_the_provider_and_the_program() {
        let shares = spread(&["n1", "n2"], 3);
        let command = ["/shared/ring".to_owned(), "-v".to_owned()];
        let open = Mpi::Open.exec(&shares, Transport::Provider, "/tmp/s", &[], &command);
        assert_eq!(
            open.argv.join(" "),
            "/usr/bin/mpirun -n 3 --host n1:2,n2:1 --bind-to none -x FI_MX_STATISTICS /shared/ring -v"
        );
        let has = |exec: &Exec, name: &str, value: &str| {
            let wanted = (name.to_owned(), value.to_owned());
            assert!(exec.env.contains(&wanted), "{:?}", exec.env);
        };
        has(&open, "OMPI_MCA_mtl_ofi_provider_include", "mx");
        has(&open, "FI_MX_STATISTICS", "/tmp/s");
        let mpich = Mpi::Mpich.exec(&shares, Transport::Provider, "/tmp/s", &[], &command);
        assert_eq!(
            mpich.argv.join(" "),
            "/opt/mpich/bin/mpirun -n 3 -hosts n1:2,n2:1 /shared/ring -v"
        );
        has(&mpich, "FI_PROVIDER", "mx");
    }

    #[test]
    fn over_tcp_no_rank_sees_the_provider_and_variables_reach_all_ranks() {
        let shares = spread(&["n1", "n2"], 2);
        let variables = [("OMX_PROGRESS".to_owned(), "0".to_owned())];
        let command = ["imb".to_owned()];
        let open = Mpi::Open.exec(&shares, Transport::Tcp, "/tmp/s", &variables, &command);
        assert!(
            open.argv.join(" ").ends_with("-x FI_MX_STATISTICS -x OMX_PROGRESS imb"),
            "{:?}",
            open.argv
        );
        let value = |exec: &Exec, name: &str| {
            let found = exec.env.iter().find(|(known, _)| known == name);
            found.map(|(_, value)| value.clone())
        };
        assert_eq!(value(&open, "OMPI_MCA_btl").as_deref(), Some("self,tcp"));
        assert_eq!(value(&open, "OMX_PROGRESS").as_deref(), Some("0"));
        assert_eq!(value(&open, "OMPI_MCA_mtl"), None);
        let mpich = Mpi::Mpich.exec(&shares, Transport::Tcp, "/tmp/s", &variables, &command);
        assert_eq!(value(&mpich, "FI_PROVIDER").as_deref(), Some("tcp"));
    }

    #[test]
    fn over_esp_ranks_do_as_over_tcp_and_fall_back_only_within_a_node() {
        let command = ["imb".to_owned()];
        let exec = |ranks| Mpi::Open.exec(&spread(&["n1", "n2"], ranks), Transport::Esp, "/tmp/s", &[], &command);
        assert!(exec(2).argv.join(" ").ends_with(" esp-run --never-fall-back imb"));
        assert!(exec(3).argv.join(" ").ends_with("-x FI_MX_STATISTICS esp-run imb"));
        let over_tcp = Mpi::Open.exec(&spread(&["n1", "n2"], 2), Transport::Tcp, "/tmp/s", &[], &command);
        assert_eq!(exec(2).env, over_tcp.env);
    }
}
