//! filled next
