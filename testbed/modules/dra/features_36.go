//go:build !v37

package main

import "k8s.io/dynamic-resource-allocation/structured"

// features are those that are on by default in Kubernetes 1.36.
var features = structured.Features{
	AdminAccess:            true,
	ConsumableCapacity:     true,
	DeviceBindingAndStatus: true,
	DeviceTaints:           true,
	PartitionableDevices:   true,
	PrioritizedList:        true,
}
