/// Setters of optional members: where they are, what the setters take, and their names.
macro_rules! setters {
    ([$($place:ident)*] $kind:ty, $(#[$attribute:meta])* fn $name:ident) => {
        $(#[$attribute])*
        #[must_use]
        pub fn $name(mut self, tensor: $kind) -> Self {
            self.$($place.)*$name = Some(tensor.into());
            self
        }
    };
    ($place:tt $kind:ty; $($(#[$attribute:meta])* $name:ident,)*) => {
        $($crate::setters::setters! { $place $kind, $(#[$attribute])* fn $name })*
    };
}

/// Calls a macro with what was given before, and the names of the optional inputs of attention.
macro_rules! with_inputs {
    ($then:ident $($before:ident)*) => {
        $then! {
            $($before)*
            bias mask alibi_slopes sinks q_scale k_scale v_scale
            cu_seqlens_q cu_seqlens_kv seqlens_q seqlens_kv causal_offsets dropout_state
            page_table kv_indptr kv_indices kv_last_page_len cache_leftpad tree_mask o_scale
        }
    };
}

/// The same with the optional outputs, but for page_status.
macro_rules! with_outputs {
    ($then:ident $($before:ident)*) => {
        $then! { $($before)* lse amax_o amax_s max_logit }
    };
}

pub(crate) use {setters, with_inputs, with_outputs};
