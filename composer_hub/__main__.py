"""`python -m composer_hub` is `composer-hub`."""

from composer_hub.cli import main

if __name__ == "__main__":
    main()
