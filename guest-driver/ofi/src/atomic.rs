//! Atomic operations on values: which there are, and what each makes of a value.

use std::ffi::c_int;

use crate::abi::*;

/// The longest operand in bytes: a request with it, and with what a swap compares, is one frame, so that requests stay in order.
pub(crate) const OPERAND_LEN_MAX: usize = 512;

/// An operation on values of one type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Atomic {
    datatype: u8,
    op: u8,
    /// The old values are wanted.
    pub(crate) fetches: bool,
}

impl Atomic {
    /// `None`: there is no such operation on values of this type.
    pub(crate) fn new(datatype: c_int, op: c_int, fetches: bool) -> Option<Self> {
        let is_float = matches!(datatype, FI_FLOAT | FI_DOUBLE);
        let is_bitwise = matches!(op, FI_BOR | FI_BAND | FI_BXOR | FI_MSWAP);
        let exists = (FI_INT8..=FI_DOUBLE).contains(&datatype)
            && (FI_MIN..=FI_MSWAP).contains(&op)
            && !(is_float && is_bitwise)
            // Without the old values a read says nothing.
            && (fetches || op != FI_ATOMIC_READ);
        exists.then_some(Self {
            datatype: datatype as u8,
            op: op as u8,
            fetches,
        })
    }

    /// Returns the operation as a number for a request.
    pub(crate) fn to_bits(self) -> u64 {
        u64::from(self.datatype) | u64::from(self.op) << 8 | u64::from(self.fetches) << 16
    }

    /// Reads the number that another endpoint sent.
    pub(crate) fn from_bits(bits: u64) -> Option<Self> {
        let [datatype, op, fetches, 0, 0, 0, 0, 0] = bits.to_le_bytes() else {
            return None;
        };
        (fetches <= 1).then(|| Self::new(datatype.into(), op.into(), fetches == 1))?
    }

    /// Returns the bytes of a value.
    pub(crate) fn size(self) -> usize {
        match c_int::from(self.datatype) {
            FI_INT8 | FI_UINT8 => 1,
            FI_INT16 | FI_UINT16 => 2,
            FI_INT32 | FI_UINT32 | FI_FLOAT => 4,
            _ => 8,
        }
    }

    /// Whether the operation has an operand.
    pub(crate) fn has_operand(self) -> bool {
        c_int::from(self.op) != FI_ATOMIC_READ
    }

    /// Whether the operation compares, or masks, with further values.
    pub(crate) fn compares(self) -> bool {
        c_int::from(self.op) >= FI_CSWAP
    }

    /// Makes the new values of the old ones, an operand for each, and what is compared. All have the same length, but for what the operation
    /// does not have.
    pub(crate) fn apply(self, values: &mut [u8], operand: &[u8], compared: &[u8]) {
        let size = self.size();
        for (at, value) in values.chunks_exact_mut(size).enumerate() {
            let place = at * size..(at + 1) * size;
            let (operand, compared) = (operand.get(place.clone()), compared.get(place));
            self.apply_to_one(value, operand.unwrap_or_default(), compared.unwrap_or_default());
        }
    }

    fn apply_to_one(self, value: &mut [u8], operand: &[u8], compared: &[u8]) {
        macro_rules! with {
            ($type:ty, $arithmetic:ident, $bits:ident) => {{
                let read = |bytes: &[u8]| {
                    bytes
                        .try_into()
                        .map_or(<$type>::default(), <$type>::from_le_bytes)
                };
                let (old, by, other) = (read(value), read(operand), read(compared));
                let new = self
                    .new_value(old, by, other)
                    .or_else(|| $arithmetic!(self, old, by))
                    .or_else(|| $bits!(self, old, by, other));
                value.copy_from_slice(&new.unwrap_or(old).to_le_bytes());
            }};
        }
        macro_rules! wrapping {
            ($self:ident, $old:ident, $by:ident) => {
                match c_int::from($self.op) {
                    FI_SUM => Some($old.wrapping_add($by)),
                    FI_PROD => Some($old.wrapping_mul($by)),
                    _ => None,
                }
            };
        }
        macro_rules! floating {
            ($self:ident, $old:ident, $by:ident) => {
                match c_int::from($self.op) {
                    FI_SUM => Some($old + $by),
                    FI_PROD => Some($old * $by),
                    _ => None,
                }
            };
        }
        macro_rules! bitwise {
            ($self:ident, $old:ident, $by:ident, $mask:ident) => {
                match c_int::from($self.op) {
                    FI_BOR => Some($old | $by),
                    FI_BAND => Some($old & $by),
                    FI_BXOR => Some($old ^ $by),
                    FI_MSWAP => Some($by & $mask | $old & !$mask),
                    _ => None,
                }
            };
        }
        macro_rules! none {
            ($self:ident, $old:ident, $by:ident, $mask:ident) => {
                None
            };
        }
        match c_int::from(self.datatype) {
            FI_INT8 => with!(i8, wrapping, bitwise),
            FI_UINT8 => with!(u8, wrapping, bitwise),
            FI_INT16 => with!(i16, wrapping, bitwise),
            FI_UINT16 => with!(u16, wrapping, bitwise),
            FI_INT32 => with!(i32, wrapping, bitwise),
            FI_UINT32 => with!(u32, wrapping, bitwise),
            FI_INT64 => with!(i64, wrapping, bitwise),
            FI_UINT64 => with!(u64, wrapping, bitwise),
            FI_FLOAT => with!(f32, floating, none),
            _ => with!(f64, floating, none),
        }
    }

    /// Returns the new value of the operations that every type has. `None`: it is another one.
    fn new_value<T: Copy + Default + PartialOrd + From<bool>>(self, old: T, by: T, compared: T) -> Option<T> {
        let zero = T::default();
        let (is_old, is_by) = (old != zero, by != zero);
        let swaps = |condition: bool| Some(if condition { by } else { old });
        match c_int::from(self.op) {
            FI_MIN => swaps(by < old),
            FI_MAX => swaps(by > old),
            FI_LOR => Some((is_old || is_by).into()),
            FI_LAND => Some((is_old && is_by).into()),
            FI_LXOR => Some((is_old != is_by).into()),
            FI_ATOMIC_READ => Some(old),
            FI_ATOMIC_WRITE => Some(by),
            // The value that is compared stands first: it is, say, less than the old one.
            FI_CSWAP => swaps(compared == old),
            FI_CSWAP_NE => swaps(compared != old),
            FI_CSWAP_LE => swaps(compared <= old),
            FI_CSWAP_LT => swaps(compared < old),
            FI_CSWAP_GE => swaps(compared >= old),
            FI_CSWAP_GT => swaps(compared > old),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(datatype: c_int, op: c_int, bytes: [&[u8]; 3]) -> Vec<u8> {
        let [old, by, compared] = bytes;
        let mut values = old.to_vec();
        Atomic::new(datatype, op, false)
            .unwrap()
            .apply(&mut values, by, compared);
        values
    }

    #[test]
    fn each_operation_makes_of_values_what_its_name_says() {
        let on_i32 = |op, old: i32, by: i32, compared: i32| {
            let bytes = [old, by, compared].map(i32::to_le_bytes);
            let new = result(FI_INT32, op, bytes.each_ref().map(|bytes| &bytes[..]));
            i32::from_le_bytes(new.try_into().unwrap())
        };
        for (op, old, by, compared, new) in [
            (FI_MIN, 5, -3, 0, -3),
            (FI_MAX, 5, -3, 0, 5),
            (FI_SUM, i32::MAX, 1, 0, i32::MIN),
            (FI_PROD, 7, -3, 0, -21),
            (FI_LOR, 0, 9, 0, 1),
            (FI_LAND, 4, 9, 0, 1),
            (FI_LAND, 4, 0, 0, 0),
            (FI_LXOR, 4, 9, 0, 0),
            (FI_BOR, 12, 10, 0, 14),
            (FI_BAND, 12, 10, 0, 8),
            (FI_BXOR, 12, 10, 0, 6),
            (FI_ATOMIC_WRITE, 1, 2, 0, 2),
            (FI_CSWAP, 1, 2, 1, 2),
            (FI_CSWAP, 1, 2, 3, 1),
            (FI_CSWAP_NE, 1, 2, 3, 2),
            (FI_CSWAP_LE, 1, 2, 1, 2),
            (FI_CSWAP_LT, 1, 2, 1, 1),
            (FI_CSWAP_LT, 1, 2, 0, 2),
            (FI_CSWAP_GE, 1, 2, 0, 1),
            (FI_CSWAP_GT, 1, 2, 3, 2),
            (FI_MSWAP, 0x55, 0xff, 0xf0, 0xf5),
        ] {
            assert_eq!(on_i32(op, old, by, compared), new, "operation {op} on {old} with {by}");
        }
        let doubles = [1.5_f64, -2.0].map(f64::to_le_bytes).concat();
        let by = [0.25_f64, 4.0].map(f64::to_le_bytes).concat();
        let sums = [1.75_f64, 2.0].map(f64::to_le_bytes).concat();
        assert_eq!(
            result(FI_DOUBLE, FI_SUM, [&doubles, &by, &[]]),
            sums,
            "each value has its operand"
        );
        assert_eq!(result(FI_UINT8, FI_MAX, [&[200], &[100], &[]]), [200], "without a sign");
        assert_eq!(result(FI_INT8, FI_MAX, [&[200], &[100], &[]]), [100], "with a sign");
    }

    #[test]
    fn operations_that_there_are_not_are_refused_and_the_others_survive_the_wire() {
        for (datatype, op) in [
            (10, FI_SUM),
            (-1, FI_SUM),
            (FI_INT8, 19),
            (FI_INT8, -1),
            (FI_FLOAT, FI_BOR),
            (FI_DOUBLE, FI_MSWAP),
        ] {
            assert_eq!(Atomic::new(datatype, op, true), None, "{op} on {datatype}");
        }
        assert_eq!(Atomic::new(FI_INT8, FI_ATOMIC_READ, false), None, "a read of nothing");
        for datatype in FI_INT8..=FI_DOUBLE {
            for op in FI_MIN..=FI_MSWAP {
                let atomic = Atomic::new(datatype, op, true);
                assert_eq!(atomic.and_then(|atomic| Atomic::from_bits(atomic.to_bits())), atomic);
            }
        }
        assert_eq!(Atomic::from_bits(2 << 16), None);
        assert_eq!(Atomic::from_bits(1 << 24), None);
    }
}
