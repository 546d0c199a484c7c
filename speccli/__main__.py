"""`python -m speccli`: the same as `specctl`."""

from speccli.main import main

if __name__ == "__main__":
    main()
