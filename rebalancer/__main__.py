"""`python -m rebalancer`, which is what the container image starts."""

from rebalancer.cli import main

if __name__ == "__main__":
    main()
