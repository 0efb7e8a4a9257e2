"""`python -m forebay.cli`, the same as `forebay`."""

from forebay.cli import main

if __name__ == "__main__":
    main()
