//! The functions of `icopy.h`, each a translation.

use std::{
    env,
    ffi::{CStr, c_char, c_int, c_void},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use icopy::{Engine, Options, Use};

use crate::boundary::{self, Failure, guarded};

/// The one card of this program.
static ENGINE: Mutex<Option<Engine>> = Mutex::new(None);

fn engine() -> MutexGuard<'static, Option<Engine>> {
    ENGINE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Does something with the card.
fn with(body: impl FnOnce(&mut Engine) -> Result<c_int, Failure>) -> c_int {
    guarded(|| match &mut *engine() {
        Some(engine) => body(engine),
        None => Err(Failure("there is no card; icopy_open takes one".to_owned())),
    })
}

fn options() -> Result<Options, Failure> {
    let mut options = Options::default();
    if let Ok(text) = env::var("ICOPY_TIMEOUT_MS") {
        let wrong = |_| Failure(format!("ICOPY_TIMEOUT_MS is to be a number, not {text:?}"));
        options.timeout = Duration::from_millis(text.trim().parse().map_err(wrong)?);
    }
    Ok(options)
}

/// Takes a card.
///
/// # Safety
/// `card` is null or points to a string that ends with zero.
#[unsafe(no_mangle)]
unsafe extern "C" fn icopy_open(card: *const c_char) -> c_int {
    guarded(|| {
        let mut slot = engine();
        if slot.is_some() {
            return Err(Failure(
                "this program has a card already; icopy_close ends that".to_owned(),
            ));
        }
        let address = if card.is_null() {
            env::var("ICOPY_CARD").map_err(|_| Failure("ICOPY_CARD is to name the card".to_owned()))?
        } else {
            // SAFETY: the caller promises a string that ends with zero.
            let card = unsafe { CStr::from_ptr(card) };
            card.to_str()
                .map_err(|_| Failure("the card's name is no text".to_owned()))?
                .to_owned()
        };
        *slot = Some(Engine::open(address.parse()?, &options()?)?);
        Ok(0)
    })
}

#[unsafe(no_mangle)]
extern "C" fn icopy_close() -> c_int {
    guarded(|| match engine().take() {
        Some(_) => Ok(0),
        None => Err(Failure("there is no card; icopy_open takes one".to_owned())),
    })
}

fn register(memory: *mut c_void, len: usize, kind: Use) -> c_int {
    with(|engine| {
        // SAFETY: the header asks the caller for what this asks for.
        unsafe { engine.register(memory.cast(), len, kind)? };
        Ok(0)
    })
}

#[unsafe(no_mangle)]
extern "C" fn icopy_register(memory: *mut c_void, len: usize) -> c_int {
    register(memory, len, Use::Program)
}

#[unsafe(no_mangle)]
extern "C" fn icopy_register_receive(memory: *mut c_void, len: usize) -> c_int {
    register(memory, len, Use::Receive)
}

#[unsafe(no_mangle)]
extern "C" fn icopy_unregister(memory: *mut c_void, len: usize) -> c_int {
    with(|engine| {
        engine.unregister(memory.cast(), len)?;
        Ok(0)
    })
}

#[unsafe(no_mangle)]
extern "C" fn icopy(destination: *mut c_void, source: *const c_void, len: usize) -> c_int {
    with(|engine| {
        engine.icopy(destination.cast(), source.cast(), len)?;
        Ok(0)
    })
}

#[unsafe(no_mangle)]
extern "C" fn icopy_notif(
    destination: *mut c_void,
    source: *const c_void,
    len: usize,
    variable: *mut u64,
    value: u64,
) -> c_int {
    with(|engine| {
        engine.icopy_notif(destination.cast(), source.cast(), len, variable, value)?;
        Ok(0)
    })
}

#[unsafe(no_mangle)]
extern "C" fn icopy_k2u(destination: *mut c_void, source: *const c_void, len: usize) -> c_int {
    with(|engine| {
        engine.icopy_k2u(destination.cast(), source.cast(), len)?;
        Ok(0)
    })
}

#[unsafe(no_mangle)]
extern "C" fn icopy_k2u_notif(
    destination: *mut c_void,
    source: *const c_void,
    len: usize,
    variable: *mut u64,
    value: u64,
) -> c_int {
    with(|engine| {
        engine.icopy_k2u_notif(destination.cast(), source.cast(), len, variable, value)?;
        Ok(0)
    })
}

#[unsafe(no_mangle)]
extern "C" fn icopy_test(variable: *const u64, value: u64) -> c_int {
    with(|engine| Ok(engine.test(variable, value)?.into()))
}

#[unsafe(no_mangle)]
extern "C" fn icopy_wait(variable: *const u64, value: u64) -> c_int {
    with(|engine| {
        engine.wait(variable, value)?;
        Ok(0)
    })
}

#[unsafe(no_mangle)]
extern "C" fn icopy_progress() -> c_int {
    with(|engine| {
        engine.progress()?;
        Ok(engine.is_idle().into())
    })
}

#[unsafe(no_mangle)]
extern "C" fn icopy_error() -> *const c_char {
    boundary::sentence()
}
