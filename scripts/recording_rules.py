"""Write the rules, their tests and the dashboard with default thresholds (`make rules`)."""

from pathlib import Path

from speccli.core.alert.rules.model import Terms
from speccli.core.alert.rules.write import files, write

FOLDER = Path(__file__).parents[1] / "manifests" / "monitoring"

if __name__ == "__main__":
    write(FOLDER, files(Terms(), made_by="make rules"), force=True)
