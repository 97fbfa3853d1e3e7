"""Untrusted files: every reader of the package opens them here, under one table of limits.

Read in this order: `limits` (the table), `files` (opening), then one module for each kind of content: `texts` (TOML,
JSON, lists), `arrays` (`.npy`, `.npz`), `pickles` (`.plk`, `.pt`), `archives` (tar), `tensors` (`.safetensors`),
`databases` (SQLite), `pictures` (images), `child` (work that only a separate process can bound). `folders` opens
files of a folder, here or at an address. docs/security.md says what is promised.
"""
