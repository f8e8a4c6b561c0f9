//! The notebook of runs. Promise: the only room that speaks SQL.
