"""Override files: how each library reads its own, and everything that is written over that."""
