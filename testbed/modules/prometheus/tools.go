//go:build tools

// Package tools pins the real Prometheus and promtool that the testbed builds.
package tools

import (
	_ "github.com/prometheus/prometheus/cmd/prometheus"
	_ "github.com/prometheus/prometheus/cmd/promtool"
)
