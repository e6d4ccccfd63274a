// Command dra judges allocations of devices with the allocator of Kubernetes' Dynamic Resource Allocation.
//
// It reads one case per line of JSON from standard input and prints one line per case: for every node whether upstream's
// allocator finds an allocation of the case's claims, and which; and whether it accepts the allocation that came with the
// case. A search that takes longer than the limit is reported as such, without a verdict.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
)

// identity is the attribute that names a device, so that a selector can demand one.
const identityDomain, identityName = "judge.fairlead.dev", "id"

type device struct {
	Request string `json:"request"`
	Driver  string `json:"driver"`
	Pool    string `json:"pool"`
	Device  string `json:"device"`
}

func (d device) id() string { return d.Driver + "|" + d.Pool + "|" + d.Device }

// testCase is one cluster, and the claims of one pod. Ours: by node, per claim the devices that were chosen.
type testCase struct {
	ID        json.RawMessage              `json:"id"`
	Nodes     []*v1.Node                   `json:"nodes"`
	Slices    []*resourceapi.ResourceSlice `json:"slices"`
	Classes   []*resourceapi.DeviceClass   `json:"classes"`
	Allocated []*resourceapi.ResourceClaim `json:"allocated"`
	Claims    []*resourceapi.ResourceClaim `json:"claims"`
	Ours      map[string][][]device        `json:"ours"`
}

type verdict struct {
	Found     bool       `json:"found"`
	Slow      bool       `json:"slow,omitempty"`
	Error     string     `json:"error,omitempty"`
	Chosen    [][]device `json:"chosen,omitempty"`
	Ours      *bool      `json:"ours,omitempty"`
	OursError string     `json:"oursError,omitempty"`
	Millis    float64    `json:"ms"`
}

type answer struct {
	ID    json.RawMessage    `json:"id"`
	Nodes map[string]verdict `json:"nodes"`
}

type classes map[string]*resourceapi.DeviceClass

func (c classes) List() ([]*resourceapi.DeviceClass, error) {
	all := make([]*resourceapi.DeviceClass, 0, len(c))
	for _, each := range c {
		all = append(all, each)
	}
	return all, nil
}

func (c classes) Get(name string) (*resourceapi.DeviceClass, error) {
	if class, found := c[name]; found {
		return class, nil
	}
	return nil, fmt.Errorf("there is no DeviceClass %s", name)
}

// state collects what is allocated, as the scheduler's plugin does: admin access holds nothing.
func state(claims []*resourceapi.ResourceClaim) structured.AllocatedState {
	result := structured.AllocatedState{
		AllocatedDevices:         sets.New[structured.DeviceID](),
		AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](),
		AggregatedCapacity:       structured.NewConsumedCapacityCollection(),
	}
	for _, claim := range claims {
		if claim.Status.Allocation == nil {
			continue
		}
		for _, each := range claim.Status.Allocation.Devices.Results {
			if each.AdminAccess != nil && *each.AdminAccess {
				continue
			}
			id := structured.MakeDeviceID(each.Driver, each.Pool, each.Device)
			if each.ShareID == nil {
				result.AllocatedDevices.Insert(id)
				continue
			}
			result.AllocatedSharedDeviceIDs.Insert(structured.MakeSharedDeviceID(id, each.ShareID))
			if each.ConsumedCapacity != nil {
				result.AggregatedCapacity.Insert(structured.NewDeviceConsumedCapacity(id, each.ConsumedCapacity))
			}
		}
	}
	return result
}

// allocate runs one search; a new allocator each time, since it keeps counters across nodes.
func (c *testCase) allocate(cache *cel.Cache, node *v1.Node, claims []*resourceapi.ResourceClaim, limit time.Duration) ([][]device, error, bool) {
	known := classes{}
	for _, class := range c.Classes {
		known[class.Name] = class
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	allocator, err := structured.NewAllocator(ctx, features, state(c.Allocated), known, c.Slices, cache)
	if err != nil {
		return nil, err, false
	}
	results, err := allocator.Allocate(ctx, node, claims)
	if err != nil {
		return nil, err, errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil
	}
	if results == nil {
		return nil, nil, false
	}
	chosen := make([][]device, len(results))
	for i, result := range results {
		chosen[i] = []device{}
		for _, each := range result.Devices.Results {
			chosen[i] = append(chosen[i], device{each.Request, each.Driver, each.Pool, each.Device})
		}
	}
	return chosen, nil, false
}

// demanding returns the claims with selectors that leave each request only the devices that were chosen for it, and of
// alternatives only the one that was chosen. Requests for all devices stay as they are: what they get is compared.
func demanding(claims []*resourceapi.ResourceClaim, ours [][]device) ([]*resourceapi.ResourceClaim, error) {
	if len(ours) != len(claims) {
		return nil, fmt.Errorf("%d claims, %d allocations", len(claims), len(ours))
	}
	result := make([]*resourceapi.ResourceClaim, 0, len(claims))
	for i, claim := range claims {
		claim = claim.DeepCopy()
		for j := range claim.Spec.Devices.Requests {
			request := &claim.Spec.Devices.Requests[j]
			if request.Exactly != nil {
				if request.Exactly.AllocationMode != resourceapi.DeviceAllocationModeAll {
					request.Exactly.Selectors = append(request.Exactly.Selectors, only(request.Name, ours[i]))
				}
				continue
			}
			var kept []resourceapi.DeviceSubRequest
			for _, alternative := range request.FirstAvailable {
				name := request.Name + "/" + alternative.Name
				if !slices.ContainsFunc(ours[i], func(d device) bool { return d.Request == name }) {
					continue
				}
				if alternative.AllocationMode != resourceapi.DeviceAllocationModeAll {
					alternative.Selectors = append(alternative.Selectors, only(name, ours[i]))
				}
				kept = append(kept, alternative)
			}
			if len(kept) != 1 {
				return nil, fmt.Errorf("request %s: devices of %d alternatives", request.Name, len(kept))
			}
			request.FirstAvailable = kept
		}
		result = append(result, claim)
	}
	return result, nil
}

func only(request string, chosen []device) resourceapi.DeviceSelector {
	names := []string{}
	for _, each := range chosen {
		if each.Request == request {
			names = append(names, fmt.Sprintf("%q", each.id()))
		}
	}
	expression := fmt.Sprintf("device.attributes[%q].%s in [%s]", identityDomain, identityName, strings.Join(names, ", "))
	return resourceapi.DeviceSelector{CEL: &resourceapi.CELDeviceSelector{Expression: expression}}
}

// accepts says whether upstream finds exactly the allocation that came with the case.
func (c *testCase) accepts(cache *cel.Cache, node *v1.Node, ours [][]device, limit time.Duration) (bool, string) {
	claims, err := demanding(c.Claims, ours)
	if err != nil {
		return false, err.Error()
	}
	chosen, err, _ := c.allocate(cache, node, claims, limit)
	if err != nil {
		return false, err.Error()
	}
	if chosen == nil {
		return false, "no allocation with these devices"
	}
	for i := range chosen {
		if !sets.New(chosen[i]...).Equal(sets.New(ours[i]...)) || len(chosen[i]) != len(ours[i]) {
			return false, fmt.Sprintf("claim %d: other devices", i)
		}
	}
	return true, ""
}

// identify gives every device the attribute that names it.
func (c *testCase) identify() {
	for _, slice := range c.Slices {
		for i := range slice.Spec.Devices {
			each := &slice.Spec.Devices[i]
			id := device{"", slice.Spec.Driver, slice.Spec.Pool.Name, each.Name}.id()
			if each.Attributes == nil {
				each.Attributes = map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{}
			}
			each.Attributes[identityDomain+"/"+identityName] = resourceapi.DeviceAttribute{StringValue: &id}
		}
	}
}

func main() {
	limit := flag.Duration("limit", time.Second, "how long one search may take")
	flag.Parse()
	cache := cel.NewCache(1000, cel.Features{EnableConsumableCapacity: true})
	input := bufio.NewReaderSize(os.Stdin, 1<<20)
	output := json.NewEncoder(os.Stdout)
	decoder := json.NewDecoder(input)
	for decoder.More() {
		var each testCase
		if err := decoder.Decode(&each); err != nil {
			log.Fatalf("not a case: %v", err)
		}
		each.identify()
		result := answer{each.ID, map[string]verdict{}}
		for _, node := range each.Nodes {
			start := time.Now()
			chosen, err, slow := each.allocate(cache, node, each.Claims, *limit)
			said := verdict{Found: chosen != nil, Slow: slow, Chosen: chosen, Millis: float64(time.Since(start).Microseconds()) / 1000}
			if err != nil {
				said.Error = err.Error()
			}
			if ours, found := each.Ours[node.Name]; found {
				accepted, why := each.accepts(cache, node, ours, 10**limit)
				said.Ours, said.OursError = &accepted, why
			}
			result.Nodes[node.Name] = said
		}
		if err := output.Encode(result); err != nil {
			log.Fatal(err)
		}
	}
}
