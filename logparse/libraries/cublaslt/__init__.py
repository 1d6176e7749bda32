"""Everything that only cuBLASLt has: its log, its names of algorithms, its replay backend."""
