//! attnscope-checkpoint
