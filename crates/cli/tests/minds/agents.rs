//! Agents that tenants define.
