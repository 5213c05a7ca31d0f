//! Floating-point formats that Rust lacks, as bits, with conversions from and to `f32`.

/// A binary format of at most 16 bits.
struct Format {
    exponent_bits: u32,
    mantissa_bits: u32,
    /// False: all-ones exponents are numbers, and only all-ones bits are NaN.
    has_infinity: bool,
    /// Values past the largest become the largest, not infinity.
    saturates: bool,
}

const F16_FORMAT: Format =
    Format { exponent_bits: 5, mantissa_bits: 10, has_infinity: true, saturates: false };
const BF16_FORMAT: Format =
    Format { exponent_bits: 8, mantissa_bits: 7, has_infinity: true, saturates: false };
const F8E4M3_FORMAT: Format =
    Format { exponent_bits: 4, mantissa_bits: 3, has_infinity: false, saturates: true };
const F8E5M2_FORMAT: Format =
    Format { exponent_bits: 5, mantissa_bits: 2, has_infinity: true, saturates: true };

impl Format {
    fn bias(&self) -> i32 {
        (1 << (self.exponent_bits - 1)) - 1
    }

    /// Exact: `f32` represents all values of these formats.
    fn decode(&self, bits: u16) -> f32 {
        let bits = u32::from(bits);
        let (ones, top) = ((1 << self.mantissa_bits) - 1, (1 << self.exponent_bits) - 1);
        let (exponent, mantissa) = ((bits >> self.mantissa_bits) & top, bits & ones);
        let magnitude = if exponent == top && (self.has_infinity || mantissa == ones) {
            if self.has_infinity && mantissa == 0 {
                f32::INFINITY
            } else {
                f32::NAN
            }
        } else {
            let implicit = if exponent == 0 { 0 } else { 1 << self.mantissa_bits };
            let power = exponent.max(1) as i32 - self.bias() - self.mantissa_bits as i32;
            (f64::from(mantissa + implicit) * 2f64.powi(power)) as f32
        };
        if bits >> (self.exponent_bits + self.mantissa_bits) & 1 == 1 {
            -magnitude
        } else {
            magnitude
        }
    }

    /// Rounds to nearest even.
    fn encode(&self, value: f32) -> u16 {
        let sign = (value.to_bits() >> 31) << (self.exponent_bits + self.mantissa_bits);
        let (ones, top) = ((1 << self.mantissa_bits) - 1, (1 << self.exponent_bits) - 1);
        let infinity = top << self.mantissa_bits;
        if value.is_nan() {
            let quiet = if self.saturates { ones } else { 1 << (self.mantissa_bits - 1) };
            return (sign | infinity | quiet) as u16;
        }
        let largest = if self.has_infinity { infinity - 1 } else { infinity | (ones - 1) };
        let rounded = if value.is_infinite() { largest + 1 } else { self.round(value) };
        let magnitude = match rounded > largest {
            true if self.saturates => largest,
            true => infinity,
            false => rounded,
        };
        (sign | magnitude) as u16
    }

    /// The bits of a finite value's magnitude, rounded, with no limit. Bit patterns count up
    /// through all exponents, so a carry out of the mantissa is correct.
    fn round(&self, value: f32) -> u32 {
        let bits = value.to_bits() & 0x7fff_ffff;
        let exponent = (bits >> 23).max(1) as i32 - 127;
        let implicit = if bits >> 23 == 0 { 0 } else { 1 << 23 };
        let mantissa = u64::from((bits & 0x7f_ffff) | implicit);
        let kept = exponent.max(1 - self.bias());
        // The mantissa has 24 bits, so a shift by 26 leaves 0 and rounds to 0.
        let shift = (23 - self.mantissa_bits + (kept - exponent) as u32).min(26);
        let (quotient, rest, half) =
            (mantissa >> shift, mantissa & ((1 << shift) - 1), 1u64 << (shift - 1));
        let up = rest > half || (rest == half && quotient & 1 == 1);
        (((kept + self.bias() - 1) as u32) << self.mantissa_bits) + quotient as u32 + u32::from(up)
    }
}

macro_rules! floats {
    ($($(#[$doc:meta])* $name:ident($bits:ty) as $format:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        #[repr(transparent)]
        pub struct $name(pub $bits);

        impl $name {
            /// Rounds to nearest even.
            pub fn from_f32(value: f32) -> $name {
                $name($format.encode(value) as $bits)
            }

            /// Exact.
            pub fn to_f32(self) -> f32 {
                $format.decode(self.0.into())
            }

            /// Reinterprets the same memory, without a copy.
            pub fn from_bits_slice(bits: &[$bits]) -> &[$name] {
                // SAFETY: the type is transparent over its bits, and every bit pattern is a value.
                unsafe { std::slice::from_raw_parts(bits.as_ptr().cast(), bits.len()) }
            }

            /// Reinterprets the same memory, without a copy.
            pub fn from_bits_slice_mut(bits: &mut [$bits]) -> &mut [$name] {
                // SAFETY: same as above, and the borrow stays exclusive.
                unsafe { std::slice::from_raw_parts_mut(bits.as_mut_ptr().cast(), bits.len()) }
            }
        }

        impl From<$name> for f32 {
            fn from(value: $name) -> f32 {
                value.to_f32()
            }
        }
    )*};
}

floats! {
    /// An IEEE half-precision number, as its bits. Values past the largest become infinite.
    /// Equality compares bits.
    F16(u16) as F16_FORMAT;

    /// A bfloat16 number, as its bits. Values past the largest become infinite.
    /// Equality compares bits.
    Bf16(u16) as BF16_FORMAT;

    /// An fp8 number of the "e4m3fn" format, as its bits: no infinity. Values past the largest,
    /// 448, saturate. Equality compares bits.
    F8E4M3(u8) as F8E4M3_FORMAT;

    /// An fp8 number of the "e5m2" format, as its bits. Values past the largest finite one, 57344,
    /// saturate. Equality compares bits.
    F8E5M2(u8) as F8E5M2_FORMAT;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_values() {
        assert_eq!(F16::from_f32(1.0), F16(0x3c00));
        assert_eq!(F16::from_f32(-2.0), F16(0xc000));
        assert_eq!(F16::from_f32(65504.0), F16(0x7bff));
        assert_eq!(F16::from_f32(65519.9), F16(0x7bff));
        assert_eq!(F16::from_f32(65520.0), F16(0x7c00));
        assert_eq!(F16(1).to_f32(), 2f32.powi(-24));
        assert_eq!(Bf16::from_f32(1.0), Bf16(0x3f80));
        assert_eq!(Bf16::from_f32(f32::MAX), Bf16(0x7f80));
        assert_eq!(Bf16(0xc2f7).to_f32(), -123.5);
        assert_eq!(F8E4M3::from_f32(1.0), F8E4M3(0x38));
        assert_eq!(F8E4M3(0x7e).to_f32(), 448.0);
        assert_eq!(F8E4M3::from_f32(f32::INFINITY), F8E4M3(0x7e));
        assert_eq!(F8E5M2::from_f32(1.0), F8E5M2(0x3c));
        assert_eq!(F8E5M2(0x7b).to_f32(), 57344.0);
        assert_eq!(F8E5M2::from_f32(1e9), F8E5M2(0x7b));
        assert_eq!(F8E5M2(0x7c).to_f32(), f32::INFINITY);
        assert_eq!(F8E4M3::from_f32(f32::NAN), F8E4M3(0x7f));
        assert_eq!(F8E5M2::from_f32(f32::NAN), F8E5M2(0x7f));
        assert_eq!(F16::from_f32(f32::NAN), F16(0x7e00));
        assert_eq!(Bf16::from_f32(-0.0), Bf16(0x8000));
        assert_eq!(F16::from_f32(-1e-30), F16(0x8000));
    }

    /// Every value survives a round trip. A value between two neighbours becomes the nearer one,
    /// and the midpoint the even one.
    fn check_all(format: &Format) {
        let top = ((1u32 << format.exponent_bits) - 1) << format.mantissa_bits;
        let ones = (1 << format.mantissa_bits) - 1;
        let largest = if format.has_infinity { top - 1 } else { (top | ones) - 1 };
        let sign = 1u32 << (format.exponent_bits + format.mantissa_bits);
        for bits in 0..=largest {
            let value = format.decode(bits as u16);
            assert_eq!(u32::from(format.encode(value)), bits, "{}", value);
            assert_eq!(u32::from(format.encode(-value)), bits | sign, "-{}", value);
            assert_eq!(format.decode((bits | sign) as u16), -value);
            if bits == largest {
                break;
            }
            let next = format.decode((bits + 1) as u16);
            assert!(next > value);
            let middle = ((f64::from(value) + f64::from(next)) / 2.0) as f32;
            let even = bits + (bits & 1);
            assert_eq!(u32::from(format.encode(middle)), even, "between {} and {}", value, next);
            let (below, above) =
                (f32::from_bits(middle.to_bits() - 1), f32::from_bits(middle.to_bits() + 1));
            assert_eq!(u32::from(format.encode(below)), bits, "{}", below);
            assert_eq!(u32::from(format.encode(above)), bits + 1, "{}", above);
        }
        let past = format.encode(f32::MAX);
        assert_eq!(u32::from(past), if format.saturates { largest } else { top });
        assert!(format.decode(format.encode(f32::NAN)).is_nan());
    }

    #[test]
    fn all_values_of_all_formats() {
        for format in [F16_FORMAT, BF16_FORMAT, F8E4M3_FORMAT, F8E5M2_FORMAT] {
            check_all(&format);
        }
    }

    #[test]
    fn slices_of_bits_are_slices_of_numbers() {
        let mut bits = [0x3c00u16, 0xc000];
        assert_eq!(F16::from_bits_slice(&bits)[1].to_f32(), -2.0);
        F16::from_bits_slice_mut(&mut bits)[0] = F16::from_f32(2.0);
        assert_eq!(bits[0], 0x4000);
    }
}
