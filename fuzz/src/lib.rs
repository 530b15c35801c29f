//! What the fuzz targets do with their input. A target is one line over this.

pub mod checkpoint;
pub mod config;
pub mod dump;
mod files;
pub mod given;
mod heap;
pub mod input;
pub mod settings;
pub mod shards;
pub mod trace;
pub mod worked;
