//! Adam (Kingma and Ba, 2015) with bias correction.
//!
//! Names are those of Optax: `count` updates, `mu` and `nu` are the first and second moment.

use milepost::checkpoint_fields;
use ndarray::{Array, Dimension, Zip};

use crate::network::Parameters;

pub(crate) const LEARNING_RATE: f32 = 1e-3;

const BETA_1: f32 = 0.9;
const BETA_2: f32 = 0.999;
const EPSILON: f32 = 1e-8;

/// The state of the optimizer.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Adam {
    /// Updates so far.
    pub(crate) count: u64,
    /// Running mean of the gradient.
    pub(crate) mu: Parameters,
    /// Running mean of the squared gradient.
    pub(crate) nu: Parameters,
}
checkpoint_fields!(Adam { count, mu, nu });

impl Adam {
    /// Before the first update.
    pub(crate) fn new() -> Self {
        Self { count: 0, mu: Parameters::zeros(), nu: Parameters::zeros() }
    }

    /// Moves `parameters` against `gradient`.
    pub(crate) fn update(&mut self, parameters: &mut Parameters, gradient: &Parameters) {
        self.count += 1;
        // Both moments start at zero; dividing by these takes that bias away.
        let (mu_weight, nu_weight) =
            (1.0 - power(BETA_1, self.count), 1.0 - power(BETA_2, self.count));
        let (mu, nu) = (&mut self.mu, &mut self.nu);
        macro_rules! update {
            ($($field:ident),*) => {$(
                update_array(
                    &mut parameters.$field,
                    &gradient.$field,
                    (&mut mu.$field, mu_weight),
                    (&mut nu.$field, nu_weight),
                );
            )*};
        }
        update!(hidden_weights, hidden_bias, output_weights, output_bias);
    }
}

/// `base` to the power of `count`; past `i32::MAX` both bases gave zero long before.
fn power(base: f32, count: u64) -> f32 {
    base.powi(i32::try_from(count).unwrap_or(i32::MAX))
}

fn update_array<D: Dimension>(
    parameters: &mut Array<f32, D>,
    gradient: &Array<f32, D>,
    (mu, mu_weight): (&mut Array<f32, D>, f32),
    (nu, nu_weight): (&mut Array<f32, D>, f32),
) {
    Zip::from(parameters).and(gradient).and(mu).and(nu).for_each(|parameter, &gradient, mu, nu| {
        *mu = BETA_1 * *mu + (1.0 - BETA_1) * gradient;
        *nu = BETA_2 * *nu + (1.0 - BETA_2) * gradient * gradient;
        *parameter -= LEARNING_RATE * (*mu / mu_weight) / ((*nu / nu_weight).sqrt() + EPSILON);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With the same gradient each time, the corrected moments are that gradient and its square,
    /// so each update moves a parameter by the learning rate, whatever the gradient's size.
    #[test]
    fn a_steady_gradient_moves_by_the_learning_rate() {
        let mut gradient = Parameters::zeros();
        gradient.hidden_weights[[1, 2]] = 0.5;
        gradient.output_bias[3] = -0.001;
        let mut parameters = Parameters::zeros();
        let mut adam = Adam::new();
        for _ in 0..3 {
            adam.update(&mut parameters, &gradient);
        }
        let near = |found: f32, expected: f32| (found - expected).abs() < 1e-6;
        assert!(near(parameters.hidden_weights[[1, 2]], -0.003));
        assert!(near(parameters.output_bias[3], 0.003));
        assert_eq!(parameters.hidden_weights[[2, 1]].to_bits(), 0);
        assert_eq!(adam.count, 3);
    }

    #[test]
    fn moments_are_running_means() {
        let mut gradient = Parameters::zeros();
        let mut parameters = Parameters::zeros();
        let mut adam = Adam::new();
        for value in [1.0, -2.0] {
            gradient.hidden_bias[0] = value;
            adam.update(&mut parameters, &gradient);
        }
        let near = |found: f32, expected: f32| (found - expected).abs() < 1e-7;
        assert!(near(adam.mu.hidden_bias[0], 0.1 * 0.9 - 0.2));
        assert!(near(adam.nu.hidden_bias[0], 0.001 * 0.999 + 0.004));
    }
}
