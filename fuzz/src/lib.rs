//! What the fuzz targets do with their input. A target is one line over this.

pub mod checkpoint;
pub mod config;
mod heap;
pub mod input;
pub mod worked;
