//! What training does to a state between two saves.

use crate::common::state::{State, Values};
use milepost::half::bf16;

/// Changes every element of every array that training changes, a little.
pub(crate) fn train(state: &mut State) {
    for array in state.arrays_mut() {
        if !array.changes {
            continue;
        }
        match &mut array.values {
            Values::F32(values) => values.map_inplace(|value| *value *= 1.0 + 1.0 / 1024.0),
            // Enough for the next of the few values that a bfloat16 has.
            Values::Bf16(values) => {
                values.map_inplace(|value| *value = bf16::from_f32(f32::from(*value) * 1.01));
            }
            Values::I32(values) => values.map_inplace(|value| *value += 1),
            Values::U32(values) => values.map_inplace(|value| *value = value.wrapping_add(1)),
        }
    }
}

/// Another state of the same structure and size, in memory of its own that has been touched.
pub(crate) fn copy_of(state: &State) -> State {
    let mut copy = state.clone();
    // Writing to what is shared makes it the copy's own.
    copy.arrays_mut().into_iter().for_each(|array| array.values.bytes_mut().fill(0));
    copy
}

/// The size of what [`train`] changes.
pub(crate) fn changed_bytes(state: &State) -> u64 {
    let changing = state.arrays().into_iter().filter(|array| array.changes);
    changing.map(|array| array.values.bytes().len() as u64).sum()
}
