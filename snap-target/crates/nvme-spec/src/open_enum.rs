//! Open enums: a number with names. Any value is valid, the known ones print by name.

macro_rules! open_enum {
    ($(#[$meta:meta])* $vis:vis struct $name:ident($repr:ty) { $($(#[$item_meta:meta])* $item:ident = $value:expr,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        $vis struct $name(pub $repr);

        impl $name {
            $($(#[$item_meta])* pub const $item: $name = $name($value);)*
        }

        impl core::fmt::Debug for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                match *self {
                    $($name::$item => f.write_str(stringify!($item)),)*
                    $name(other) => write!(f, concat!(stringify!($name), "({:#x})"), other),
                }
            }
        }
    };
}

/// Asserts a structure's size where it stands.
macro_rules! assert_bytes {
    ($type:ty, $bytes:expr) => {
        const _: () = assert!(core::mem::size_of::<$type>() == $bytes);
        const _: () = assert!(core::mem::align_of::<$type>() == 1);
    };
}

pub(crate) use {assert_bytes, open_enum};
