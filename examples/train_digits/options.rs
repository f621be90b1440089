//! The command line.

use std::path::PathBuf;

use clap::Parser;
use clap::builder::RangedU64ValueParser;

/// Trains a small neural network on handwritten digits, and goes on where it was stopped.
#[derive(Debug, Parser)]
#[command(name = "train_digits")]
pub(crate) struct Options {
    /// The checkpoint store; it is created if it isn't there
    #[arg(long, value_name = "PATH", default_value = "train_digits.milepost")]
    pub(crate) store: PathBuf,

    /// Steps to train in all, those of earlier runs included
    #[arg(long, value_name = "N", default_value_t = 200_000, value_parser = at_least_one())]
    pub(crate) steps: u64,

    /// Save each time so many steps are done
    #[arg(long, value_name = "K", default_value_t = 1000, value_parser = at_least_one())]
    pub(crate) save_every: u64,

    /// Seed of the weights and of the order of the images
    #[arg(long, value_name = "S", default_value_t = 0)]
    pub(crate) seed: u64,
}

fn at_least_one() -> RangedU64ValueParser {
    RangedU64ValueParser::new().range(1..)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn parse(words: &str) -> Result<Options, String> {
        let words = std::iter::once("train_digits").chain(words.split_whitespace());
        Options::try_parse_from(words).map_err(|error| error.to_string())
    }

    #[test]
    fn options_are_read() {
        Options::command().debug_assert();
        let options = parse("--store a.milepost --steps 7 --save-every 2 --seed 9").unwrap();
        assert_eq!(options.store, PathBuf::from("a.milepost"));
        assert_eq!((options.steps, options.save_every, options.seed), (7, 2, 9));
        // Long enough to be killed by hand, and saved often enough for that to cost little.
        let options = parse("").unwrap();
        assert_eq!((options.steps, options.save_every, options.seed), (200_000, 1000, 0));
    }

    #[test]
    fn zero_steps_and_a_zero_interval_are_usage_errors() {
        for words in ["--steps 0", "--save-every 0", "--save-every -1", "--seed x"] {
            let message = parse(words).unwrap_err();
            assert!(
                message.contains("invalid value") || message.contains("unexpected argument"),
                "{message}"
            );
        }
    }
}
