//! Types of buffer elements: what Rust calls them, what a raw call names them by, which of them have compiled routes.
//!
//! Start at [`Scalar`].

pub use crate::driver::nccl::NcclType as Dtype;

use crate::registry::Element;
use half::{bf16, f16};
use std::fmt;

mod sealed {
    pub trait Sealed {}
}

/// A type of buffer elements. The numbers of a [`Dtype`] are NCCL's.
pub trait Scalar: sealed::Sealed + Copy + 'static {
    /// Its name in raw calls.
    const DTYPE: Dtype;

    /// Its bytes, low ones first, into a slice of its size.
    #[doc(hidden)]
    fn put(self, bytes: &mut [u8]);

    /// The value of such bytes.
    #[doc(hidden)]
    fn take(bytes: &[u8]) -> Self;
}

macro_rules! scalars {
    ($($type:ty = $dtype:ident $name:literal),* $(,)?) => {
        $(
            impl sealed::Sealed for $type {}
            impl Scalar for $type {
                const DTYPE: Dtype = Dtype::$dtype;

                fn put(self, bytes: &mut [u8]) {
                    bytes.copy_from_slice(&self.to_le_bytes());
                }

                fn take(bytes: &[u8]) -> Self {
                    let mut own = [0; size_of::<Self>()];
                    own.copy_from_slice(bytes);
                    Self::from_le_bytes(own)
                }
            }
        )*

        impl Dtype {
            /// Every value, in the order of NCCL's numbers.
            pub const ALL: &'static [Self] = &[$(Self::$dtype),*];

            /// The name in reports and traces.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$dtype => $name),* }
            }
        }
    };
}

scalars! {
    i8 = I8 "i8", u8 = U8 "u8", i32 = I32 "i32", u32 = U32 "u32", i64 = I64 "i64", u64 = U64 "u64",
    f16 = F16 "f16", f32 = F32 "f32", f64 = F64 "f64", bf16 = Bf16 "bf16",
}

impl Dtype {
    /// The type of NCCL's number, if there is one.
    pub fn from_number(number: i32) -> Option<Self> {
        Self::ALL.iter().copied().find(|d| *d as i32 == number)
    }

    /// The type of a name, if there is one.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|d| d.name() == name)
    }

    /// The element that kernels are compiled for, if there are such kernels.
    pub fn element(self) -> Option<Element> {
        Element::ALL.iter().copied().find(|e| e.name() == self.name())
    }
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_nccl_and_sizes_those_of_rust() {
        let numbers: Vec<i32> = Dtype::ALL.iter().map(|d| *d as i32).collect();
        assert_eq!(numbers, (0..10).collect::<Vec<_>>());
        fn size<T: Scalar>() {
            assert_eq!(T::DTYPE.bytes(), size_of::<T>(), "{}", T::DTYPE);
        }
        size::<i8>();
        size::<f16>();
        size::<bf16>();
        size::<u32>();
        size::<f64>();
        assert_eq!((Dtype::from_number(10), Dtype::from_number(-1)), (None, None));
    }

    #[test]
    fn every_element_with_kernels_is_a_type_of_buffers() {
        for element in Element::ALL {
            let dtype = Dtype::from_name(element.name());
            assert_eq!(dtype.and_then(Dtype::element), Some(*element));
            assert_eq!(dtype.map(Dtype::bytes), Some(element.bytes()));
        }
        assert_eq!(Dtype::I32.element(), None);
    }
}
