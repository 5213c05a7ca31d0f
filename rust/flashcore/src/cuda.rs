use std::os::raw::c_void;

use flashcore_sys as sys;

macro_rules! device_arguments {
    ($($name:ident: $kind:ty,)*) => {
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
            $(pub $name: $kind,)*
        }

        impl DeviceArguments {
            pub(crate) fn to_c(self) -> sys::flashcore_arguments {
                sys::flashcore_arguments { $($name: self.$name,)* ..Default::default() }
            }
        }
    };
}

// These arguments have no caches in pages, no scale of O and no largest values.
device_arguments! {
    q: *const c_void,
    k: *const c_void,
    v: *const c_void,
    o: *mut c_void,
    lse: *mut c_void,
    bias: *const c_void,
    mask: *const c_void,
    alibi_slopes: *const f32,
    sinks: *const f32,
    q_scale: *const f32,
    k_scale: *const f32,
    v_scale: *const f32,
    cu_seqlens_q: *const i32,
    cu_seqlens_kv: *const i32,
    seqlens_q: *const i32,
    seqlens_kv: *const i32,
    causal_offsets: *const i32,
    dropout_seed: u64,
    dropout_offset: u64,
    dropout_state: *const i64,
}

impl Default for DeviceArguments {
    fn default() -> DeviceArguments {
        // SAFETY: all members are numbers and pointers, for which zeros are values.
        unsafe { std::mem::zeroed() }
    }
}
