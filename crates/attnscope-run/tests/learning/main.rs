//! Learning: gradients against the slopes of the reference executor, a step against PyTorch's.

#![allow(unreachable_pub)] // A test has no other crate to be seen by.
#![allow(clippy::unwrap_used, clippy::panic)] // Helpers of tests are not seen as tests.

#[path = "../common/mod.rs"]
mod common;

mod case;
mod gradients;
mod steps;
mod torch;
