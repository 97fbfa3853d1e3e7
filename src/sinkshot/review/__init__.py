"""Review labels in the browser: a local application on top of `sinkshot.label` (extra `sinkshot[app]`).

Read in this order: `state` (items, labels, predictions), `refit` (the classifier learns from decisions in the
background), `audit` and `likeness` (what the page shows beside them), `thumbnails`, `security`, `app` (what is answered
to which address), `server` (from the command to the browser). The page itself is in `static`.

Decisions are those of `sinkshot.label.decisions`, the classifier and the files those of `sinkshot.label`.
"""
