// Package tools pins the real etcd server that the testbed builds.
package tools

import (
	_ "go.etcd.io/etcd/server/v3/etcdmain"
)
