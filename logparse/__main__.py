"""The program, for a shell: ``python -m logparse``, and the script ``logparse``."""

import gc


def program() -> None:
    """Run the program, whose process ends here."""
    # Imports make 100,000 objects that stay: to look for garbage among them again and again takes longer than --help.
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
