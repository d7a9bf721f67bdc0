"""What Geppetto's runs, turns and blocks are, as documents and in a log: all that can be said without one.

`types` and `keys` have them, `documents` reads and writes them as YAML and JSON, `content` makes content blocks of
blocks, `planning` says what a run is in a log, and `importing` takes files in. `turnlog.interop.geppetto` has all of
it for users, with what needs a log.
"""
