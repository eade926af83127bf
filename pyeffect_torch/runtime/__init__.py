"""Runtimes: what encodes programs and runs them. No runtime falls back to another."""
