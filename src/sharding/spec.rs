//! Along which axes of a mesh each dimension of an array is cut.

use std::fmt;

/// For each dimension of an array, from the first one on, the axes of a mesh along which it is cut:
/// JAX's `PartitionSpec`. Dimensions beyond the last entry are whole.
///
/// ```
/// use milepost::sharding::PartitionSpec;
///
/// let spec = PartitionSpec::new([Some("model"), None]);
/// assert_eq!(spec.to_string(), "PartitionSpec('model', None)");
/// // One dimension along two axes; the first of them varies slowest.
/// let both = PartitionSpec::from_dimensions([vec!["data", "model"]]);
/// assert_eq!(both.to_string(), "PartitionSpec(('data', 'model'))");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct PartitionSpec(Vec<Vec<String>>);

impl PartitionSpec {
    /// One axis or none for each dimension.
    pub fn new<A: Into<String>>(axes: impl IntoIterator<Item = Option<A>>) -> Self {
        Self(axes.into_iter().map(|axis| axis.map(Into::into).into_iter().collect()).collect())
    }

    /// Any number of axes for each dimension. The first axis of a dimension varies slowest.
    pub fn from_dimensions<D, A>(dimensions: impl IntoIterator<Item = D>) -> Self
    where
        D: IntoIterator<Item = A>,
        A: Into<String>,
    {
        let axes = |dimension: D| dimension.into_iter().map(Into::into).collect();
        Self(dimensions.into_iter().map(axes).collect())
    }

    /// The axes of each dimension.
    pub fn dimensions(&self) -> &[Vec<String>] {
        &self.0
    }

    /// All axes that are named, with the dimensions that name them.
    pub(super) fn axes(&self) -> impl Iterator<Item = (usize, &str)> {
        let dimensions = self.0.iter().enumerate();
        dimensions.flat_map(|(number, axes)| axes.iter().map(move |axis| (number, axis.as_str())))
    }
}

impl fmt::Display for PartitionSpec {
    /// As JAX and Python do.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PartitionSpec(")?;
        for (number, axes) in self.0.iter().enumerate() {
            if number > 0 {
                f.write_str(", ")?;
            }
            match axes.as_slice() {
                [] => f.write_str("None")?,
                [axis] => write!(f, "'{}'", axis.escape_debug())?,
                several => {
                    let quoted: Vec<_> =
                        several.iter().map(|axis| format!("'{}'", axis.escape_debug())).collect();
                    write!(f, "({})", quoted.join(", "))?;
                }
            }
        }
        f.write_str(")")
    }
}
