// Package tools pins the Helm that the testbed builds.
package tools

import (
	_ "helm.sh/helm/v3/pkg/cli"
)
