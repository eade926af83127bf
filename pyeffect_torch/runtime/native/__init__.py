"""The native core: loading the library, its declarations, its status codes."""
