"""Shipped conformance suites, strategies and fault injection."""
