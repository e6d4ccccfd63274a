"""Growth: what one placement, event, pass or question costs at several sizes of one dimension, all else being equal."""
