"""The command line as a program: `nibblespec`, or `python -m nibblespec.conformance`."""

from nibblespec.conformance.interrupts import end_at_once


def main() -> None:
    """Run the command line, which takes a moment to be imported and may be interrupted then."""
    end_at_once()
    from nibblespec.conformance.cli import main as run  # noqa: PLC0415

    run()


if __name__ == "__main__":
    main()
