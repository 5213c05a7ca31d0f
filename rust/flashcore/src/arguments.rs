use std::os::raw::c_void;
use std::ptr::{null, null_mut};

use flashcore_sys as sys;

use crate::cuda::DeviceArguments;
use crate::error::{Error, Result};
use crate::problem::{page_status_desc, Problem};
use crate::tensor::{Tensor, TensorDesc, TensorMut};

/// The inputs of a pass in addition to its own tensors.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Inputs<'a> {
    pub(crate) q: Tensor<'a>,
    pub(crate) k: Tensor<'a>,
    pub(crate) v: Tensor<'a>,
    pub(crate) bias: Option<Tensor<'a>>,
    pub(crate) mask: Option<Tensor<'a>>,
    pub(crate) alibi_slopes: Option<Tensor<'a>>,
    pub(crate) sinks: Option<Tensor<'a>>,
    pub(crate) q_scale: Option<Tensor<'a>>,
    pub(crate) k_scale: Option<Tensor<'a>>,
    pub(crate) v_scale: Option<Tensor<'a>>,
    pub(crate) cu_seqlens_q: Option<Tensor<'a>>,
    pub(crate) cu_seqlens_kv: Option<Tensor<'a>>,
    pub(crate) seqlens_q: Option<Tensor<'a>>,
    pub(crate) seqlens_kv: Option<Tensor<'a>>,
    pub(crate) causal_offsets: Option<Tensor<'a>>,
    pub(crate) dropout_state: Option<Tensor<'a>>,
    pub(crate) page_table: Option<Tensor<'a>>,
    pub(crate) kv_indptr: Option<Tensor<'a>>,
    pub(crate) kv_indices: Option<Tensor<'a>>,
    pub(crate) kv_last_page_len: Option<Tensor<'a>>,
    pub(crate) cache_leftpad: Option<Tensor<'a>>,
    pub(crate) tree_mask: Option<Tensor<'a>>,
    pub(crate) o_scale: Option<Tensor<'a>>,
    pub(crate) dropout: (u64, u64),
}

impl<'a> Inputs<'a> {
    pub(crate) fn new(q: Tensor<'a>, k: Tensor<'a>, v: Tensor<'a>) -> Inputs<'a> {
        Inputs {
            q,
            k,
            v,
            bias: None,
            mask: None,
            alibi_slopes: None,
            sinks: None,
            q_scale: None,
            k_scale: None,
            v_scale: None,
            cu_seqlens_q: None,
            cu_seqlens_kv: None,
            seqlens_q: None,
            seqlens_kv: None,
            causal_offsets: None,
            dropout_state: None,
            page_table: None,
            kv_indptr: None,
            kv_indices: None,
            kv_last_page_len: None,
            cache_leftpad: None,
            tree_mask: None,
            o_scale: None,
            dropout: (0, 0),
        }
    }

    /// Returns the pointers of all inputs. Each is to borrowed memory with the type, shape and
    /// strides of the problem, and every input of the problem has one. O and LSE are not included.
    pub(crate) fn pointers(&self, p: &Problem) -> Result<sys::flashcore_arguments> {
        let mut c = DeviceArguments::default().to_c();
        c.q = input("q", Some(&p.q), Some(&self.q))?;
        c.k = input("k", Some(&p.k), Some(&self.k))?;
        c.v = input("v", Some(&p.v), Some(&self.v))?;
        c.bias = input("bias", p.bias.as_ref(), self.bias.as_ref())?;
        c.mask = input("mask", p.mask.as_ref(), self.mask.as_ref())?;
        // The library accepts only these types, so the plan of `p` has f32, i32 and i64 here.
        c.alibi_slopes =
            input("alibi_slopes", p.alibi_slopes.as_ref(), self.alibi_slopes.as_ref())?.cast();
        c.sinks = input("sinks", p.sinks.as_ref(), self.sinks.as_ref())?.cast();
        c.q_scale = input("q_scale", p.q_scale.as_ref(), self.q_scale.as_ref())?.cast();
        c.k_scale = input("k_scale", p.k_scale.as_ref(), self.k_scale.as_ref())?.cast();
        c.v_scale = input("v_scale", p.v_scale.as_ref(), self.v_scale.as_ref())?.cast();
        c.cu_seqlens_q =
            input("cu_seqlens_q", p.cu_seqlens_q.as_ref(), self.cu_seqlens_q.as_ref())?.cast();
        c.cu_seqlens_kv =
            input("cu_seqlens_kv", p.cu_seqlens_kv.as_ref(), self.cu_seqlens_kv.as_ref())?.cast();
        c.seqlens_q = input("seqlens_q", p.seqlens_q.as_ref(), self.seqlens_q.as_ref())?.cast();
        c.seqlens_kv = input("seqlens_kv", p.seqlens_kv.as_ref(), self.seqlens_kv.as_ref())?.cast();
        c.causal_offsets =
            input("causal_offsets", p.causal_offsets.as_ref(), self.causal_offsets.as_ref())?
                .cast();
        c.dropout_state =
            input("dropout_state", p.dropout_state.as_ref(), self.dropout_state.as_ref())?.cast();
        c.page_table = input("page_table", p.page_table.as_ref(), self.page_table.as_ref())?.cast();
        c.kv_indptr = input("kv_indptr", p.kv_indptr.as_ref(), self.kv_indptr.as_ref())?.cast();
        c.kv_indices = input("kv_indices", p.kv_indices.as_ref(), self.kv_indices.as_ref())?.cast();
        c.kv_last_page_len =
            input("kv_last_page_len", p.kv_last_page_len.as_ref(), self.kv_last_page_len.as_ref())?
                .cast();
        c.cache_leftpad =
            input("cache_leftpad", p.cache_leftpad.as_ref(), self.cache_leftpad.as_ref())?.cast();
        c.tree_mask = input("tree_mask", p.tree_mask.as_ref(), self.tree_mask.as_ref())?.cast();
        c.o_scale = input("o_scale", p.o_scale.as_ref(), self.o_scale.as_ref())?.cast();
        (c.dropout_seed, c.dropout_offset) = self.dropout;
        Ok(c)
    }
}

/// Setters for the tensors that a problem may have in addition to Q, K, V, O and LSE.
macro_rules! setters_of_inputs {
    ($arguments:ident: $($name:ident,)*) => {
        $(
            #[doc = concat!("The data of [`Problem::", stringify!($name), "`].")]
            #[must_use]
            pub fn $name(mut self, tensor: impl Into<Tensor<'a>>) -> $arguments<'a> {
                self.inputs.$name = Some(tensor.into());
                self
            }
        )*

        /// The starts of the sequences of a packed batch, see [`Problem::packed`].
        #[must_use]
        pub fn packed(
            mut self,
            cu_seqlens_q: impl Into<Tensor<'a>>,
            cu_seqlens_kv: impl Into<Tensor<'a>>,
        ) -> $arguments<'a> {
            self.inputs.cu_seqlens_q = Some(cu_seqlens_q.into());
            self.inputs.cu_seqlens_kv = Some(cu_seqlens_kv.into());
            self
        }

        /// The seed and offset of dropout, see [`dropout_keeps`](crate::dropout_keeps). Used if the
        /// problem has no [`Problem::dropout_state`].
        #[must_use]
        pub fn dropout(mut self, seed: u64, offset: u64) -> $arguments<'a> {
            self.inputs.dropout = (seed, offset);
            self
        }
    };
}

pub(crate) use setters_of_inputs;

/// Setters for the tensors that only problems over caches have.
macro_rules! setters_of_caches {
    ($arguments:ident) => {
        setters_of_caches! {
            $arguments: page_table, kv_last_page_len, cache_leftpad, tree_mask,
        }

        /// The data of [`Problem::page_list`].
        #[must_use]
        pub fn page_list(
            mut self,
            kv_indptr: impl Into<Tensor<'a>>,
            kv_indices: impl Into<Tensor<'a>>,
        ) -> $arguments<'a> {
            self.inputs.kv_indptr = Some(kv_indptr.into());
            self.inputs.kv_indices = Some(kv_indices.into());
            self
        }

        /// The data of [`Problem::packed_queries`].
        #[must_use]
        pub fn packed_queries(mut self, cu_seqlens_q: impl Into<Tensor<'a>>) -> $arguments<'a> {
            self.inputs.cu_seqlens_q = Some(cu_seqlens_q.into());
            self
        }
    };
    ($arguments:ident: $($name:ident,)*) => {
        $(
            #[doc = concat!("The data of [`Problem::", stringify!($name), "`].")]
            #[must_use]
            pub fn $name(mut self, tensor: impl Into<Tensor<'a>>) -> $arguments<'a> {
                self.inputs.$name = Some(tensor.into());
                self
            }
        )*
    };
}

pub(crate) use setters_of_caches;

/// The data of one run on the CPU: a view of each tensor of the problem.
#[derive(Debug)]
pub struct Arguments<'a> {
    inputs: Inputs<'a>,
    o: TensorMut<'a>,
    lse: Option<TensorMut<'a>>,
    amax_o: Option<TensorMut<'a>>,
    amax_s: Option<TensorMut<'a>>,
    page_status: Option<&'a mut i32>,
}

impl<'a> Arguments<'a> {
    /// The tensors that every problem has.
    pub fn new(q: Tensor<'a>, k: Tensor<'a>, v: Tensor<'a>, o: TensorMut<'a>) -> Arguments<'a> {
        Arguments {
            inputs: Inputs::new(q, k, v),
            o,
            lse: None,
            amax_o: None,
            amax_s: None,
            page_status: None,
        }
    }

    /// The output for [`Problem::lse`].
    #[must_use]
    pub fn lse(mut self, lse: TensorMut<'a>) -> Arguments<'a> {
        self.lse = Some(lse);
        self
    }

    /// The output for [`Problem::amax_o`].
    #[must_use]
    pub fn amax_o(mut self, amax: TensorMut<'a>) -> Arguments<'a> {
        self.amax_o = Some(amax);
        self
    }

    /// The output for [`Problem::amax_s`].
    #[must_use]
    pub fn amax_s(mut self, amax: TensorMut<'a>) -> Arguments<'a> {
        self.amax_s = Some(amax);
        self
    }

    /// Set to 1 when a page index was out of range, see [`Problem::page_status`].
    #[must_use]
    pub fn page_status(mut self, status: &'a mut i32) -> Arguments<'a> {
        self.page_status = Some(status);
        self
    }

    setters_of_caches! { Arguments }

    setters_of_inputs! {
        Arguments:
        bias,
        mask,
        alibi_slopes,
        sinks,
        q_scale,
        k_scale,
        v_scale,
        seqlens_q,
        seqlens_kv,
        causal_offsets,
        dropout_state,
        o_scale,
    }

    /// Same as [`Inputs::pointers`], including O and LSE.
    pub(crate) fn pointers(&mut self, p: &Problem) -> Result<sys::flashcore_arguments> {
        let mut c = self.inputs.pointers(p)?;
        c.o = output("o", Some(&p.o), Some(&mut self.o))?;
        c.lse = output("lse", p.lse.as_ref(), self.lse.as_mut())?;
        c.amax_o = output("amax_o", p.amax_o.as_ref(), self.amax_o.as_mut())?.cast();
        c.amax_s = output("amax_s", p.amax_s.as_ref(), self.amax_s.as_mut())?.cast();
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
