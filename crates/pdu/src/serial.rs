//! Sequence numbers: 32-bit counters that wrap, compared by RFC 1982 serial arithmetic
//! (RFC 7143 §4.2.2).

use std::fmt;

macro_rules! serial_number {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Default, Eq, Hash, PartialEq)]
        pub struct $name(u32);

        impl $name {
            /// Creates a number from its value in a PDU; every value is legal.
            pub const fn new(value: u32) -> Self {
                Self(value)
            }

            /// Returns the value in a PDU.
            pub const fn get(self) -> u32 {
                self.0
            }

            /// Returns the number after this one, wrapping at 2^32.
            #[must_use]
            pub const fn next(self) -> Self {
                self.plus(1)
            }

            /// Returns the number `count` steps after this one, wrapping at 2^32.
            #[must_use]
            pub const fn plus(self, count: u32) -> Self {
                Self(self.0.wrapping_add(count))
            }

            /// Returns the number `count` steps before this one, wrapping at 2^32.
            #[must_use]
            pub const fn minus(self, count: u32) -> Self {
                Self(self.0.wrapping_sub(count))
            }

            /// Returns the number of steps from `earlier` to `self`; negative if `self` is before `earlier`.
            ///
            /// In RFC 1982 two numbers that are exactly 2^31 apart have no order; here the distance is then
            /// `i32::MIN`.
            pub const fn distance_from(self, earlier: Self) -> i32 {
                self.0.wrapping_sub(earlier.0).cast_signed()
            }

            /// Returns whether `self` is after `other`.
            pub const fn is_after(self, other: Self) -> bool {
                self.distance_from(other) > 0
            }

            /// Returns whether `self` is before `other`.
            pub const fn is_before(self, other: Self) -> bool {
                other.distance_from(self) > 0
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({:#x})"), self.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:#x}", self.0)
            }
        }
    };
}

serial_number! {
    /// Command Sequence Number: the order of commands in a session (RFC 7143 §4.2.2.1).
    CmdSn
}
serial_number! {
    /// Status Sequence Number: the order of responses on a connection (RFC 7143 §4.2.2.2).
    StatSn
}
serial_number! {
    /// Data Sequence Number: the order of Data-In PDUs in a task, or of Data-Out PDUs in a
    /// sequence (RFC 7143 §4.2.2.4).
    DataSn
}
serial_number! {
    /// R2T Sequence Number: the order of R2Ts in a task (RFC 7143 §11.8.3).
    R2tSn
}

#[cfg(test)]
mod tests {
    use super::CmdSn;

    #[test]
    fn order_survives_the_wrap() {
        let last = CmdSn::new(u32::MAX);
        assert_eq!(last.next(), CmdSn::new(0));
        assert!(last.is_before(last.next()));
        assert!(last.next().is_after(last));
        assert_eq!(last.plus(5).distance_from(last), 5);
        assert_eq!(last.distance_from(last.plus(5)), -5);
        assert_eq!(CmdSn::new(3).minus(5), CmdSn::new(u32::MAX - 1));
    }

    #[test]
    fn opposite_numbers_have_no_order() {
        let (a, b) = (CmdSn::new(0), CmdSn::new(1 << 31));
        assert!(!a.is_after(b) && !b.is_after(a));
        assert!(!a.is_before(b) && !b.is_before(a));
    }
}
