//! Ctrl-C and SIGTERM request the end of a run that has started other processes: they are ended before this one.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const SIGINT: c_int = 2;
const SIGTERM: c_int = 15;

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

unsafe extern "C" {
    fn signal(number: c_int, handler: extern "C" fn(c_int)) -> usize;
}

extern "C" fn on_signal(_number: c_int) {
    INTERRUPTED.store(true, Ordering::Relaxed);
}

/// From now on these signals only request the end, so that what was started is ended first.
pub fn catch_signals() {
    for number in [SIGINT, SIGTERM] {
        // SAFETY: the handler only stores to an atomic, which a signal handler may do.
        unsafe { signal(number, on_signal) };
    }
}

/// Whether a signal has requested the end.
pub fn is_interrupted() -> bool {
    INTERRUPTED.load(Ordering::Relaxed)
}

/// Waits for the time, or until a signal requests the end.
pub fn sleep(span: Duration) {
    let end = Instant::now() + span;
    while !is_interrupted() && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(20).min(end.saturating_duration_since(Instant::now())));
    }
}

/// Kind `Interrupted` if a signal has requested the end.
pub fn check() -> std::io::Result<()> {
    if is_interrupted() {
        Err(std::io::Error::new(std::io::ErrorKind::Interrupted, "a signal requested the end"))
    } else {
        Ok(())
    }
}
