"""From your own things to labels: images, texts or embeddings, a few of them labelled, to a label for every other.

Read in this order: `items` (what is to be labelled), `inputs` (how it is recognised), `encode` and `cache` (features),
`engine` (the classifier and its answers), `answers` (the files that are written), `page` and `exports`, and last
`run`, which joins them for the command and for `sinkshot.label`.
"""
