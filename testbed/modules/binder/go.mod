module fairlead.dev/testbed/binder

go 1.26.0
