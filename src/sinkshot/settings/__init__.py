"""Checked hyper-parameters and numerical constants that the readable methods and the compiled kernels share.

`constants` has the numbers, `bms`, `tim` and `sinkshot` one method each. This package stands below `methods` and
`kernels` and imports neither. Kernels compile constants in, so each file here is part of the digest that names their
machine code on disk.
"""
