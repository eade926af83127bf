"""The lazy semantic graph: dtypes, arrays, op declarations, walks, source lines, errors.

Nothing here imports a runtime or anything native; `ops` and `transforms` build on it.
"""
