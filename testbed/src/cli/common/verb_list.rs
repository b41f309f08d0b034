//! A list of verbs as a type: its values are what the command line says, and each is carried out by the function that is
//! named behind it.

/// Makes the type of a list of verbs; `CommonOptions` has to be in scope. A verb that has its arguments in common with
/// others is described in the list, any other one at its arguments.
macro_rules! verb_list {
    ($(#[$of_list:meta])* $list:ident { $($(#[$of_verb:meta])* $verb:ident($args:ty) => $run:path,)* }) => {
        $(#[$of_list])*
        #[derive(Debug, clap::Subcommand)]
        pub(super) enum $list {
            $($(#[$of_verb])* $verb($args),)*
        }

        impl $list {
            /// Carries the verb out; the result is the exit code of the program.
            pub(super) fn run(
                options: &CommonOptions,
                verb: &Self,
            ) -> anyhow::Result<std::process::ExitCode> {
                match verb {
                    $(Self::$verb(args) => $run(options, args).map(std::process::Termination::report),)*
                }
            }
        }
    };
}

pub(in crate::cli) use verb_list;
