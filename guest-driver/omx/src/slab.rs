//! Numbered places that are used again; a name holds the place's generation, so that a stale one is noticed.

/// A name: 24 bits of generation, 32 of place.
pub(crate) type Key = u64;

const GENERATION_MASK: u32 = 0xff_ffff;

#[derive(Debug)]
struct Place<T> {
    generation: u32,
    value: Option<T>,
}

/// Values by key, at most `limit`.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    places: Vec<Place<T>>,
    free: Vec<u32>,
    limit: u32,
}

impl<T> Slab<T> {
    pub(crate) const fn new(limit: u32) -> Self {
        Self {
            places: Vec::new(),
            free: Vec::new(),
            limit,
        }
    }

    /// Keeps a value. `None` at the limit.
    #[inline]
    pub(crate) fn insert(&mut self, value: T) -> Option<Key> {
        let at = match self.free.pop() {
            Some(at) => at,
            None if self.places.len() < self.limit as usize => {
                self.places.push(Place {
                    generation: 0,
                    value: None,
                });
                self.places.len() as u32 - 1
            }
            None => return None,
        };
        let place = &mut self.places[at as usize];
        place.value = Some(value);
        Some(u64::from(place.generation) << 32 | u64::from(at))
    }

    /// Finds the first value like this; checks all of them.
    pub(crate) fn find(&self, like: impl Fn(&T) -> bool) -> Option<Key> {
        let found = |(_, place): &(u64, &Place<T>)| place.value.as_ref().is_some_and(&like);
        let (at, place) = (0..).zip(&self.places).find(found)?;
        Some(u64::from(place.generation) << 32 | at)
    }

    /// Whether another value can be kept.
    #[inline]
    pub(crate) fn has_room(&self) -> bool {
        !self.free.is_empty() || self.places.len() < self.limit as usize
    }

    #[inline]
    fn place(&self, key: Key) -> Option<usize> {
        let at = (key & 0xffff_ffff) as usize;
        let place = self.places.get(at)?;
        (u64::from(place.generation) == key >> 32).then_some(at)
    }

    #[inline]
    pub(crate) fn get(&self, key: Key) -> Option<&T> {
        self.places[self.place(key)?].value.as_ref()
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        let at = self.place(key)?;
        self.places[at].value.as_mut()
    }

    /// Forgets a value where it lies.
    #[inline]
    pub(crate) fn discard(&mut self, key: Key) {
        if let Some(at) = self.place(key)
            && self.places[at].value.is_some()
        {
            let place = &mut self.places[at];
            place.value = None;
            place.generation = (place.generation + 1) & GENERATION_MASK;
            self.free.push(at as u32);
        }
    }

    #[inline]
    pub(crate) fn remove(&mut self, key: Key) -> Option<T> {
        let at = self.place(key)?;
        let place = &mut self.places[at];
        let value = place.value.take()?;
        place.generation = (place.generation + 1) & GENERATION_MASK;
        self.free.push(at as u32);
        Some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stale_key_finds_nothing_and_the_limit_holds() {
        let mut slab = Slab::new(2);
        let (a, b) = (slab.insert('a').unwrap(), slab.insert('b').unwrap());
        assert_eq!(slab.insert('c'), None);
        assert_eq!(slab.remove(a), Some('a'));
        let c = slab.insert('c').unwrap();
        assert_eq!(slab.remove(a), None);
        assert_eq!((slab.get(a), slab.get(b), slab.get(c)), (None, Some(&'b'), Some(&'c')));
    }
}
