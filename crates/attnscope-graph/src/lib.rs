//! attnscope-graph
