"""A small real pair at a big model's cost: same text, same acceptance, another price.

A checkpoint and its EAGLE-3 or P-EAGLE head are embedded into the shape of a larger model. What
comes out computes what went in; its parameters, kernels, KV cache and power are the large one's.
Folders hold a recipe and the small weights, and the engine's loader makes the large ones on the
device: `vllm serve FOLDER --load-format stand-in`, with this package's parent on PYTHONPATH.

Imports nothing of specctl: it runs inside an engine's Python.
"""
