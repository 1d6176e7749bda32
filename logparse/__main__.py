"""The program, for a shell: ``python -m logparse``, and the script ``logparse``."""

import gc
import sys


def program() -> None:
    """Run the program."""
    # Imports make 100,000 objects that stay: to look for garbage among them again and again takes longer than --help.
    gc.set_threshold(200_000)
    from logparse.cli import main

    try:
        main()
    finally:
        if "_duckdb" not in sys.modules:  # DuckDB warns at exit about uncollected objects
            gc.freeze()  # also at the interpreter's end


if __name__ == "__main__":
    program()
