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

pub(crate) use setters;
