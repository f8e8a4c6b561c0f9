//! Where the kernel gave something else than was asked for.

use model::{SocketSettings, SocketState, Warning};

/// Says where the options in force on a live socket differ from those asked for, why that is so, what
/// it means for the figures and what to do. `whose` names the end at the start of a sentence, like
/// `This host` or `The far end`.
pub fn setting_warnings(_asked: &SocketSettings, _got: &SocketState, _whose: &str) -> Vec<Warning> {
    Vec::new()
}
