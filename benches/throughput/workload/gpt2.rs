//! The shapes of GPT-2 small: 148 arrays, 124 million parameters.

use super::values::Distribution;
use super::{ArraySpec, Scale};

const WIDTH: usize = 768;
const LAYERS: usize = 12;

/// The parameters below `group`, axis 0 of the matrices scaled.
pub(super) fn parameters(group: &str, scale: Scale) -> Vec<ArraySpec> {
    let mut arrays = Vec::new();
    let mut add = |name: String, shape: Vec<usize>, values| {
        arrays.push(ArraySpec::f32(format!("{group}/{name}"), shape, values));
    };
    let matrix = |rows, columns| vec![scale.of(rows), columns];
    let weights = Distribution::weights(0.02);
    // Projections back into the residual stream are initialized smaller, as they add up.
    let projection = Distribution::weights(0.004);
    add("wte/embedding".into(), matrix(50_257, WIDTH), weights);
    add("wpe/embedding".into(), matrix(1024, WIDTH), weights);
    for layer in 0..LAYERS {
        let mut add = |name: &str, shape, values| add(format!("h_{layer}/{name}"), shape, values);
        for (name, rows, columns, values) in [
            ("attn/c_attn", WIDTH, 3 * WIDTH, weights),
            ("attn/c_proj", WIDTH, WIDTH, projection),
            ("mlp/c_fc", WIDTH, 4 * WIDTH, weights),
            ("mlp/c_proj", 4 * WIDTH, WIDTH, projection),
        ] {
            add(&format!("{name}/kernel"), matrix(rows, columns), values);
            add(&format!("{name}/bias"), vec![columns], Distribution::BIAS);
        }
        for norm in ["ln_1", "ln_2"] {
            add(&format!("{norm}/scale"), vec![WIDTH], Distribution::SCALE);
            add(&format!("{norm}/bias"), vec![WIDTH], Distribution::BIAS);
        }
    }
    add("ln_f/scale".into(), vec![WIDTH], Distribution::SCALE);
    add("ln_f/bias".into(), vec![WIDTH], Distribution::BIAS);
    arrays
}

/// The parameters of a model of the same kind that has three layers and few words: with its moments
/// 256 MiB.
pub(super) fn small_parameters(group: &str) -> Vec<ArraySpec> {
    const WORDS: usize = 414;
    let embedding = format!("{group}/wte/embedding");
    let kept = |array: &ArraySpec| {
        let layer = array.name.split('/').nth(1).and_then(|part| part.strip_prefix("h_"));
        layer.is_none_or(|layer| layer.parse::<usize>().is_ok_and(|layer| layer < 3))
    };
    let mut arrays = parameters(group, Scale::Whole);
    arrays.retain(kept);
    for array in arrays.iter_mut().filter(|array| array.name == embedding) {
        array.shape = vec![WORDS, WIDTH];
    }
    arrays
}

/// Adam's first and second moments of `parameters`.
pub(super) fn moments(parameters: &[ArraySpec]) -> Vec<ArraySpec> {
    let groups = [("mu", Distribution::FIRST_MOMENT), ("nu", Distribution::SECOND_MOMENT)];
    let moments = groups.into_iter().flat_map(|(group, values)| {
        parameters.iter().map(move |array| {
            let (_, name) = array.name.split_once('/').expect("a group and a name");
            ArraySpec::f32(format!("opt_state/{group}/{name}"), array.shape.clone(), values)
        })
    });
    moments.collect()
}

/// Two factors of that rank for each matrix of a layer.
pub(super) fn factors(parameters: &[ArraySpec], rank: usize) -> Vec<ArraySpec> {
    let factors = parameters.iter().filter_map(|array| {
        let (_, name) = array.name.split_once('/')?;
        let [rows, columns] = array.shape[..] else { return None };
        let name = name.strip_suffix("/kernel")?;
        let factor = |factor: &str, shape| {
            ArraySpec::f32(format!("lora/{name}/{factor}"), shape, Distribution::weights(0.02))
        };
        Some([factor("lora_a", vec![rows, rank]), factor("lora_b", vec![rank, columns])])
    });
    factors.flatten().collect()
}
