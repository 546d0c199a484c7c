"""`python -m stand_in …`: makes a folder for the engine."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path

from stand_in import folders, quantize, shapes
from stand_in.mixture import Mixture


def main(arguments: list[str]) -> int:
    """0 made, 2 it does not fit."""
    asked = _parser().parse_args(arguments)
    try:
        if asked.what == "mixture":
            kind = Mixture(
                asked.experts, asked.active, asked.spread, asked.router, asked.noise, asked.seed
            )
            folders.upcycled(asked.target, asked.out, kind)
            return 0
        shape = shapes.SHAPES[asked.shape]
        if asked.vocab:
            shape = replace(shape, vocab=asked.vocab)
        at = folders.target(asked.target, asked.out / "target", shape, asked.weights, asked.seed)
        for given in asked.head:
            name, _, folder = given.partition("=")
            folders.head(Path(folder), asked.out / name, at)
    except shapes.Unfit as error:
        print(f"stand_in: {error}", file=sys.stderr)
        return 2
    print(json.dumps({"shape": asked.shape, "weights": asked.weights, "params": shape.params}))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="stand_in", description=__doc__)
    what = parser.add_subparsers(dest="what", required=True)
    model = what.add_parser("model", help="a target, and heads for it, in a larger shape")
    model.add_argument("--shape", choices=sorted(shapes.SHAPES), required=True)
    model.add_argument("--weights", choices=quantize.KINDS, default="bf16")
    model.add_argument("--head", action="append", default=[], metavar="NAME=FOLDER")
    model.add_argument("--vocab", type=int, help="another vocabulary, to fit a target's")
    mixture = what.add_parser("mixture", help="the target as a mixture of experts")
    mixture.add_argument("--experts", type=int, default=8)
    mixture.add_argument("--active", type=int, default=2)
    mixture.add_argument("--spread", type=float, default=0.0)
    mixture.add_argument("--router", type=float, default=1.0)
    mixture.add_argument("--noise", type=float, default=0.0)
    for each in (model, mixture):
        each.add_argument("--target", type=Path, required=True)
        each.add_argument("--out", type=Path, required=True)
        each.add_argument("--seed", type=int, default=0)
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
