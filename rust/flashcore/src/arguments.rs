use std::os::raw::c_void;
use std::ptr::{null, null_mut};

use flashcore_sys as sys;

use crate::cuda::DeviceArguments;
use crate::error::{Error, Result};
use crate::problem::{page_status_desc, with_inputs, with_outputs, Problem};
use crate::setters::setters;
use crate::tensor::{Tensor, TensorDesc, TensorMut};

/// The inputs of a pass in addition to its own tensors.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Inputs<'a> {
    pub(crate) q: Tensor<'a>,
    pub(crate) k: Tensor<'a>,
    pub(crate) v: Tensor<'a>,
    pub(crate) optional: OptionalInputs<'a>,
    pub(crate) dropout: (u64, u64),
}

macro_rules! optional_inputs {
    ($($name:ident)*) => {
        #[derive(Clone, Copy, Debug, Default)]
        pub(crate) struct OptionalInputs<'a> {
            $(pub(crate) $name: Option<Tensor<'a>>,)*
        }

        impl OptionalInputs<'_> {
            fn write_to(self, p: &Problem, c: &mut sys::flashcore_arguments) -> Result<()> {
                // The library accepts only the types of these pointers, so the plan of `p` has them.
                $(
                    let wanted = p.optional.$name.as_ref();
                    c.$name = input(stringify!($name), wanted, self.$name.as_ref())?.cast();
                )*
                Ok(())
            }
        }
    };
}
with_inputs!(optional_inputs);

impl<'a> Inputs<'a> {
    pub(crate) fn new(q: Tensor<'a>, k: Tensor<'a>, v: Tensor<'a>) -> Inputs<'a> {
        Inputs { q, k, v, optional: OptionalInputs::default(), dropout: (0, 0) }
    }

    /// Returns the pointers of all inputs. Each is to borrowed memory with the type, shape and
    /// strides of the problem, and every input of the problem has one. O and LSE are not included.
    pub(crate) fn pointers(&self, p: &Problem) -> Result<sys::flashcore_arguments> {
        let mut c = DeviceArguments::default().to_c();
        c.q = input("q", Some(&p.q), Some(&self.q))?;
        c.k = input("k", Some(&p.k), Some(&self.k))?;
        c.v = input("v", Some(&p.v), Some(&self.v))?;
        self.optional.write_to(p, &mut c)?;
        (c.dropout_seed, c.dropout_offset) = self.dropout;
        Ok(c)
    }
}

/// Setters for the data of optional inputs.
macro_rules! setters_of_data {
    ($($name:ident)*) => {
        $crate::setters::setters! {
            [inputs optional] impl Into<Tensor<'a>>;
            $(#[doc = concat!("The data of [`Problem::", stringify!($name), "`].")] $name,)*
        }
    };
}

/// Setters for the tensors that problems of both passes may have in addition to Q, K, V, O and LSE.
macro_rules! setters_of_inputs {
    () => {
        $crate::arguments::setters_of_data! {
            bias mask alibi_slopes sinks q_scale k_scale v_scale
            seqlens_q seqlens_kv causal_offsets dropout_state
        }

        $crate::setters::pairs! {
            [inputs optional] Tensor<'a>;

            /// The starts of the sequences of a packed batch, see [`Problem::packed`].
            packed(cu_seqlens_q, cu_seqlens_kv),
        }

        /// The seed and offset of dropout, see [`dropout_keeps`](crate::dropout_keeps). Used if the
        /// problem has no [`Problem::dropout_state`].
        #[must_use]
        pub fn dropout(mut self, seed: u64, offset: u64) -> Self {
            self.inputs.dropout = (seed, offset);
            self
        }
    };
}

/// Setters for the tensors that only the forward pass has.
macro_rules! setters_of_forward {
    () => {
        $crate::arguments::setters_of_data! {
            page_table kv_last_page_len cache_leftpad tree_mask o_scale
        }

        $crate::setters::pairs! {
            [inputs optional] Tensor<'a>;

            /// The data of [`Problem::page_list`].
            page_list(kv_indptr, kv_indices),
        }

        /// The data of [`Problem::packed_queries`].
        #[must_use]
        pub fn packed_queries(mut self, cu_seqlens_q: impl Into<Tensor<'a>>) -> Self {
            self.inputs.optional.cu_seqlens_q = Some(cu_seqlens_q.into());
            self
        }

        $crate::problem::with_outputs!(setters_of_outputs);
    };
}

macro_rules! setters_of_outputs {
    ($($name:ident)*) => {
        $crate::setters::setters! {
            [outputs] TensorMut<'a>;
            $(#[doc = concat!("The output for [`Problem::", stringify!($name), "`].")] $name,)*
        }
    };
}

pub(crate) use {setters_of_data, setters_of_forward, setters_of_inputs, setters_of_outputs};

macro_rules! outputs {
    ($($name:ident)*) => {
        /// The outputs of a forward pass except page_status.
        #[derive(Debug)]
        pub(crate) struct Outputs<'a> {
            o: TensorMut<'a>,
            $(pub(crate) $name: Option<TensorMut<'a>>,)*
        }

        impl<'a> Outputs<'a> {
            pub(crate) fn new(o: TensorMut<'a>) -> Outputs<'a> {
                Outputs { o, $($name: None,)* }
            }

            /// Same as [`Inputs::pointers`].
            pub(crate) fn write_to(
                &mut self,
                p: &Problem,
                c: &mut sys::flashcore_arguments,
            ) -> Result<()> {
                c.o = output("o", Some(&p.o), Some(&mut self.o))?;
                $(
                    let wanted = p.optional.$name.as_ref();
                    c.$name = output(stringify!($name), wanted, self.$name.as_mut())?.cast();
                )*
                Ok(())
            }
        }
    };
}
with_outputs!(outputs);

/// The data of one run on the CPU: a view of each tensor of the problem.
#[derive(Debug)]
pub struct Arguments<'a> {
    inputs: Inputs<'a>,
    outputs: Outputs<'a>,
    page_status: Option<&'a mut i32>,
}

impl<'a> Arguments<'a> {
    /// The tensors that every problem has.
    pub fn new(q: Tensor<'a>, k: Tensor<'a>, v: Tensor<'a>, o: TensorMut<'a>) -> Arguments<'a> {
        Arguments { inputs: Inputs::new(q, k, v), outputs: Outputs::new(o), page_status: None }
    }

    setters! {
        [] &'a mut i32;

        /// Set to 1 when a page index was out of range, see [`Problem::page_status`].
        page_status,
    }

    setters_of_inputs!();
    setters_of_forward!();

    /// Same as [`Inputs::pointers`], including O and LSE.
    pub(crate) fn pointers(&mut self, p: &Problem) -> Result<sys::flashcore_arguments> {
        let mut c = self.inputs.pointers(p)?;
        self.outputs.write_to(p, &mut c)?;
        c.page_status = status(p.page_status, self.page_status.as_deref_mut())?;
        Ok(c)
    }
}

pub(crate) fn status(wanted: bool, given: Option<&mut i32>) -> Result<*mut i32> {
    let desc = page_status_desc();
    fits("page_status", wanted.then_some(&desc), given.is_some().then_some(&desc))?;
    Ok(given.map_or(null_mut(), |word| word))
}

pub(crate) fn input(
    name: &str,
    wanted: Option<&TensorDesc>,
    given: Option<&Tensor<'_>>,
) -> Result<*const c_void> {
    fits(name, wanted, given.map(Tensor::desc_ref))?;
    Ok(given.map_or(null(), Tensor::as_ptr))
}

pub(crate) fn output(
    name: &str,
    wanted: Option<&TensorDesc>,
    given: Option<&mut TensorMut<'_>>,
) -> Result<*mut c_void> {
    fits(name, wanted, given.as_ref().map(|tensor| tensor.desc_ref()))?;
    Ok(given.map_or(null_mut(), TensorMut::as_mut_ptr))
}

/// Returns an error unless a run's tensor is the problem's.
fn fits(name: &str, wanted: Option<&TensorDesc>, given: Option<&TensorDesc>) -> Result<()> {
    let message = match (wanted, given) {
        (wanted, given) if wanted == given => return Ok(()),
        (Some(wanted), Some(given)) => {
            format!("{}: is {:?}, wanted the problem's {:?}", name, given, wanted)
        }
        (Some(wanted), None) => format!("{}: is missing, wanted {:?}", name, wanted),
        (None, _) => format!("{}: is given, and the problem has none", name),
    };
    Err(Error::invalid(message))
}
