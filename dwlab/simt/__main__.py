"""``python -m dwlab.simt script.py …``: dwlab.simulator.run, which stands above this room as every command does."""

from dwlab.simulator import run

if __name__ == "__main__":
    run.main()
