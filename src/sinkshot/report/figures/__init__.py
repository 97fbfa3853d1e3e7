"""Figures of the pages as inline SVG.

`svg` turns what matplotlib paints into a panel of the page, `charts` has the kinds of charts, `studies` draws what
`sinkshot reproduce` measured, `calibration` its confidences, and `demo` what `sinkshot demo` shows.
"""
