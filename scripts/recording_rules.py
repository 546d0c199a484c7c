"""Write the recording rules from the tables in speccli.core.sources.recorded (`make rules`)."""

from pathlib import Path

from speccli.core.sources.recorded import rules_text

PATH = Path(__file__).parents[1] / "manifests" / "monitoring" / "recording-rules.yaml"

if __name__ == "__main__":
    PATH.parent.mkdir(parents=True, exist_ok=True)
    PATH.write_text(rules_text())
