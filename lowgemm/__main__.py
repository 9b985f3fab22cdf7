"""``python -m lowgemm``."""

from lowgemm.cli import main

if __name__ == "__main__":
    main()
