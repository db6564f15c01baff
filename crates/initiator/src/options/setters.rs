//! Setters that consume and return the options, so that they can be written in one expression.

/// Makes `with_field(value)` of fields.
macro_rules! setters {
    ($($setter:ident($field:ident: $kind:ty)),* $(,)?) => {
        $(
            #[doc = concat!("Sets [`", stringify!($field), "`](Self::", stringify!($field), ").")]
            #[must_use]
            pub fn $setter(mut self, $field: $kind) -> Self {
                self.$field = $field;
                self
            }
        )*
    };
}

pub(super) use setters;
