"""Studies: the paper's tables and figures as data, their runner, and the store of results.

The way of a number, from a TOML file to a page:

    study.toml --parse--> Study of Cells --expand--> the same with the episodes asked for, on every bank there is
        Cell          a number to measure: bank, recipe, method, preprocessing, hyper-parameters     study
        ResolvedCell  the same with nothing left open, and where its features are                    resolve
        Chunk         a range of its episodes, which one process computes                            chunks
        ChunkResult   accuracy of each of these episodes                                             chunks
        StoredResult  all chunks of a cell, as the store keeps them                                  store
    RunResult (`run`: results by Cell, claims judged once) --report--> TableCell: the number beside the paper's

`run.run` drives it: `processes` or `cluster` compute chunks, `progress` predicts the remaining time. Beside this way:
`catalogue` finds the files of banks, `merge` and `random_coordinates` combine backbones, `measures` looks at features
themselves, `claims` judges what a paper says. TOML files are checked by `toml_schema`, which knows the line of each
key from `toml_positions`. Read `study`, `resolve`, `run` first.
"""
