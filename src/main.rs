//! Starts things: argument parsing, logging, exit codes.

use cx10::cli::{self, Command, conform, litmus, run, serve, show, shrink};
use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = match cli::parse(std::env::args_os()) {
        Ok(cli) => cli,
        Err(code) => return ExitCode::from(code),
    };
    cli::init_logging(&cli.log);
    let shown = match &cli.command {
        Command::Run(args) if args.print_config => show::print_config(&args.device),
        Command::Run(args) => match run::run(args, &cli.log) {
            Ok(code) => return ExitCode::from(code),
            Err(error) => {
                eprintln!("cx10: {error}");
                return ExitCode::from(error.exit_code());
            }
        },
        Command::Conform(args) => match conform::conform(args, &cli.log) {
            Ok(code) => return ExitCode::from(code),
            Err(error) => {
                eprintln!("cx10: {error}");
                return ExitCode::from(error.exit_code());
            }
        },
        Command::Serve(args) if args.print_config => show::print_config(&args.device),
        Command::Serve(args) => match serve::serve(args) {
            Ok(code) => return ExitCode::from(code),
            Err(error) => {
                eprintln!("cx10: {error}");
                return ExitCode::from(cli::EXIT_USAGE);
            }
        },
        Command::Litmus(args) => match litmus::litmus(args, cli.log.quiet > 0) {
            Ok(code) => return ExitCode::from(code),
            Err(error) if error.is_broken_pipe() => return ExitCode::from(cli::EXIT_CLEAN),
            Err(error) => {
                eprintln!("cx10: {error}");
                return ExitCode::from(cli::EXIT_USAGE);
            }
        },
        Command::Shrink(args) => match shrink::shrink(args, cli.log.quiet > 0) {
            Ok(code) => return ExitCode::from(code),
            Err(error) => {
                eprintln!("cx10: {error}");
                return ExitCode::from(error.exit_code());
            }
        },
        Command::Trace(args) => show::trace(args),
        Command::Profile(args) => show::profile(&args.command),
        Command::Completions { shell } => show::completions(*shell),
        Command::Man { subcommand, out } => show::man(subcommand, out.as_deref()),
    };
    match shown {
        Ok(()) => ExitCode::from(cli::EXIT_CLEAN),
        Err(error) if error.is_broken_pipe() => ExitCode::from(cli::EXIT_CLEAN),
        Err(error) => {
            eprintln!("cx10: {error}");
            ExitCode::from(cli::EXIT_USAGE)
        }
    }
}
