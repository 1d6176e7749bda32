"""Start the program: ``python -m logparse`` and the script ``logparse`` call ``program``."""

import gc


def program() -> None:
    """Run the command line program, then end the process with its exit code."""
    # Imports make 100,000 objects that are never freed.  The garbage collector would search them again and again, which
    # takes longer than all the rest of ``--help``.
    gc.set_threshold(200_000)
    from logparse.cli import main
    from logparse.output.program import end_process

    code: object = 0
    try:
        main()
    except SystemExit as ended:
        code = ended.code
    end_process(code)


if __name__ == "__main__":
    program()
