//! The network: 64 pixels → 64 hidden units (rectified) → 10 digits, softmax cross-entropy.
//!
//! Every sum is taken in the same order in every run, on one thread: the same parameters and
//! images give the same bits.

use milepost::checkpoint_fields;
use ndarray::{Array1, Array2, ArrayView1, Axis};
use rand::{Rng, RngExt};

use crate::data::{CLASSES, Images, PIXELS};

/// Hidden units.
pub(crate) const HIDDEN: usize = 64;

/// The parameters; a gradient and each Adam moment have the same shape.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Parameters {
    /// `[PIXELS, HIDDEN]`.
    pub(crate) hidden_weights: Array2<f32>,
    /// `[HIDDEN]`.
    pub(crate) hidden_bias: Array1<f32>,
    /// `[HIDDEN, CLASSES]`.
    pub(crate) output_weights: Array2<f32>,
    /// `[CLASSES]`.
    pub(crate) output_bias: Array1<f32>,
}
checkpoint_fields!(Parameters { hidden_weights, hidden_bias, output_weights, output_bias });

impl Parameters {
    /// All zero.
    pub(crate) fn zeros() -> Self {
        Self {
            hidden_weights: Array2::zeros((PIXELS, HIDDEN)),
            hidden_bias: Array1::zeros(HIDDEN),
            output_weights: Array2::zeros((HIDDEN, CLASSES)),
            output_bias: Array1::zeros(CLASSES),
        }
    }

    /// He's uniform initialization; biases are zero.
    pub(crate) fn random(rng: &mut impl Rng) -> Self {
        // Both layers have 64 inputs.
        let limit = (6.0_f32 / 64.0).sqrt();
        let mut draw = || rng.random_range(-limit..limit);
        Self {
            hidden_weights: Array2::from_shape_simple_fn((PIXELS, HIDDEN), &mut draw),
            output_weights: Array2::from_shape_simple_fn((HIDDEN, CLASSES), &mut draw),
            ..Self::zeros()
        }
    }

    /// The mean loss over `images` and its gradient.
    pub(crate) fn loss_and_gradient(&self, images: &Images) -> (f32, Self) {
        let hidden = self.hidden(images);
        let mut output = self.logits(&hidden);
        let loss = softmax_cross_entropy(&mut output, &images.labels);
        let mut hidden_gradient = output.dot(&self.output_weights.t());
        // ReLU lets through only what was positive.
        hidden_gradient.zip_mut_with(&hidden, |gradient, &unit| {
            if unit <= 0.0 {
                *gradient = 0.0;
            }
        });
        let gradient = Self {
            hidden_weights: images.pixels.t().dot(&hidden_gradient),
            hidden_bias: hidden_gradient.sum_axis(Axis(0)),
            output_weights: hidden.t().dot(&output),
            output_bias: output.sum_axis(Axis(0)),
        };
        (loss, gradient)
    }

    /// The share of `images` whose digit gets the greatest output, from 0 to 1.
    pub(crate) fn accuracy(&self, images: &Images) -> f64 {
        let output = self.logits(&self.hidden(images));
        let (mut right, mut all) = (0_u32, 0_u32);
        for (outputs, &label) in output.outer_iter().zip(&images.labels) {
            all += 1;
            right += u32::from(greatest(&outputs) == usize::from(label));
        }
        f64::from(right) / f64::from(all)
    }

    fn hidden(&self, images: &Images) -> Array2<f32> {
        let mut hidden = images.pixels.dot(&self.hidden_weights) + &self.hidden_bias;
        hidden.mapv_inplace(|unit| unit.max(0.0));
        hidden
    }

    fn logits(&self, hidden: &Array2<f32>) -> Array2<f32> {
        hidden.dot(&self.output_weights) + &self.output_bias
    }
}

/// Turns logits into the gradient of the mean loss by them, and gives that loss.
fn softmax_cross_entropy(logits: &mut Array2<f32>, labels: &[u8]) -> f32 {
    let share = labels.iter().fold(0.0_f32, |all, _| all + 1.0).recip();
    let mut loss = 0.0;
    for (mut row, &label) in logits.outer_iter_mut().zip(labels) {
        // Subtracting the greatest keeps the exponentials finite.
        let max = row.fold(f32::NEG_INFINITY, |max, &logit| max.max(logit));
        let of_label = row.get(usize::from(label)).map_or(0.0, |logit| logit - max);
        row.mapv_inplace(|logit| (logit - max).exp());
        let sum = row.sum();
        loss += sum.ln() - of_label;
        row.mapv_inplace(|exponential| exponential / sum * share);
        if let Some(probability) = row.get_mut(usize::from(label)) {
            *probability -= share;
        }
    }
    loss * share
}

/// The index of the greatest output, the first of equal ones.
fn greatest(outputs: &ArrayView1<'_, f32>) -> usize {
    let first = (0, f32::NEG_INFINITY);
    outputs
        .iter()
        .enumerate()
        .fold(first, |best, (index, &output)| if output > best.1 { (index, output) } else { best })
        .0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Digits;
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    type Tensor = fn(&mut Parameters) -> &mut [f32];

    const TENSORS: [(&str, Tensor); 4] = [
        ("hidden_weights", |p| p.hidden_weights.as_slice_mut().unwrap()),
        ("hidden_bias", |p| p.hidden_bias.as_slice_mut().unwrap()),
        ("output_weights", |p| p.output_weights.as_slice_mut().unwrap()),
        ("output_bias", |p| p.output_bias.as_slice_mut().unwrap()),
    ];

    fn some_images() -> Images {
        let indices: Vec<_> = (0..32).collect();
        Digits::load().unwrap().train.select(&indices)
    }

    #[test]
    fn the_gradient_is_that_of_finite_differences() {
        let images = some_images();
        let mut parameters = Parameters::random(&mut ChaCha8Rng::seed_from_u64(1));
        let (_, gradient) = parameters.loss_and_gradient(&images);
        let mut gradient = Parameters {
            hidden_weights: gradient.hidden_weights.as_standard_layout().into_owned(),
            output_weights: gradient.output_weights.as_standard_layout().into_owned(),
            ..gradient
        };
        // Larger ones push hidden units across the kink of ReLU, smaller ones drown in rounding.
        let nudge = 1e-3;
        for (name, tensor) in TENSORS {
            let gradient = tensor(&mut gradient);
            let largest = gradient.iter().fold(0.0_f32, |max, g| max.max(g.abs()));
            assert!(largest > 0.02, "{name}: {largest}");
            for index in (0..gradient.len()).step_by(gradient.len().div_ceil(40)) {
                let value = tensor(&mut parameters)[index];
                let mut loss_at = |value: f32| {
                    tensor(&mut parameters)[index] = value;
                    parameters.loss_and_gradient(&images).0
                };
                let difference = (loss_at(value + nudge) - loss_at(value - nudge)) / (2.0 * nudge);
                loss_at(value);
                let error = (difference - gradient[index]).abs();
                assert!(error < 1e-3, "{name}[{index}]: {difference} {}", gradient[index]);
            }
        }
    }

    #[test]
    fn equal_outputs_lose_the_logarithm_of_the_classes() {
        let (loss, _) = Parameters::zeros().loss_and_gradient(&some_images());
        assert!((loss - 10.0_f32.ln()).abs() < 1e-5, "{loss}");
    }

    #[test]
    fn huge_outputs_stay_finite() {
        let mut parameters = Parameters::zeros();
        parameters.output_bias[0] = 1e30;
        let (loss, gradient) = parameters.loss_and_gradient(&some_images());
        assert!(loss.is_finite());
        assert!(gradient.output_bias.iter().all(|g| g.is_finite()));
    }

    #[test]
    fn accuracy_is_the_share_of_right_answers() {
        let images = some_images();
        let mut parameters = Parameters::zeros();
        let digit = images.labels[0];
        parameters.output_bias[usize::from(digit)] = 1.0;
        let such = images.labels.iter().filter(|&&label| label == digit);
        let expected = f64::from(u32::try_from(such.count()).unwrap()) / 32.0;
        assert!((parameters.accuracy(&images) - expected).abs() < 1e-12);
        assert!(expected < 0.5);
    }
}
