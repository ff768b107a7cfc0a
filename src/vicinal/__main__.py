"""``python -m vicinal``, which ``torchrun -m vicinal`` needs."""

from vicinal.cli.main import run

if __name__ == "__main__":
    run()
