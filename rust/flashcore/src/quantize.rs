use std::ptr::{null, null_mut};

use flashcore_sys as sys;

use crate::device::Device;
use crate::error::{check, Error, Result};
use crate::plan::PlanOptions;
use crate::problem::number;
use crate::setters::{setters, values};
use crate::tensor::{Tensor, TensorMut, ABSENT};

/// Quantises a Q, K or V to fp8 values and scales in the form that attention takes. On the CPU.
///
/// ```
/// use flashcore::{PlanOptions, Quantize, Tensor, TensorMut, F8E4M3};
///
/// # fn main() -> flashcore::Result<()> {
/// // One head of two rows, each with its own scale, as for a K.
/// let x = [1.0f32, -2.0, 448.0, 224.0];
/// let (mut fp8, mut scale) = ([F8E4M3::default(); 4], [0.0f32; 2]);
/// Quantize::new(
///     Tensor::new(&x, &[1, 1, 2, 2])?,
///     TensorMut::new(&mut fp8, &[1, 1, 2, 2])?,
///     TensorMut::new(&mut scale, &[1, 1, 2])?,
/// )
/// .scale_block(1)
/// .run(&PlanOptions::new())?;
/// assert_eq!(scale, [2.0 / 448.0, 1.0]);
/// assert_eq!(fp8.map(|one| one.0), [0x76, 0xfe, 0x7e, 0x76]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Quantize<'a> {
    x: Tensor<'a>,
    x_out: TensorMut<'a>,
    scale: TensorMut<'a>,
    mean: Option<TensorMut<'a>>,
    cu_seqlens: Option<Tensor<'a>>,
    seqlens: Option<Tensor<'a>>,
    scale_block: usize,
    max_seqlen: usize,
}

impl<'a> Quantize<'a> {
    /// x `[B, H, S, D]`, or packed `[total, H, D]`, of f32, f16 or bf16; x_out, its shape, of fp8;
    /// a scale `[B|1, H|1]`, as for Q, or `[B|1, H|1, blocks|1]`, as for K and V.
    pub fn new(x: Tensor<'a>, x_out: TensorMut<'a>, scale: TensorMut<'a>) -> Quantize<'a> {
        Quantize {
            x,
            x_out,
            scale,
            mean: None,
            cu_seqlens: None,
            seqlens: None,
            scale_block: 0,
            max_seqlen: 0,
        }
    }

    setters! {
        [] TensorMut<'a>;

        /// Subtracts the mean of each channel over the rows first, and writes it, `[B, H, D]` of
        /// f32.
        mean,
    }

    setters! {
        [] Tensor<'a>;

        /// Rows in use, `[B]` of i32; the others become 0.
        seqlens,
    }

    values! {
        /// Rows per block. Default 0: one block.
        scale_block: usize,
    }

    /// The starts of packed sequences, `[B + 1]` of i32, and the most rows per sequence; 0: not known.
    #[must_use]
    pub fn packed(mut self, cu_seqlens: Tensor<'a>, max_seqlen: usize) -> Quantize<'a> {
        (self.cu_seqlens, self.max_seqlen) = (Some(cu_seqlens), max_seqlen);
        self
    }

    /// Only the device and the threads of the options are used. On an error nothing is written.
    pub fn run(mut self, options: &PlanOptions) -> Result<()> {
        if options.device_of() != Device::Cpu {
            return Err(Error::invalid(format!(
                "device: is {:?}, wanted Cpu, whose memory the tensors are",
                options.device_of()
            )));
        }
        let optional = |tensor: &Option<Tensor<'_>>| tensor.map_or(ABSENT, |one| one.desc().to_c());
        let problem = sys::flashcore_quantize_problem {
            x: self.x.desc().to_c(),
            x_out: self.x_out.desc().to_c(),
            scale: self.scale.desc().to_c(),
            mean: self.mean.as_ref().map_or(ABSENT, |mean| mean.desc().to_c()),
            cu_seqlens: optional(&self.cu_seqlens),
            seqlens: optional(&self.seqlens),
            scale_block: number("scale_block", self.scale_block)?,
            max_seqlen: number("max_seqlen", self.max_seqlen)?,
            ..Default::default()
        };
        let pointer = |tensor: &Option<Tensor<'_>>| tensor.map_or(null(), |one| one.as_ptr());
        let arguments = sys::flashcore_quantize_arguments {
            x: self.x.as_ptr(),
            x_out: self.x_out.as_mut_ptr(),
            scale: self.scale.as_mut_ptr().cast(),
            mean: self.mean.as_mut().map_or(null_mut(), |mean| mean.as_mut_ptr().cast()),
            cu_seqlens: pointer(&self.cu_seqlens).cast(),
            seqlens: pointer(&self.seqlens).cast(),
            ..Default::default()
        };
        options.with_c(|options| {
            // SAFETY: each pointer is to borrowed memory, outputs mutably, with the type, shape and
            // strides of the problem. The library refuses a scale, a mean and lengths of other
            // types than f32 and i32, and checks the lengths.
            check(unsafe { sys::flashcore_quantize(&problem, &arguments, options, null_mut()) })
        })
    }
}
