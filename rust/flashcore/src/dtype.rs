use std::fmt;

use flashcore_sys as sys;

/// The type of a tensor's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DType {
    /// `f32`
    F32,
    /// [`F16`](crate::F16)
    F16,
    /// [`Bf16`](crate::Bf16)
    Bf16,
    /// [`F8E4M3`](crate::F8E4M3): the "fn" variant: no infinity, largest value 448.
    F8E4M3,
    /// [`F8E5M2`](crate::F8E5M2): IEEE-like, with infinity, largest finite value 57344.
    F8E5M2,
    /// `bool`: one byte.
    Boolean,
    /// `i32`
    I32,
    /// `f64`: only for O, LSE and gradients, and only the reference computes it.
    F64,
    /// `i64`: only for dropout's state.
    I64,
}

impl DType {
    /// Bytes per element.
    pub fn size(self) -> usize {
        match self {
            DType::F8E4M3 | DType::F8E5M2 | DType::Boolean => 1,
            DType::F16 | DType::Bf16 => 2,
            DType::F32 | DType::I32 => 4,
            DType::F64 | DType::I64 => 8,
        }
    }

    pub(crate) fn to_c(self) -> i32 {
        match self {
            DType::F32 => sys::FLASHCORE_F32,
            DType::F16 => sys::FLASHCORE_F16,
            DType::Bf16 => sys::FLASHCORE_BF16,
            DType::F8E4M3 => sys::FLASHCORE_F8E4M3,
            DType::F8E5M2 => sys::FLASHCORE_F8E5M2,
            DType::Boolean => sys::FLASHCORE_BOOLEAN,
            DType::I32 => sys::FLASHCORE_I32,
            DType::F64 => sys::FLASHCORE_F64,
            DType::I64 => sys::FLASHCORE_I64,
        }
    }
}

/// The name in the library's messages: "f32", "f8e4m3".
impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DType::F32 => "f32",
            DType::F16 => "f16",
            DType::Bf16 => "bf16",
            DType::F8E4M3 => "f8e4m3",
            DType::F8E5M2 => "f8e5m2",
            DType::Boolean => "boolean",
            DType::I32 => "i32",
            DType::F64 => "f64",
            DType::I64 => "i64",
        })
    }
}

/// A type of tensor elements.
pub trait Element: sealed::Sealed + Copy + Send + Sync + 'static {
    /// The type, as a value.
    const DTYPE: DType;
}

/// An [`Element`] that the library can write: every bit pattern is a valid value.
pub trait OutputElement: Element {}

mod sealed {
    pub trait Sealed {}
}

macro_rules! elements {
    ($($kind:ty: $dtype:ident,)*) => {$(
        impl sealed::Sealed for $kind {}
        impl Element for $kind {
            const DTYPE: DType = DType::$dtype;
        }
    )*};
}

elements! {
    f32: F32,
    crate::F16: F16,
    crate::Bf16: Bf16,
    crate::F8E4M3: F8E4M3,
    crate::F8E5M2: F8E5M2,
    bool: Boolean,
    i32: I32,
    f64: F64,
    i64: I64,
}

impl OutputElement for f32 {}
impl OutputElement for crate::F16 {}
impl OutputElement for crate::Bf16 {}
impl OutputElement for crate::F8E4M3 {}
impl OutputElement for crate::F8E5M2 {}
impl OutputElement for f64 {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::text;

    const ALL: [DType; 9] = [
        DType::F32,
        DType::F16,
        DType::Bf16,
        DType::F8E4M3,
        DType::F8E5M2,
        DType::Boolean,
        DType::I32,
        DType::F64,
        DType::I64,
    ];

    #[test]
    fn names_and_sizes_are_the_librarys() {
        for dtype in ALL {
            // SAFETY: any number may be passed; the strings are zero-terminated and never freed.
            let (name, size) = unsafe {
                (
                    text(sys::flashcore_dtype_name(dtype.to_c())),
                    sys::flashcore_dtype_size(dtype.to_c()),
                )
            };
            assert_eq!((dtype.to_string(), dtype.size()), (name, size));
        }
    }

    #[test]
    fn elements_have_the_size_of_their_dtype() {
        fn check<T: Element>() {
            assert_eq!(std::mem::size_of::<T>(), T::DTYPE.size());
            assert_eq!(std::mem::align_of::<T>(), T::DTYPE.size());
        }
        check::<f32>();
        check::<crate::F16>();
        check::<crate::Bf16>();
        check::<crate::F8E4M3>();
        check::<crate::F8E5M2>();
        check::<bool>();
        check::<i32>();
        check::<f64>();
        check::<i64>();
    }
}
