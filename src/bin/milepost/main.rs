//! `milepost`: looks into a store file, read-only, beside a running trainer too.
//!
//! Exit status: 0 all is well, 1 damage was found, 2 the command could not be run. With `--json` what
//! went wrong is on standard output as JSON too.

#![forbid(unsafe_code)]
#![warn(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::as_conversions
)]

mod failure;
mod show;
mod text;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use milepost::{CheckpointStore, ErrorKind};

use failure::{Failure, Status};

const AFTER_HELP: &str = "\
Examples:
  milepost ls run.milepost               the saved steps, with sizes and metrics
  milepost tree run.milepost             what is in the latest step
  milepost tree run.milepost 1000        what is in step 1000
  milepost verify run.milepost --json    whether all of it is as it was written

Exit status: 0 fine, 1 damage found, 2 could not run. A trainer can have the file open meanwhile.";

/// Looks into milepost checkpoint stores. Files are opened read-only and never changed.
#[derive(Parser)]
#[command(version, after_help = AFTER_HELP)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// List the saved steps
    ///
    /// A line for each step: when it was saved, its leaves, the size of their contents, what is
    /// stored of that, whether it is pinned, and its metrics, rounded to 6 digits. Steps whose records
    /// are damaged follow below.
    Ls(File),
    /// Show the structure of a step: containers, leaves, element types and shapes
    ///
    /// A line for each node: its key path, what it is, and the size of its contents. The contents
    /// are not read.
    Tree {
        #[command(flatten)]
        file: File,
        /// The number of the step [default: the latest]
        step: Option<u64>,
    },
    /// Read and check every record and every chunk of every step
    ///
    /// A line for each fault with the step, leaf and chunk that it is in, then what was read. This
    /// reads the whole file. Steps without a fault can be restored.
    Verify(File),
}

#[derive(Args)]
struct File {
    /// The store file
    file: PathBuf,
    /// Print JSON, what goes wrong included: {"error": {"kind", "message", "step", "path", "chunk"}}
    #[arg(long)]
    json: bool,
}

impl Command {
    fn file(&self) -> &File {
        match self {
            Self::Ls(file) | Self::Tree { file, .. } | Self::Verify(file) => file,
        }
    }
}

fn main() -> ExitCode {
    let command = Cli::parse().command;
    let (output, status) = match run(&command) {
        Ok(result) => result,
        Err(failure) => {
            complain(&failure.message());
            let as_json = command.file().json.then(|| text::json(&failure.json()));
            (as_json.unwrap_or_default(), failure.status())
        }
    };
    let mut stdout = io::stdout();
    match stdout.write_all(output.as_bytes()).and_then(|()| stdout.flush()) {
        // Whoever reads our output has seen enough.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            complain(&format!("can't write the output: {error}"));
            Status::Failed.into()
        }
        _ => status.into(),
    }
}

/// Says what went wrong, if there is anybody to hear it.
fn complain(message: &str) {
    let _ = writeln!(io::stderr(), "milepost: {}", text::visible(message));
}

fn run(command: &Command) -> Result<(String, Status), Failure> {
    let File { file, json } = command.file();
    let store = CheckpointStore::open_read_only(file)?;
    match command {
        Command::Ls(_) => list(&store, *json),
        Command::Tree { step, .. } => {
            let latest = || store.latest_step()?.ok_or_else(|| Failure::NoStep(file.clone()));
            let step = step.map_or_else(latest, Ok)?;
            Ok((show::structure(&store.read(step)?, *json)?, Status::Fine))
        }
        Command::Verify(_) => {
            let report = store.verify()?;
            Ok((show::report(&report, *json), Status::of(&report.faults)))
        }
    }
}

fn list(store: &CheckpointStore, as_json: bool) -> Result<(String, Status), Failure> {
    let (mut infos, mut faults) = (Vec::new(), Vec::new());
    for step in store.all_steps()? {
        match store.step_info(step) {
            Ok(info) => infos.push(info),
            Err(error) => match error.kind() {
                ErrorKind::Damaged | ErrorKind::UnsupportedVersion => faults.push(error),
                // Deleted since the list was read.
                ErrorKind::NotFound if error.step().is_some() => {}
                _ => return Err(error.into()),
            },
        }
    }
    Ok((show::steps(&infos, &faults, as_json), Status::of(&faults)))
}
