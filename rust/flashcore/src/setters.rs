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

/// Setters of two optional members at once: the setter's name, and theirs.
macro_rules! pairs {
    ([$($place:ident)*] $kind:ty, $(#[$attribute:meta])* fn $name:ident $a:ident $b:ident) => {
        $(#[$attribute])*
        #[must_use]
        pub fn $name(mut self, $a: impl Into<$kind>, $b: impl Into<$kind>) -> Self {
            self.$($place.)*$a = Some($a.into());
            self.$($place.)*$b = Some($b.into());
            self
        }
    };
    ($place:tt $kind:ty; $($(#[$attribute:meta])* $name:ident($a:ident, $b:ident),)*) => {
        $($crate::setters::pairs! { $place $kind, $(#[$attribute])* fn $name $a $b })*
    };
}

/// Setters of other members: each one's name and type.
macro_rules! values {
    ($($(#[$attribute:meta])* $name:ident: $kind:ty,)*) => {$(
        $(#[$attribute])*
        #[must_use]
        pub fn $name(mut self, $name: $kind) -> Self {
            self.$name = $name;
            self
        }
    )*};
}

pub(crate) use {pairs, setters, values};
