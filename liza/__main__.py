"""`python -m liza` is `liza`, for where the script is not on the PATH."""

if __name__ == "__main__":
    from liza.cli.main import main

    main()
