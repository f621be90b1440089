//! The run and its store: where to start, when to save, what to report at the end.
//!
//! Whatever was saved last is where the next run starts. What happened after it is done again
//! and comes out the same, so no kill at any moment changes the result.

use std::error::Error;
use std::fmt::{self, Write};

use milepost::keep_policy::{BestN, KeepPolicy, LatestN};
use milepost::save_policy::EveryNSteps;
use milepost::{CheckpointManager, ManagerOptions, SaveOptions};

use crate::data::Digits;
use crate::options::Options;
use crate::progress::Progress;
use crate::state::TrainState;

/// What a finished run prints.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Summary {
    step: u64,
    loss: f64,
    test_accuracy: f64,
    /// Digest of every leaf of the final state.
    digest: [u8; 16],
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut digest = String::new();
        for byte in self.digest {
            write!(digest, "{byte:02x}")?;
        }
        write!(
            f,
            "step {} loss {:.6} test_accuracy {:.4} digest {digest}",
            self.step, self.loss, self.test_accuracy
        )
    }
}

/// Trains up to the last step, from the newest saved one if there is one.
pub(crate) fn run(options: &Options) -> Result<Summary, Box<dyn Error>> {
    let digits = Digits::load()?;
    let manager = CheckpointManager::open(
        &options.store,
        ManagerOptions::new()
            .save(EveryNSteps::new(options.save_every)?)
            .keep(LatestN(3).or(BestN::max("test_accuracy", 1))),
    )?;
    let mut state = start(&manager, options)?;
    let progress = Progress::new(options.steps, state.step)?;
    while state.step < options.steps {
        state.train_step(&digits);
        progress.step(&state);
        let last = state.step == options.steps;
        if last || manager.should_save(state.step)? {
            state.evaluate(&digits);
            save(&manager, &state, last)?;
        }
    }
    // Saves go on in the background; the summary is of what is durable.
    manager.wait_until_finished()?;
    progress.finish();
    Ok(Summary {
        step: state.step,
        loss: state.metrics.loss,
        test_accuracy: state.metrics.test_accuracy,
        digest: manager.step_info(state.step)?.digest,
    })
}

/// The newest saved state, or a new one.
fn start(manager: &CheckpointManager, options: &Options) -> Result<TrainState, Box<dyn Error>> {
    let mut state = TrainState::new(options.seed);
    let store = options.store.display();
    let Some(step) = manager.restore_latest(&mut state)? else {
        eprintln!("starting a new run in {store}");
        return Ok(state);
    };
    state.check(options.seed).map_err(|why| {
        format!("{store}: can't go on from step {step}: {why}; name another --store")
    })?;
    if step > options.steps {
        let steps = options.steps;
        return Err(format!(
            "{store}: it is at step {step} already, past --steps {steps}; ask for at least {step} \
             steps or name another --store"
        )
        .into());
    }
    eprintln!("going on from step {step} of {store}");
    Ok(state)
}

fn save(manager: &CheckpointManager, state: &TrainState, last: bool) -> Result<(), Box<dyn Error>> {
    let options = SaveOptions::new()
        .metric("test_accuracy", state.metrics.test_accuracy)
        .metric("loss", state.metrics.loss);
    // The last step is saved whether or not it is on the interval.
    let options = if last { options.force() } else { options };
    manager.save_with(state.step, state, &options)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use milepost::keep_policy::BestMode;
    use std::path::Path;

    fn options(store: &Path, steps: u64) -> Options {
        Options { store: store.to_owned(), steps, save_every: 20, seed: 0 }
    }

    /// The steps that the runs end at are off the interval and inside an epoch (44.9 steps).
    #[test]
    fn a_run_in_pieces_ends_like_one_in_a_piece() {
        let folder = tempfile::tempdir().unwrap();
        let whole = run(&options(&folder.path().join("whole"), 150)).unwrap();
        let pieces = folder.path().join("pieces");
        for steps in [1, 33, 44, 46, 91] {
            assert_eq!(run(&options(&pieces, steps)).unwrap().step, steps);
        }
        assert_eq!(run(&options(&pieces, 150)).unwrap(), whole);
    }

    #[test]
    fn a_complete_run_reports_the_same_again() {
        let folder = tempfile::tempdir().unwrap();
        let options = options(&folder.path().join("run"), 50);
        let first = run(&options).unwrap();
        assert_eq!(run(&options).unwrap(), first);
    }

    #[test]
    fn the_interval_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let often = Options { save_every: 7, ..options(&folder.path().join("often"), 50) };
        let seldom = options(&folder.path().join("seldom"), 50);
        assert_eq!(run(&often).unwrap(), run(&seldom).unwrap());
    }

    #[test]
    fn another_seed_and_fewer_steps_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let store = folder.path().join("run");
        run(&options(&store, 50)).unwrap();
        let other = Options { seed: 1, ..options(&store, 60) };
        let message = run(&other).unwrap_err().to_string();
        assert!(message.contains("seed 0, not 1"), "{message}");
        let message = run(&options(&store, 49)).unwrap_err().to_string();
        assert!(message.contains("at step 50 already, past --steps 49"), "{message}");
    }

    #[test]
    fn the_last_three_and_the_best_step_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let store = folder.path().join("run");
        run(&options(&store, 400)).unwrap();
        let manager = CheckpointManager::open(&store, ManagerOptions::new()).unwrap();
        let steps = manager.all_steps().unwrap();
        assert!(steps.ends_with(&[360, 380, 400]), "{steps:?}");
        assert!((3..=4).contains(&steps.len()), "{steps:?}");
        assert!(
            steps.contains(&manager.best_step("test_accuracy", BestMode::Max).unwrap().unwrap())
        );
    }

    #[test]
    fn the_summary_is_one_line() {
        let summary = Summary { step: 5, loss: 0.25, test_accuracy: 0.975, digest: [0xab; 16] };
        let digest = "ab".repeat(16);
        assert_eq!(
            summary.to_string(),
            format!("step 5 loss 0.250000 test_accuracy 0.9750 digest {digest}")
        );
    }
}
