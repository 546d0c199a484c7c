"""Write manifests/base and manifests/components anew (`make manifests`)."""

import shutil
from pathlib import Path

from speccli.core.manifests.shipped import shipped

FOLDER = Path(__file__).parents[1] / "manifests"

if __name__ == "__main__":
    for name in ("base", "components"):
        shutil.rmtree(FOLDER / name, ignore_errors=True)
    for name, text in shipped().items():
        path = FOLDER / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
