"""`python -m composer_hub` is `composer-hub`."""

from composer_hub.cli.main import main

if __name__ == "__main__":
    main()
