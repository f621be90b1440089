//! Element types: what milepost stores arrays of, under the names `NumPy` and JAX give them.
//!
//! The code of a type is part of the file format and never changes its meaning.

use std::fmt;
use std::str::FromStr;

pub(crate) use float8::{F8E4M3, F8E5M2};
pub(crate) use half::{bf16, f16};
pub(crate) use num_complex::Complex;

use crate::error::{Error, ErrorKind, Result};

/// The type of the elements of an array or of a scalar.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum DType {
    /// `bool`, one byte, 0 or 1.
    Bool,
    /// `uint8`.
    U8,
    /// `uint16`.
    U16,
    /// `uint32`.
    U32,
    /// `uint64`.
    U64,
    /// `int8`.
    I8,
    /// `int16`.
    I16,
    /// `int32`.
    I32,
    /// `int64`.
    I64,
    /// `float16`, IEEE 754 binary16.
    F16,
    /// `bfloat16`.
    BF16,
    /// `float32`.
    F32,
    /// `float64`.
    F64,
    /// `float8_e4m3fn`, the OCP 8-bit float without infinities.
    F8E4M3FN,
    /// `float8_e5m2`, the OCP 8-bit float with infinities.
    F8E5M2,
    /// `complex64`, two `float32`.
    Complex64,
    /// `complex128`, two `float64`.
    Complex128,
}

/// Every type with its code on disk, its size in bytes and its name.
const TYPES: [(DType, u8, usize, &str); 17] = [
    (DType::Bool, 1, 1, "bool"),
    (DType::U8, 2, 1, "uint8"),
    (DType::U16, 3, 2, "uint16"),
    (DType::U32, 4, 4, "uint32"),
    (DType::U64, 5, 8, "uint64"),
    (DType::I8, 6, 1, "int8"),
    (DType::I16, 7, 2, "int16"),
    (DType::I32, 8, 4, "int32"),
    (DType::I64, 9, 8, "int64"),
    (DType::F16, 10, 2, "float16"),
    (DType::BF16, 11, 2, "bfloat16"),
    (DType::F32, 12, 4, "float32"),
    (DType::F64, 13, 8, "float64"),
    (DType::F8E4M3FN, 14, 1, "float8_e4m3fn"),
    (DType::F8E5M2, 15, 1, "float8_e5m2"),
    (DType::Complex64, 16, 8, "complex64"),
    (DType::Complex128, 17, 16, "complex128"),
];

impl DType {
    /// Every element type.
    pub fn all() -> impl Iterator<Item = Self> {
        TYPES.iter().map(|row| row.0)
    }

    /// The size of one element in bytes.
    pub fn size_bytes(self) -> usize {
        self.row().2
    }

    /// The name that `NumPy` (with `ml_dtypes`) and JAX use: `float32`, `bfloat16`, …
    pub fn name(self) -> &'static str {
        self.row().3
    }

    /// The code on disk.
    pub(crate) fn code(self) -> u8 {
        self.row().1
    }

    /// The type with this code on disk, if there is one.
    pub(crate) fn from_code(code: u8) -> Option<Self> {
        TYPES.iter().find(|row| row.1 == code).map(|row| row.0)
    }

    fn row(self) -> &'static (Self, u8, usize, &'static str) {
        // Every variant has a row; the test below looks at each of them.
        TYPES.iter().find(|row| row.0 == self).unwrap_or(&TYPES[0])
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for DType {
    type Err = Error;

    /// Parses a name as [`DType::name`] prints it.
    ///
    /// # Errors
    /// `InvalidInput` for any other text.
    fn from_str(name: &str) -> Result<Self> {
        TYPES.iter().find(|row| row.3 == name).map(|row| row.0).ok_or_else(|| {
            let known: Vec<_> = TYPES.iter().map(|row| row.3).collect();
            Error::invalid(format!("{name:?} is no element type"))
                .advise(format!("use one of {}", known.join(", ")))
        })
    }
}

mod sealed {
    pub trait Sealed: bytemuck::Zeroable {}
}

/// A Rust type that arrays and scalars can be made of.
///
/// Implemented for `bool`, the integers of 8 to 64 bits, `half::f16`, `half::bf16`, `f32`, `f64`,
/// `float8::F8E4M3`, `float8::F8E5M2` and `num_complex::Complex` of `f32` and `f64`. Values go
/// through storage bit for bit: NaN payloads, signed zeros and subnormals included.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no element type of arrays and scalars",
    note = "the documentation of `Element` lists them; other types can be a `Checkpoint`"
)]
pub trait Element:
    Copy + Default + PartialEq + fmt::Debug + Send + Sync + sealed::Sealed + 'static
{
    /// The element type of this Rust type.
    const DTYPE: DType;

    /// The memory of `elements`.
    fn as_bytes(elements: &[Self]) -> &[u8];

    /// The memory of `elements`, to be filled in place; `None` where not every bit pattern is a
    /// value (`bool`).
    fn as_bytes_mut(elements: &mut [Self]) -> Option<&mut [u8]>;

    /// `bytes` as elements without a copy; `None` if they are not aligned, not a whole number of
    /// elements, or hold a bit pattern that is no value.
    fn view(bytes: &[u8]) -> Option<&[Self]>;

    /// The element that `bytes` holds, aligned or not; `None` if the length differs or the bit
    /// pattern is no value.
    fn from_bytes(bytes: &[u8]) -> Option<Self>;
}

macro_rules! plain_elements {
    ($($rust:ty => $dtype:ident),* $(,)?) => {$(
        impl sealed::Sealed for $rust {}

        impl Element for $rust {
            const DTYPE: DType = DType::$dtype;

            fn as_bytes(elements: &[Self]) -> &[u8] {
                bytemuck::must_cast_slice(elements)
            }

            fn as_bytes_mut(elements: &mut [Self]) -> Option<&mut [u8]> {
                Some(bytemuck::must_cast_slice_mut(elements))
            }

            fn view(bytes: &[u8]) -> Option<&[Self]> {
                bytemuck::try_cast_slice(bytes).ok()
            }

            fn from_bytes(bytes: &[u8]) -> Option<Self> {
                bytemuck::try_pod_read_unaligned(bytes).ok()
            }
        }
    )*};
}

plain_elements! {
    u8 => U8, u16 => U16, u32 => U32, u64 => U64,
    i8 => I8, i16 => I16, i32 => I32, i64 => I64,
    f16 => F16, bf16 => BF16, f32 => F32, f64 => F64,
    F8E4M3 => F8E4M3FN, F8E5M2 => F8E5M2,
    Complex<f32> => Complex64, Complex<f64> => Complex128,
}

impl sealed::Sealed for bool {}

impl Element for bool {
    const DTYPE: DType = DType::Bool;

    fn as_bytes(elements: &[Self]) -> &[u8] {
        bytemuck::must_cast_slice(elements)
    }

    fn as_bytes_mut(_: &mut [Self]) -> Option<&mut [u8]> {
        None
    }

    fn view(bytes: &[u8]) -> Option<&[Self]> {
        bytemuck::checked::try_cast_slice(bytes).ok()
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        bytemuck::checked::try_pod_read_unaligned(bytes).ok()
    }
}

/// Evaluates `$body` with the type alias `$element` for the Rust type of `$dtype`.
macro_rules! with_element {
    ($dtype:expr, $element:ident => $body:expr) => {{
        use $crate::dtype::DType;
        macro_rules! arm {
            ($rust:ty) => {{
                type $element = $rust;
                $body
            }};
        }
        match $dtype {
            DType::Bool => arm!(bool),
            DType::U8 => arm!(u8),
            DType::U16 => arm!(u16),
            DType::U32 => arm!(u32),
            DType::U64 => arm!(u64),
            DType::I8 => arm!(i8),
            DType::I16 => arm!(i16),
            DType::I32 => arm!(i32),
            DType::I64 => arm!(i64),
            DType::F16 => arm!(half::f16),
            DType::BF16 => arm!(half::bf16),
            DType::F32 => arm!(f32),
            DType::F64 => arm!(f64),
            DType::F8E4M3FN => arm!(float8::F8E4M3),
            DType::F8E5M2 => arm!(float8::F8E5M2),
            DType::Complex64 => arm!(num_complex::Complex<f32>),
            DType::Complex128 => arm!(num_complex::Complex<f64>),
        }
    }};
}
pub(crate) use with_element;

/// New memory for `length` elements, all zero. It comes from the system zeroed where it is large,
/// and is not touched before it is filled.
///
/// # Errors
/// `OutOfMemory` if there is no such memory, so that a length read from a file can't abort the process.
pub(crate) fn zeroed<T: Element>(length: usize) -> Result<Vec<T>> {
    bytemuck::allocation::try_zeroed_vec(length).map_err(|()| no_memory::<T>(length))
}

/// Makes `memory` exactly `length` elements long; what is new in it is zero.
///
/// # Errors
/// As [`zeroed`].
pub(crate) fn resize<T: Clone + Default>(memory: &mut Vec<T>, length: usize) -> Result<()> {
    let more = length.saturating_sub(memory.len());
    memory.try_reserve_exact(more).map_err(|_| no_memory::<T>(length))?;
    memory.resize(length, T::default());
    Ok(())
}

fn no_memory<T>(length: usize) -> Error {
    let size_bytes = length.saturating_mul(size_of::<T>());
    Error::new(ErrorKind::OutOfMemory, format!("there is no memory for {size_bytes} bytes"))
        .advise("save or restore fewer leaves at a time, or use a machine with more memory")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_has_its_own_row_and_the_size_of_its_rust_type() {
        for dtype in DType::all() {
            assert_eq!(dtype.row().0, dtype);
            assert_eq!(DType::from_code(dtype.code()), Some(dtype));
            assert_eq!(dtype.name().parse::<DType>().unwrap(), dtype);
            let (size, back) = with_element!(dtype, E => (size_of::<E>(), E::DTYPE));
            assert_eq!((size, back), (dtype.size_bytes(), dtype));
        }
        assert_eq!(DType::from_code(0), None);
        assert!("float31".parse::<DType>().unwrap_err().to_string().contains("float32"));
    }

    #[test]
    fn the_eight_bit_float_is_the_one_without_infinities() {
        // 0x7e is 448, the largest finite value of e4m3fn; an IEEE-like e4m3 would end at 240.
        assert_eq!(F8E4M3::from_bits(0x7e).to_f32().to_bits(), 448f32.to_bits());
    }

    #[test]
    fn a_byte_that_is_no_bool_is_refused() {
        assert_eq!(bool::view(&[0, 1]), Some(&[false, true][..]));
        assert_eq!(bool::view(&[2]), None);
        assert_eq!(bool::from_bytes(&[2]), None);
    }
}
