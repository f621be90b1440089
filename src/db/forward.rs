//! Backends that differ from redb's own file in a few operations hand it the others.

/// Methods of `redb::StorageBackend` that call the same method of a field.
macro_rules! forward {
    ($field:tt: $($name:ident($($arg:ident: $type:ty),*) -> $output:ty;)*) => {$(
        fn $name(&self, $($arg: $type),*) -> $output {
            self.$field.$name($($arg),*)
        }
    )*};
}

/// Methods of `redb::StorageBackend` on a range of bytes, likewise.
macro_rules! forward_locks {
    ($field:tt: $($name:ident -> $output:ty;)*) => {
        $crate::db::forward::forward! {$field: $(
            $name(start: std::ops::Bound<u64>, end: std::ops::Bound<u64>)
                -> Result<$output, redb::BackendError>;
        )*}
    };
}

pub(super) use {forward, forward_locks};
