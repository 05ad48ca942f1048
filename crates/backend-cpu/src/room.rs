//! Memory that an operation needs for itself.

use bytemuck::Zeroable;

/// There is no room for so many bytes.
#[derive(Debug)]
pub(crate) struct NoRoom {
    pub(crate) bytes: usize,
}

/// A number of zeros, which the system gives for free.
pub(crate) fn zeros<T: Zeroable>(count: usize) -> Result<Vec<T>, NoRoom> {
    let bytes = count.saturating_mul(size_of::<T>());
    bytemuck::allocation::try_zeroed_vec(count).map_err(|()| NoRoom { bytes })
}

/// A number of copies of a value.
pub(crate) fn filled<T: Clone>(value: T, count: usize) -> Result<Vec<T>, NoRoom> {
    let mut values = with_room_for(count)?;
    values.resize(count, value);
    Ok(values)
}

/// A copy of these values.
pub(crate) fn copied<T: Copy>(values: &[T]) -> Result<Vec<T>, NoRoom> {
    let mut copy = with_room_for(values.len())?;
    copy.extend_from_slice(values);
    Ok(copy)
}

/// A vector without elements that has room for so many.
pub(crate) fn with_room_for<T>(count: usize) -> Result<Vec<T>, NoRoom> {
    let mut values = Vec::new();
    let room = values.try_reserve_exact(count);
    room.map(|()| values).map_err(|_| NoRoom { bytes: count.saturating_mul(size_of::<T>()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_room_is_told_with_its_bytes() {
        let most = isize::MAX as usize / size_of::<f32>();
        let missing = |made: Result<Vec<f32>, NoRoom>| made.err().map(|NoRoom { bytes }| bytes);
        assert_eq!(missing(zeros(most)), Some(most * 4));
        assert_eq!(missing(filled(1.0, most)), Some(most * 4));
        assert_eq!(missing(with_room_for(most)), Some(most * 4));
        assert_eq!(missing(with_room_for(usize::MAX)), Some(usize::MAX));
        assert_eq!(filled(1.5, 3).unwrap(), [1.5; 3]);
        assert_eq!(copied(&[1, 2]).unwrap(), [1, 2]);
        assert!(with_room_for::<u8>(5).unwrap().capacity() >= 5);
    }
}
