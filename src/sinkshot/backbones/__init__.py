"""From images to features: networks, data sets, training and extraction. Needs the extra `sinkshot[torch]`."""
