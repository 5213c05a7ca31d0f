use std::fmt;
use std::marker::PhantomData;
use std::os::raw::c_void;

use flashcore_sys as sys;

use crate::dtype::{DType, Element, OutputElement};
use crate::error::{Error, Result};

const MAX_RANK: usize = sys::FLASHCORE_MAX_RANK as usize;

/// Shape, strides and type of a tensor, without its data.
///
/// It has 1 to 4 dimensions. Strides are in elements.
#[derive(Clone, Copy)]
pub struct TensorDesc {
    dtype: DType,
    rank: usize,
    shape: [usize; MAX_RANK],
    strides: [isize; MAX_RANK],
}

impl TensorDesc {
    /// A row-major tensor.
    pub fn contiguous(dtype: DType, shape: &[usize]) -> Result<TensorDesc> {
        let mut desc = TensorDesc::with_shape(dtype, shape)?;
        let mut stride = 1usize;
        for d in (0..shape.len()).rev() {
            desc.strides[d] = isize::try_from(stride).map_err(|_| too_large(shape))?;
            // A dimension without elements steps as far as one with a single element.
            stride = stride.checked_mul(shape[d].max(1)).ok_or_else(|| too_large(shape))?;
        }
        Ok(desc)
    }

    /// A tensor with one stride per dimension. Strides of inputs may be zero or negative, but the
    /// last one of Q, K and V must be 1.
    pub fn strided(dtype: DType, shape: &[usize], strides: &[isize]) -> Result<TensorDesc> {
        let mut desc = TensorDesc::with_shape(dtype, shape)?;
        if strides.len() != shape.len() {
            return Err(Error::invalid(format!(
                "strides: there are {}, wanted {} for shape {:?}",
                strides.len(),
                shape.len(),
                shape
            )));
        }
        desc.strides[..strides.len()].copy_from_slice(strides);
        Ok(desc)
    }

    fn with_shape(dtype: DType, shape: &[usize]) -> Result<TensorDesc> {
        if shape.is_empty() || shape.len() > MAX_RANK {
            return Err(Error::invalid(format!(
                "shape: has {} dimensions, wanted 1 to {}",
                shape.len(),
                MAX_RANK
            )));
        }
        if shape.iter().any(|&extent| i64::try_from(extent).is_err()) {
            return Err(too_large(shape));
        }
        let mut desc =
            TensorDesc { dtype, rank: shape.len(), shape: [0; MAX_RANK], strides: [0; MAX_RANK] };
        desc.shape[..shape.len()].copy_from_slice(shape);
        Ok(desc)
    }

    /// The type of the elements.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The extents.
    pub fn shape(&self) -> &[usize] {
        &self.shape[..self.rank]
    }

    /// In elements.
    pub fn strides(&self) -> &[isize] {
        &self.strides[..self.rank]
    }

    /// Exchanges two dimensions of the same elements: `transposed(1, 2)` turns `[B, S, H, D]` into
    /// `[B, H, S, D]`.
    pub fn transposed(mut self, a: usize, b: usize) -> Result<TensorDesc> {
        if a >= self.rank || b >= self.rank {
            return Err(Error::invalid(format!(
                "transposed: dimensions are {} and {}, wanted two below {}",
                a, b, self.rank
            )));
        }
        self.shape.swap(a, b);
        self.strides.swap(a, b);
        Ok(self)
    }

    /// Returns the offsets, in elements, of the lowest and the highest element from `[0, 0, ...]`;
    /// None if there are no elements.
    fn reach(&self) -> Option<(i128, i128)> {
        let (mut lowest, mut highest) = (0i128, 0i128);
        for (&extent, &stride) in self.shape().iter().zip(self.strides()) {
            if extent == 0 {
                return None;
            }
            // A product of two has 127 bits, so a sum of four may not fit: that is too large.
            let steps = (extent as i128 - 1) * stride as i128;
            let end = if steps < 0 { &mut lowest } else { &mut highest };
            *end = end.saturating_add(steps);
        }
        Some((lowest, highest))
    }

    /// Checks that all elements lie within `length` elements if `[0, 0, ...]` is element `origin`.
    fn check_bounds(&self, length: usize, origin: usize) -> Result<()> {
        let (lowest, highest) = match self.reach() {
            // A pointer one past the end may be made, but not read.
            None if origin <= length => return Ok(()),
            None => (0, 0),
            Some(reach) => reach,
        };
        let (lowest, highest) =
            (lowest.saturating_add(origin as i128), highest.saturating_add(origin as i128));
        if lowest < 0 || highest >= length as i128 {
            return Err(Error::invalid(format!(
                "tensor: shape {:?} with strides {:?} reaches from element {} to {}, wanted 0 to {}, the \
                 data",
                self.shape(),
                self.strides(),
                lowest,
                highest,
                length as i128 - 1
            )));
        }
        Ok(())
    }

    pub(crate) fn to_c(self) -> sys::flashcore_tensor {
        let mut tensor = ABSENT;
        tensor.dtype = self.dtype.to_c();
        tensor.rank = self.rank as i32;
        for d in 0..self.rank {
            tensor.shape[d] = self.shape[d] as i64; // with_shape has checked that it fits
            tensor.stride[d] = self.strides[d] as i64;
        }
        tensor
    }
}

pub(crate) const ABSENT: sys::flashcore_tensor =
    sys::flashcore_tensor { dtype: 0, rank: 0, shape: [0; MAX_RANK], stride: [0; MAX_RANK] };

fn too_large(shape: &[usize]) -> Error {
    Error::invalid(format!("shape: {:?} has more elements than memory can hold", shape))
}

/// Equal if they describe the same elements: the stride of a dimension with at most one
/// element is ignored.
impl PartialEq for TensorDesc {
    fn eq(&self, other: &TensorDesc) -> bool {
        let strides = self.strides().iter().zip(other.strides()).zip(self.shape());
        self.dtype == other.dtype
            && self.shape() == other.shape()
            && strides.into_iter().all(|((a, b), &extent)| extent <= 1 || a == b)
    }
}

impl fmt::Debug for TensorDesc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?} with strides {:?}", self.dtype, self.shape(), self.strides())
    }
}

/// An input tensor: a view of a slice, with shape and strides.
///
/// ```
/// use flashcore::Tensor;
/// # fn main() -> flashcore::Result<()> {
/// let data = vec![0.0f32; 2 * 128 * 8 * 64];
/// let q = Tensor::new(&data, &[2, 8, 128, 64])?; // [B, H, S, D], row-major
/// let q = Tensor::new(&data, &[2, 128, 8, 64])?.transposed(1, 2)?; // from [B, S, H, D]
/// let lengths = Tensor::from(&[128i32, 100]); // one dimension
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Tensor<'a> {
    desc: TensorDesc,
    data: *const c_void,
    borrow: PhantomData<&'a [u8]>,
}

// SAFETY: this is only a shared borrow of a slice of plain numbers.
unsafe impl Send for Tensor<'_> {}
// SAFETY: same as above.
unsafe impl Sync for Tensor<'_> {}

impl<'a> Tensor<'a> {
    /// The whole slice, row-major.
    pub fn new<T: Element>(data: &'a [T], shape: &[usize]) -> Result<Tensor<'a>> {
        let desc = TensorDesc::contiguous(T::DTYPE, shape)?;
        check_length(data.len(), shape)?;
        Ok(Tensor { desc, data: data.as_ptr().cast(), borrow: PhantomData })
    }

    /// A view into the slice: `[0, 0, ...]` is element `origin`, and strides are in elements. All
    /// elements must lie in the slice. Strides may be zero, which repeats elements, or negative.
    pub fn strided<T: Element>(
        data: &'a [T],
        origin: usize,
        shape: &[usize],
        strides: &[isize],
    ) -> Result<Tensor<'a>> {
        let desc = TensorDesc::strided(T::DTYPE, shape, strides)?;
        desc.check_bounds(data.len(), origin)?;
        // SAFETY: check_bounds: origin is at most the slice's length.
        let data = unsafe { data.as_ptr().add(origin) };
        Ok(Tensor { desc, data: data.cast(), borrow: PhantomData })
    }

    /// Shape, strides and type.
    pub fn desc(&self) -> TensorDesc {
        self.desc
    }

    /// See [`TensorDesc::transposed`].
    pub fn transposed(mut self, a: usize, b: usize) -> Result<Tensor<'a>> {
        self.desc = self.desc.transposed(a, b)?;
        Ok(self)
    }

    pub(crate) fn desc_ref(&self) -> &TensorDesc {
        &self.desc
    }

    pub(crate) fn as_ptr(&self) -> *const c_void {
        self.data
    }
}

/// One dimension.
impl<'a, T: Element> From<&'a [T]> for Tensor<'a> {
    fn from(data: &'a [T]) -> Tensor<'a> {
        Tensor { desc: data.into(), data: data.as_ptr().cast(), borrow: PhantomData }
    }
}

/// One dimension.
impl<'a, T: Element> From<&'a Vec<T>> for Tensor<'a> {
    fn from(data: &'a Vec<T>) -> Tensor<'a> {
        data.as_slice().into()
    }
}

/// One dimension.
impl<'a, T: Element, const N: usize> From<&'a [T; N]> for Tensor<'a> {
    fn from(data: &'a [T; N]) -> Tensor<'a> {
        data.as_slice().into()
    }
}

/// An output tensor: a view of a mutably borrowed slice, with shape and strides.
#[derive(Debug)]
pub struct TensorMut<'a> {
    desc: TensorDesc,
    data: *mut c_void,
    borrow: PhantomData<&'a mut [u8]>,
}

// SAFETY: this is only an exclusive borrow of a slice of plain numbers.
unsafe impl Send for TensorMut<'_> {}
// SAFETY: same as above.
unsafe impl Sync for TensorMut<'_> {}

impl<'a> TensorMut<'a> {
    /// The whole slice, row-major.
    pub fn new<T: OutputElement>(data: &'a mut [T], shape: &[usize]) -> Result<TensorMut<'a>> {
        let desc = TensorDesc::contiguous(T::DTYPE, shape)?;
        check_length(data.len(), shape)?;
        Ok(TensorMut { desc, data: data.as_mut_ptr().cast(), borrow: PhantomData })
    }

    /// A view into the slice, like [`Tensor::strided`]. The library refuses an output
    /// whose elements overlap.
    pub fn strided<T: OutputElement>(
        data: &'a mut [T],
        origin: usize,
        shape: &[usize],
        strides: &[isize],
    ) -> Result<TensorMut<'a>> {
        let desc = TensorDesc::strided(T::DTYPE, shape, strides)?;
        desc.check_bounds(data.len(), origin)?;
        // SAFETY: check_bounds: origin is at most the slice's length.
        let data = unsafe { data.as_mut_ptr().add(origin) };
        Ok(TensorMut { desc, data: data.cast(), borrow: PhantomData })
    }

    /// Shape, strides and type.
    pub fn desc(&self) -> TensorDesc {
        self.desc
    }

    /// See [`TensorDesc::transposed`].
    pub fn transposed(mut self, a: usize, b: usize) -> Result<TensorMut<'a>> {
        self.desc = self.desc.transposed(a, b)?;
        Ok(self)
    }

    /// Views the same elements as an input.
    pub(crate) fn as_input(&self) -> Tensor<'_> {
        Tensor { desc: self.desc, data: self.data, borrow: PhantomData }
    }

    /// Reborrows the same tensor for one run.
    pub fn reborrow(&mut self) -> TensorMut<'_> {
        TensorMut { desc: self.desc, data: self.data, borrow: PhantomData }
    }

    pub(crate) fn desc_ref(&self) -> &TensorDesc {
        &self.desc
    }

    pub(crate) fn as_mut_ptr(&mut self) -> *mut c_void {
        self.data
    }
}

fn check_length(length: usize, shape: &[usize]) -> Result<()> {
    // Not the stride of a dimension before the first: a dimension without elements makes this zero.
    let wanted = shape.iter().try_fold(1usize, |product, &extent| product.checked_mul(extent));
    match wanted {
        Some(wanted) if wanted == length => Ok(()),
        Some(wanted) => Err(Error::invalid(format!(
            "tensor: data has {} elements, wanted {} for shape {:?}",
            length, wanted, shape
        ))),
        None => Err(too_large(shape)),
    }
}

impl From<Tensor<'_>> for TensorDesc {
    fn from(tensor: Tensor<'_>) -> TensorDesc {
        tensor.desc
    }
}

impl From<&Tensor<'_>> for TensorDesc {
    fn from(tensor: &Tensor<'_>) -> TensorDesc {
        tensor.desc
    }
}

impl From<&TensorMut<'_>> for TensorDesc {
    fn from(tensor: &TensorMut<'_>) -> TensorDesc {
        tensor.desc
    }
}

/// One dimension.
impl<T: Element> From<&[T]> for TensorDesc {
    fn from(data: &[T]) -> TensorDesc {
        let (mut shape, mut strides) = ([0; MAX_RANK], [0; MAX_RANK]);
        shape[0] = data.len(); // a slice's length fits into an isize
        strides[0] = 1;
        TensorDesc { dtype: T::DTYPE, rank: 1, shape, strides }
    }
}

/// One dimension.
impl<T: Element> From<&Vec<T>> for TensorDesc {
    fn from(data: &Vec<T>) -> TensorDesc {
        data.as_slice().into()
    }
}

/// One dimension.
impl<T: Element, const N: usize> From<&[T; N]> for TensorDesc {
    fn from(data: &[T; N]) -> TensorDesc {
        data.as_slice().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contiguous_strides_are_the_librarys() {
        for shape in [&[3][..], &[2, 3], &[2, 1, 4], &[5, 2, 3, 4], &[2, 0, 3, 4], &[0, 0]] {
            let ours = TensorDesc::contiguous(DType::F16, shape).unwrap().to_c();
            let extents: Vec<i64> = shape.iter().map(|&extent| extent as i64).collect();
            let mut theirs = ABSENT;
            // SAFETY: `theirs` is a tensor, and `extents` has the stated number of elements.
            let status = unsafe {
                sys::flashcore_tensor_contiguous(
                    &mut theirs,
                    sys::FLASHCORE_F16,
                    shape.len() as i32,
                    extents.as_ptr(),
                )
            };
            assert_eq!(status, sys::FLASHCORE_OK);
            assert_eq!((ours.dtype, ours.rank), (theirs.dtype, theirs.rank));
            assert_eq!(ours.shape, theirs.shape);
            if !shape.contains(&0) {
                assert_eq!(ours.stride, theirs.stride, "{:?}", shape);
            }
        }
    }

    #[test]
    fn views_stay_inside_of_their_slice() {
        let data = [0f32; 24];
        let strided = |origin, shape: &[usize], strides: &[isize]| {
            Tensor::strided(&data, origin, shape, strides).map_err(|error| error.to_string())
        };
        assert!(strided(0, &[2, 3, 4], &[12, 4, 1]).is_ok());
        assert!(strided(23, &[24], &[-1]).is_ok());
        assert!(strided(4, &[2, 3, 4], &[0, 8, 1]).is_ok());
        assert!(strided(12, &[2, 3, 4], &[-12, 4, 1]).is_ok());
        assert!(strided(24, &[0, 7], &[100, 100]).is_ok());
        assert_eq!(
            strided(1, &[2, 3, 4], &[12, 4, 1]).unwrap_err(),
            "tensor: shape [2, 3, 4] with strides [12, 4, 1] reaches from element 1 to 24, wanted 0 to 23, \
             the data"
        );
        assert!(strided(11, &[2, 3, 4], &[-12, 4, 1]).is_err());
        assert!(strided(22, &[24], &[-1]).is_err());
        assert!(strided(25, &[0], &[1]).is_err());
        assert!(strided(24, &[1], &[1]).is_err());
        // Sums and products past 64 bits, and past 128, must not wrap around into the slice.
        let largest = i64::MAX as usize;
        assert!(strided(0, &[largest; 4], &[isize::MAX; 4]).is_err());
        assert!(strided(23, &[largest; 4], &[isize::MIN; 4]).is_err());
        for shape in [&[usize::MAX / 2, 3][..], &[3, usize::MAX / 2]] {
            for strides in [&[isize::MAX, isize::MAX][..], &[isize::MIN, isize::MIN], &[2, 2]] {
                assert!(strided(0, shape, strides).is_err(), "{:?} {:?}", shape, strides);
            }
        }
    }

    #[test]
    fn malformed_shapes_are_refused() {
        let data = [0f32; 24];
        let message = |shape: &[usize]| Tensor::new(&data, shape).unwrap_err().to_string();
        assert_eq!(message(&[]), "shape: has 0 dimensions, wanted 1 to 4");
        assert_eq!(message(&[1; 5]), "shape: has 5 dimensions, wanted 1 to 4");
        assert_eq!(message(&[25]), "tensor: data has 24 elements, wanted 25 for shape [25]");
        assert_eq!(message(&[0]), "tensor: data has 24 elements, wanted 0 for shape [0]");
        let large = "shape: [4294967296, 4294967296] has more elements than memory can hold";
        assert_eq!(message(&[1 << 32, 1 << 32]), large);
        assert!(message(&[usize::MAX]).ends_with("more elements than memory can hold"));
        let error = TensorDesc::strided(DType::F32, &[2, 3], &[1]).unwrap_err();
        assert_eq!(error.to_string(), "strides: there are 1, wanted 2 for shape [2, 3]");
        let error =
            TensorDesc::contiguous(DType::F32, &[2, 3]).unwrap().transposed(0, 2).unwrap_err();
        assert_eq!(error.to_string(), "transposed: dimensions are 0 and 2, wanted two below 2");
    }

    #[test]
    fn strides_that_mean_nothing_do_not_count() {
        let desc =
            |strides: &[isize]| TensorDesc::strided(DType::F32, &[1, 2, 3], strides).unwrap();
        assert_eq!(desc(&[6, 3, 1]), desc(&[99, 3, 1]));
        assert_ne!(desc(&[6, 3, 1]), desc(&[6, 4, 1]));
        assert_ne!(desc(&[6, 3, 1]), TensorDesc::contiguous(DType::F16, &[1, 2, 3]).unwrap());
    }
}
