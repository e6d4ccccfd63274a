"""The running scheduler: I/O in one thread, the core in another, two queues between them."""
