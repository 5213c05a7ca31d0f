use std::os::raw::c_void;
use std::ptr::{null, null_mut};

use flashcore_sys as sys;

/// The data of one run as raw pointers, to element `[0, 0, ...]` of each tensor, for
/// [`Plan::run_on_device`](crate::Plan::run_on_device). Pointers to tensors that the problem does not
/// have are ignored.
///
/// ```
/// # let (q, k, v, o) = (std::ptr::null(), std::ptr::null(), std::ptr::null(), std::ptr::null_mut());
/// use flashcore::DeviceArguments;
/// let arguments = DeviceArguments { q, k, v, o, ..DeviceArguments::default() };
/// ```
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)] // the fields are named after the tensors
pub struct DeviceArguments {
    pub q: *const c_void,
    pub k: *const c_void,
    pub v: *const c_void,
    pub o: *mut c_void,
    pub lse: *mut c_void,
    pub bias: *const c_void,
    pub mask: *const c_void,
    pub alibi_slopes: *const f32,
    pub sinks: *const f32,
    pub q_scale: *const f32,
    pub k_scale: *const f32,
    pub v_scale: *const f32,
    pub cu_seqlens_q: *const i32,
    pub cu_seqlens_kv: *const i32,
    pub seqlens_q: *const i32,
    pub seqlens_kv: *const i32,
    pub causal_offsets: *const i32,
    pub dropout_seed: u64,
    pub dropout_offset: u64,
    pub dropout_state: *const i64,
}

impl Default for DeviceArguments {
    fn default() -> DeviceArguments {
        DeviceArguments {
            q: null(),
            k: null(),
            v: null(),
            o: null_mut(),
            lse: null_mut(),
            bias: null(),
            mask: null(),
            alibi_slopes: null(),
            sinks: null(),
            q_scale: null(),
            k_scale: null(),
            v_scale: null(),
            cu_seqlens_q: null(),
            cu_seqlens_kv: null(),
            seqlens_q: null(),
            seqlens_kv: null(),
            causal_offsets: null(),
            dropout_seed: 0,
            dropout_offset: 0,
            dropout_state: null(),
        }
    }
}

impl DeviceArguments {
    pub(crate) fn to_c(self) -> sys::flashcore_arguments {
        sys::flashcore_arguments {
            struct_size: std::mem::size_of::<sys::flashcore_arguments>(),
            q: self.q,
            k: self.k,
            v: self.v,
            o: self.o,
            lse: self.lse,
            bias: self.bias,
            mask: self.mask,
            alibi_slopes: self.alibi_slopes,
            sinks: self.sinks,
            q_scale: self.q_scale,
            k_scale: self.k_scale,
            v_scale: self.v_scale,
            cu_seqlens_q: self.cu_seqlens_q,
            cu_seqlens_kv: self.cu_seqlens_kv,
            seqlens_q: self.seqlens_q,
            seqlens_kv: self.seqlens_kv,
            causal_offsets: self.causal_offsets,
            dropout_seed: self.dropout_seed,
            dropout_offset: self.dropout_offset,
            dropout_state: self.dropout_state,
            // These arguments have no caches in pages, no scale of O and no largest values.
            page_table: null(),
            kv_indptr: null(),
            kv_indices: null(),
            kv_last_page_len: null(),
            cache_leftpad: null(),
            page_status: null_mut(),
            tree_mask: null(),
            o_scale: null(),
            amax_o: null_mut(),
            amax_s: null_mut(),
        }
    }
}
