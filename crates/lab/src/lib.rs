//! Test hosts and real programs for whole-system tests.
