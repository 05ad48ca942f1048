//! A value of each type that is asked for.

use std::any::Any;
use std::fmt;
use std::sync::OnceLock;

/// At most one value of each type, made when it is first asked for and kept as long as the map. A lookup takes no lock; it
/// passes the values that were made before, of which there should be few.
#[derive(Default)]
pub(in crate::ops) struct TypeMap(OnceLock<Box<Entry>>);

struct Entry {
    value: Box<dyn Any + Send + Sync>,
    next: TypeMap,
}

impl TypeMap {
    /// The value of a type, its default one if there was none.
    pub(in crate::ops) fn get<T: Any + Default + Send + Sync>(&self) -> &T {
        let mut map = self;
        loop {
            // Of several threads that come to the end, one adds its value, and the others look at that.
            let entry = map
                .0
                .get_or_init(|| Box::new(Entry { value: Box::new(T::default()), next: Self::default() }));
            if let Some(value) = entry.value.downcast_ref() {
                return value;
            }
            map = &entry.next;
        }
    }
}

impl fmt::Debug for TypeMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TypeMap").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::Mutex;

    #[test]
    fn each_type_has_one_value() {
        let map = TypeMap::default();
        *map.get::<Mutex<u32>>().lock() = 3;
        *map.get::<Mutex<u64>>().lock() = 5;
        assert_eq!((*map.get::<Mutex<u32>>().lock(), *map.get::<Mutex<u64>>().lock()), (3, 5));
        assert_eq!(map.get::<String>(), "");
    }

    #[test]
    fn threads_that_ask_at_once_have_the_same_values() {
        fn address<T: Any + Default + Send + Sync>(map: &TypeMap) -> usize {
            std::ptr::from_ref(map.get::<T>()).addr()
        }
        for _ in 0..100 {
            let map = TypeMap::default();
            let ask = || [address::<u8>(&map), address::<u16>(&map), address::<u32>(&map)];
            let ask_in_turn = || [address::<u32>(&map), address::<u16>(&map), address::<u8>(&map)];
            let (found, mut other) = std::thread::scope(|scope| {
                let found = scope.spawn(ask);
                let other = ask_in_turn();
                (found.join().unwrap(), other)
            });
            other.reverse();
            assert_eq!(found, other);
        }
    }
}
