"""Down from a draft that has gone bad, and back when it is well."""
