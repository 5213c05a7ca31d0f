use std::fmt;

use flashcore_sys as sys;

/// Each type: its number in C, its name in the library's messages, and Rust's type of an element.
macro_rules! dtypes {
    ($($(#[$attribute:meta])* $name:ident $number:ident $text:literal $element:ty,)*) => {
        /// The type of a tensor's elements.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum DType {
            $($(#[$attribute])* $name,)*
        }

        impl DType {
            /// Bytes per element.
            pub fn size(self) -> usize {
                match self {
                    $(DType::$name => std::mem::size_of::<$element>(),)*
                }
            }

            pub(crate) fn to_c(self) -> i32 {
                match self {
                    $(DType::$name => sys::$number,)*
                }
            }
        }

        /// The name in the library's messages: "f32", "f8e4m3".
        impl fmt::Display for DType {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self {
                    $(DType::$name => $text,)*
                })
            }
        }

        $(
            impl sealed::Sealed for $element {}
            impl Element for $element {
                const DTYPE: DType = DType::$name;
            }
        )*

        #[cfg(test)]
        const ALL: &[(DType, usize)] = &[$((DType::$name, std::mem::align_of::<$element>()),)*];
    };
}

dtypes! {
    /// `f32`
    F32 FLASHCORE_F32 "f32" f32,
    /// [`F16`](crate::F16)
    F16 FLASHCORE_F16 "f16" crate::F16,
    /// [`Bf16`](crate::Bf16)
    Bf16 FLASHCORE_BF16 "bf16" crate::Bf16,
    /// [`F8E4M3`](crate::F8E4M3): the "fn" variant: no infinity, largest value 448.
    F8E4M3 FLASHCORE_F8E4M3 "f8e4m3" crate::F8E4M3,
    /// [`F8E5M2`](crate::F8E5M2): IEEE-like, with infinity, largest finite value 57344.
    F8E5M2 FLASHCORE_F8E5M2 "f8e5m2" crate::F8E5M2,
    /// `bool`: one byte.
    Boolean FLASHCORE_BOOLEAN "boolean" bool,
    /// `i32`
    I32 FLASHCORE_I32 "i32" i32,
    /// `f64`: only for O, LSE and gradients, and only the reference computes it.
    F64 FLASHCORE_F64 "f64" f64,
    /// `i64`: only for dropout's state.
    I64 FLASHCORE_I64 "i64" i64,
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

    #[test]
    fn names_and_sizes_are_the_librarys() {
        for &(dtype, alignment) in ALL {
            // SAFETY: any number may be passed; the strings are zero-terminated and never freed.
            let (name, size) = unsafe {
                (
                    text(sys::flashcore_dtype_name(dtype.to_c())),
                    sys::flashcore_dtype_size(dtype.to_c()),
                )
            };
            assert_eq!((dtype.to_string(), dtype.size()), (name, size));
            assert_eq!(alignment, size);
        }
        assert_eq!(ALL.len(), 9);
    }
}
