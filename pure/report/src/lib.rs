//! Runs and summaries to text and JSON; returns strings, writes nothing.
