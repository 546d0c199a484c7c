"""`python -m speccli`: the same as `specctl`."""

from speccli.start import main

if __name__ == "__main__":
    main()
