//! Who is told what happens during a run.

pub use model::Event;

/// Is told what happens during a run.
pub trait Watcher {
    /// Takes one event. Must not block: it runs between two samples.
    fn event(&mut self, event: &Event<'_>);
}

/// Tells everything to each of several watchers.
pub struct Tee<'a>(pub Vec<&'a mut dyn Watcher>);

impl Watcher for Tee<'_> {
    fn event(&mut self, event: &Event<'_>) {
        for watcher in &mut self.0 {
            watcher.event(event);
        }
    }
}
