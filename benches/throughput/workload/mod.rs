//! The workloads: which arrays a state has, and how their elements are distributed.
//!
//! | name | what | bytes |
//! |---|---|---|
//! | `W1` | GPT-2 small: 148 float32 parameters, two Adam moments, step, count, key | 1.49 GB |
//! | `W1_quarter` … `W1_double` | the same, axis 0 of every matrix scaled | |
//! | `state_256MiB` | three layers of it, with the moments | 268 MB |
//! | `W2` | 20,000 float32 arrays of 1 to 4 KiB | 51 MB |
//! | `W3` | one bfloat16 array [16384, 32768] | 1.07 GB |
//! | `W4` | W1's parameters frozen; factors of rank 16 (1.9 % of them) with Adam moments | 526 MB |

pub(crate) mod data;
mod gpt2;
mod values;

use milepost::DType;

use values::Distribution;

/// A state to be made.
pub(crate) struct Workload {
    pub(crate) name: &'static str,
    arrays: Vec<ArraySpec>,
}

struct ArraySpec {
    name: String,
    dtype: DType,
    shape: Vec<usize>,
    values: Distribution,
    changes: bool,
}

/// How large a state is beside the whole one.
#[derive(Clone, Copy)]
pub(crate) enum Scale {
    Eighth,
    Quarter,
    Half,
    Whole,
    Double,
}

impl Scale {
    fn of(self, length: usize) -> usize {
        let (times, parts) = match self {
            Self::Eighth => (1, 8),
            Self::Quarter => (1, 4),
            Self::Half => (1, 2),
            Self::Whole => (1, 1),
            Self::Double => (2, 1),
        };
        (length * times / parts).max(1)
    }

    fn name(self, names: [&'static str; 5]) -> &'static str {
        names[self as usize]
    }
}

impl ArraySpec {
    fn f32(name: impl Into<String>, shape: Vec<usize>, values: Distribution) -> Self {
        Self { name: name.into(), dtype: DType::F32, shape, values, changes: true }
    }

    fn elements(&self) -> usize {
        self.shape.iter().product()
    }

    fn size_bytes(&self) -> usize {
        self.elements() * self.dtype.size_bytes()
    }
}

impl Workload {
    /// W1: the training state of GPT-2 small.
    pub(crate) fn gpt2(scale: Scale) -> Self {
        let names = ["W1_eighth", "W1_quarter", "W1_half", "W1", "W1_double"];
        let mut arrays = gpt2::parameters("params", scale);
        arrays.extend(gpt2::moments(&arrays));
        let scalar = |name: &str, dtype, values, changes| {
            let shape = if dtype == DType::U32 { vec![2] } else { vec![] };
            ArraySpec { name: name.to_owned(), dtype, shape, values, changes }
        };
        arrays.push(scalar("opt_state/count", DType::I32, Distribution::Constant(1000), true));
        arrays.push(scalar("rng", DType::U32, Distribution::Bits, false));
        arrays.push(scalar("step", DType::I32, Distribution::Constant(1000), true));
        Self { name: scale.name(names), arrays }
    }

    /// A training state of 256 MiB.
    pub(crate) fn state_256mib() -> Self {
        let mut arrays = gpt2::small_parameters("params");
        arrays.extend(gpt2::moments(&arrays));
        Self { name: "state_256MiB", arrays }
    }

    /// W2: many small arrays.
    pub(crate) fn small_arrays() -> Self {
        let arrays = (0..20_000).map(|leaf| {
            let (layer, block, index) = (leaf / 1000, leaf / 20 % 50, leaf % 20);
            let name = format!("params/layer_{layer}/block_{block}/w_{index}");
            ArraySpec::f32(name, vec![256 + leaf * 7919 % 769], Distribution::weights(0.02))
        });
        Self { name: "W2", arrays: arrays.collect() }
    }

    /// W3: one large array.
    pub(crate) fn one_array(scale: Scale) -> Self {
        let names = ["W3_eighth", "W3_quarter", "W3_half", "W3", "W3_double"];
        let shape = vec![scale.of(16_384), 32_768];
        let array = ArraySpec::f32("params/embedding", shape, Distribution::weights(0.02));
        let arrays = vec![ArraySpec { dtype: DType::BF16, ..array }];
        Self { name: scale.name(names), arrays }
    }

    /// W4: frozen parameters, and factors that are trained.
    pub(crate) fn low_rank(scale: Scale) -> Self {
        let names = ["W4_eighth", "W4_quarter", "W4_half", "W4", "W4_double"];
        let mut arrays = gpt2::parameters("frozen", scale);
        for array in &mut arrays {
            array.changes = false;
        }
        let factors = gpt2::factors(&arrays, 16);
        let moments = gpt2::moments(&factors);
        arrays.extend(factors);
        arrays.extend(moments);
        arrays.push(ArraySpec {
            name: "step".to_owned(),
            dtype: DType::I32,
            shape: vec![],
            values: Distribution::Constant(1000),
            changes: true,
        });
        Self { name: scale.name(names), arrays }
    }

    /// A state so small that its bytes cost nothing.
    pub(crate) fn norm() -> Self {
        let array = ArraySpec::f32("ln/scale", vec![768], Distribution::SCALE);
        Self { name: "norm", arrays: vec![array] }
    }

    pub(crate) fn size_bytes(&self) -> u64 {
        self.arrays.iter().map(|array| array.size_bytes() as u64).sum()
    }
}
