"""Jobs that press on what a node's pods share: how much they slow one another down, with and without what was learned of them."""
