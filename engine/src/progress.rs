//! Receivers of the events of a run.

pub use model::Event;

/// Receives the events of a run.
pub trait Watcher {
    /// Takes one event. Must not block: it runs between two samples.
    fn event(&mut self, event: &Event<'_>);
}

/// Passes every event on to each of several watchers.
pub struct Tee<'a>(pub Vec<&'a mut dyn Watcher>);

impl Watcher for Tee<'_> {
    fn event(&mut self, event: &Event<'_>) {
        for watcher in &mut self.0 {
            watcher.event(event);
        }
    }
}
