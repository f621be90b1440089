//! The whole state of a training run.
//!
//! All that the next step depends on is in here, and all of it is saved: a run that goes on from
//! a saved state can't be told from one that never stopped.

use milepost::checkpoint_fields;
use rand::RngExt;

use crate::adam::{Adam, LEARNING_RATE};
use crate::data::Digits;
use crate::network::{HIDDEN, Parameters};
use crate::shuffle::{Generator, Shuffle};

/// Images per step.
const BATCH: usize = 32;
/// Every training pixel is moved by up to this much, so that the network can't learn the images
/// by heart; and so that every step draws from the generator.
const NOISE: f32 = 0.3;
/// Weight of the newest loss in the running mean.
const NEWEST: f64 = 0.02;

/// What a run was started with. Steps of another run can't be continued.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Config {
    pub(crate) seed: u64,
    pub(crate) hidden: u64,
    pub(crate) batch: u64,
    pub(crate) learning_rate: f32,
    pub(crate) noise: f32,
}
checkpoint_fields!(Config { seed, hidden, batch, learning_rate, noise });

impl Config {
    /// This program's configuration with `seed`.
    pub(crate) fn new(seed: u64) -> Self {
        let number = |size: usize| u64::try_from(size).unwrap_or(u64::MAX);
        Self {
            seed,
            hidden: number(HIDDEN),
            batch: number(BATCH),
            learning_rate: LEARNING_RATE,
            noise: NOISE,
        }
    }

    /// What differs from `expected`, as `name found, expected value`.
    fn differences(&self, expected: &Self) -> Vec<String> {
        macro_rules! differing {
            ($($field:ident),*) => {
                [$((stringify!($field), self.$field.to_string(), expected.$field.to_string())),*]
            };
        }
        differing!(seed, hidden, batch, learning_rate, noise)
            .into_iter()
            .filter(|(_, found, expected)| found != expected)
            .map(|(name, found, expected)| format!("{name} {found}, not {expected}"))
            .collect()
    }
}

/// How the training goes.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Metrics {
    /// Mean loss of the last batch.
    pub(crate) batch_loss: f64,
    /// Running mean of the batch losses.
    pub(crate) loss: f64,
    /// Share of test images that were recognized when this was last measured, from 0 to 1.
    pub(crate) test_accuracy: f64,
}
checkpoint_fields!(Metrics { batch_loss, loss, test_accuracy });

/// Everything a run has.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TrainState {
    pub(crate) config: Config,
    /// Steps done.
    pub(crate) step: u64,
    pub(crate) params: Parameters,
    pub(crate) opt_state: Adam,
    pub(crate) rng: Generator,
    pub(crate) data: Shuffle,
    pub(crate) metrics: Metrics,
}
checkpoint_fields!(TrainState { config, step, params, opt_state, rng, data, metrics });

impl TrainState {
    /// Before the first step.
    pub(crate) fn new(seed: u64) -> Self {
        let mut rng = Generator::new(seed);
        Self {
            config: Config::new(seed),
            step: 0,
            params: rng.with(Parameters::random),
            opt_state: Adam::new(),
            rng,
            data: Shuffle::new(),
            metrics: Metrics { batch_loss: 0.0, loss: 0.0, test_accuracy: 0.0 },
        }
    }

    /// Learns from one batch.
    pub(crate) fn train_step(&mut self, digits: &Digits) {
        let indices = self.data.next_batch(BATCH, &mut self.rng);
        let mut batch = digits.train.select(&indices);
        self.rng.with(|rng| {
            batch.pixels.mapv_inplace(|pixel| pixel + rng.random_range(-NOISE..NOISE));
        });
        let (loss, gradient) = self.params.loss_and_gradient(&batch);
        self.opt_state.update(&mut self.params, &gradient);
        let loss = f64::from(loss);
        self.metrics.batch_loss = loss;
        self.metrics.loss = if self.step == 0 {
            loss
        } else {
            self.metrics.loss + NEWEST * (loss - self.metrics.loss)
        };
        self.step += 1;
    }

    /// Measures the accuracy on the test images.
    pub(crate) fn evaluate(&mut self, digits: &Digits) {
        self.metrics.test_accuracy = self.params.accuracy(&digits.test);
    }

    /// Whether a restored state is one that a run with `seed` can go on from; if not, why.
    pub(crate) fn check(&self, seed: u64) -> Result<(), String> {
        let differences = self.config.differences(&Config::new(seed));
        if !differences.is_empty() {
            return Err(format!("it belongs to another run: {}", differences.join("; ")));
        }
        if !self.data.is_whole() {
            return Err("its order of the images is not one of this data set".to_owned());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use milepost::Checkpoint;

    fn leaf_paths(state: &TrainState) -> Vec<String> {
        let tree = state.to_tree();
        let leaves = tree.leaves().unwrap();
        leaves.iter().map(|leaf| leaf.0.to_string()).collect()
    }

    #[test]
    fn it_learns_the_digits() {
        let digits = Digits::load().unwrap();
        let mut state = TrainState::new(0);
        let mut first_loss = None;
        for _ in 0..1_000 {
            state.train_step(&digits);
            first_loss.get_or_insert(state.metrics.batch_loss);
        }
        state.evaluate(&digits);
        assert!(first_loss.unwrap() > 1.5);
        assert!(state.metrics.loss < 0.3, "{:?}", state.metrics);
        assert!(state.metrics.test_accuracy >= 0.95, "{:?}", state.metrics);
    }

    #[test]
    fn the_seed_decides_everything() {
        let digits = Digits::load().unwrap();
        let run = |seed| {
            let mut state = TrainState::new(seed);
            (0..60).for_each(|_| state.train_step(&digits));
            state
        };
        assert_eq!(run(1), run(1));
        assert_ne!(run(1).params, run(2).params);
    }

    #[test]
    fn every_part_of_the_state_is_saved_and_restored() {
        let mut state = TrainState::new(0);
        let saved = leaf_paths(&state);
        assert_eq!(saved.len(), 5 + 1 + 4 + 9 + 3 + 3 + 3);
        for path in [
            "params/hidden_weights",
            "opt_state/count",
            "opt_state/mu/output_bias",
            "opt_state/nu/output_bias",
            "rng/word_position",
            "data/position",
            "data/permutation",
            "metrics/loss",
        ] {
            assert!(saved.iter().any(|saved| saved == path), "{path}: {saved:?}");
        }
        let places = state.to_tree_mut();
        let places: Vec<_> = places.leaves().unwrap();
        let places: Vec<_> = places.iter().map(|place| place.0.to_string()).collect();
        assert_eq!(places, saved);
    }

    #[test]
    fn the_state_of_another_run_is_refused() {
        let state = TrainState::new(5);
        state.check(5).unwrap();
        let message = state.check(6).unwrap_err();
        assert_eq!(message, "it belongs to another run: seed 5, not 6");
    }
}
