//! Hints to the processor about cache lines that will be used soon, as drivers give them.

/// Asks for the cache line at `ptr`, which will be read soon. Any address will do.
#[inline(always)]
pub fn prefetch(ptr: *const u8) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch is a hint; it faults on no address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(ptr.cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = ptr;
}

/// Asks for the cache line at `ptr`, which will be written soon. Any address will do.
#[inline(always)]
pub fn prefetch_for_write(ptr: *mut u8) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_ET0, _mm_prefetch};
        // SAFETY: a prefetch is a hint; it faults on no address.
        unsafe { _mm_prefetch::<_MM_HINT_ET0>(ptr.cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = ptr;
}
