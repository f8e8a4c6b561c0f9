//! The points between which everything can stop for ever.

/// Names a point at which something has just been done. In debug builds the environment variable
/// `LINERATE_DIE_AFTER_STEP` (for the guard: `LINERATE_GUARD_DIE_AFTER_STEP`) is the number or the name of
/// the step after which the process kills itself, for the tests of what survives; with `LINERATE_CUT_POWER` the whole machine
/// starts again without writing anything to its disks: only for one that was made for that (`bench/power`).
#[cfg(debug_assertions)]
pub fn step(name: &str) {
    use std::sync::atomic::Ordering::Relaxed;
    let variable = if GUARD.load(Relaxed) {
        "LINERATE_GUARD_DIE_AFTER_STEP"
    } else {
        "LINERATE_DIE_AFTER_STEP"
    };
    let Ok(last) = std::env::var(variable) else {
        return;
    };
    let now = COUNT.fetch_add(1, Relaxed) + 1;
    if last == name || last == now.to_string() {
        eprintln!("dies after step {now}: {name}");
        if std::env::var_os("LINERATE_CUT_POWER").is_some() {
            let _ = std::fs::write("/dev/console", format!("dies after step {now}: {name}\n"));
            // Documentation/admin-guide/sysrq.rst
            let _ = std::fs::write("/proc/sysrq-trigger", "b");
        }
        let _ = sys::signal::end(std::process::id(), true);
        // The signal may arrive a moment later.
        loop {
            std::thread::park();
        }
    }
}

/// Names a point at which something has just been done.
#[cfg(not(debug_assertions))]
pub fn step(_: &str) {}

/// From now on this process is the guard.
pub(crate) fn i_am_the_guard() {
    #[cfg(debug_assertions)]
    GUARD.store(true, std::sync::atomic::Ordering::Relaxed);
}

#[cfg(debug_assertions)]
static GUARD: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);
#[cfg(debug_assertions)]
static COUNT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
