// Package tools pins the real KWOK controller that the testbed builds.
package tools

import (
	_ "sigs.k8s.io/kwok/pkg/kwok/cmd"
)
