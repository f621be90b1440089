//! Training states from a seed: weights and first moments normal with a scale of their layer,
//! second moments log-normal around 1e-8. Nothing is zero and nothing repeats.

use milepost::{Checkpoint, Leaf, LeafMut, Tree};
use ndarray::ArrayD;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, LogNormal, Normal};

#[derive(PartialEq)]
pub(crate) struct State {
    step: u64,
    arrays: Vec<(String, ArrayD<f32>)>,
}

impl State {
    /// Three layers and the embedding of a GPT-2-like transformer with both Adam moments:
    /// 256 MiB of float32.
    pub(crate) fn transformer(seed: u64) -> Self {
        const WIDTH: usize = 768;
        let mut shapes: Vec<(String, Vec<usize>)> =
            vec![("wte".into(), vec![1546, WIDTH]), ("ln_f".into(), vec![WIDTH])];
        for layer in 0..3 {
            let layer_shapes = [
                ("ln_1/scale", vec![WIDTH]),
                ("ln_1/bias", vec![WIDTH]),
                ("attn/qkv/kernel", vec![WIDTH, 3 * WIDTH]),
                ("attn/qkv/bias", vec![3 * WIDTH]),
                ("attn/proj/kernel", vec![WIDTH, WIDTH]),
                ("attn/proj/bias", vec![WIDTH]),
                ("ln_2/scale", vec![WIDTH]),
                ("ln_2/bias", vec![WIDTH]),
                ("mlp/fc/kernel", vec![WIDTH, 4 * WIDTH]),
                ("mlp/fc/bias", vec![4 * WIDTH]),
                ("mlp/proj/kernel", vec![4 * WIDTH, WIDTH]),
                ("mlp/proj/bias", vec![WIDTH]),
            ];
            shapes.extend(layer_shapes.map(|(name, shape)| (format!("h{layer}/{name}"), shape)));
        }
        let mut rng = StdRng::seed_from_u64(seed);
        let mut arrays = Vec::new();
        for group in ["params", "mu", "nu"] {
            for (name, shape) in &shapes {
                let array = match group {
                    "nu" => random(shape, LogNormal::new(-18.4, 1.0), &mut rng),
                    _ => random(shape, Normal::new(0.0, rng.random_range(0.005..0.05)), &mut rng),
                };
                arrays.push((format!("{group}/{name}"), array));
            }
        }
        Self { step: seed, arrays }
    }

    /// `count` leaves of 1 to 4 KiB of float32.
    pub(crate) fn small_leaves(count: usize, seed: u64) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        let arrays = (0..count).map(|leaf| {
            // The same shapes whatever the seed.
            let shape = [256 + leaf * 7919 % 769];
            (format!("leaf{leaf:05}"), random(&shape, Normal::new(0.0, 0.02), &mut rng))
        });
        Self { step: seed, arrays: arrays.collect() }
    }

    /// The size of the arrays.
    pub(crate) fn bytes(&self) -> usize {
        self.arrays.iter().map(|(_, array)| size_of_val(slice(array))).sum()
    }

    pub(crate) fn arrays(&self) -> impl Iterator<Item = &[u8]> {
        self.arrays.iter().map(|(_, array)| bytemuck::cast_slice(slice(array)))
    }

    pub(crate) fn arrays_mut(&mut self) -> impl Iterator<Item = &mut [u8]> {
        self.arrays.iter_mut().map(|(_, array)| {
            bytemuck::cast_slice_mut(array.as_slice_mut().expect("arrays in standard layout"))
        })
    }
}

impl Checkpoint for State {
    fn to_tree(&self) -> Tree<Leaf<'_>> {
        let arrays = self.arrays.iter().map(|(name, array)| (name.as_str(), array.to_tree()));
        Tree::record("State", [("step", self.step.to_tree()), ("arrays", Tree::map(arrays))])
    }

    fn to_tree_mut(&mut self) -> Tree<LeafMut<'_>> {
        let arrays =
            self.arrays.iter_mut().map(|(name, array)| (name.as_str(), array.to_tree_mut()));
        Tree::record("State", [("step", self.step.to_tree_mut()), ("arrays", Tree::map(arrays))])
    }
}

fn slice(array: &ArrayD<f32>) -> &[f32] {
    array.as_slice().expect("arrays in standard layout")
}

fn random<D, E: std::fmt::Debug>(
    shape: &[usize],
    distribution: Result<D, E>,
    rng: &mut StdRng,
) -> ArrayD<f32>
where
    D: Distribution<f32>,
{
    let distribution = distribution.expect("a proper distribution");
    ArrayD::from_shape_simple_fn(shape, || distribution.sample(rng))
}
