// Judges, with the kubelet's own topology, CPU and memory managers, which pods a node admits.
//
// Each line of the input is one case: a node and steps; each line of the output has a verdict for every step. Only the device
// manager is rewritten, since its own is bound to plugins' sockets: its hints, and its preference for devices that the hint names.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"sort"

	cadvisor "github.com/google/cadvisor/info/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	componentresource "k8s.io/component-helpers/resource"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet/cm/cpumanager"
	cpustate "k8s.io/kubernetes/pkg/kubelet/cm/cpumanager/state"
	"k8s.io/kubernetes/pkg/kubelet/cm/cpumanager/topology"
	"k8s.io/kubernetes/pkg/kubelet/cm/memorymanager"
	memorystate "k8s.io/kubernetes/pkg/kubelet/cm/memorymanager/state"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager/bitmask"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"
	"k8s.io/utils/cpuset"
)

const version = "v1.36.3"

type zone struct {
	Cores     int               `json:"cores"`
	Socket    int               `json:"socket"`
	Memory    uint64            `json:"memory"`
	Reserved  uint64            `json:"reserved"`
	Pages     map[string]uint64 `json:"pages"` // bytes by the size of a page in KiB
	Devices   map[string]int    `json:"devices"`
	Distances []uint64          `json:"distances"`
}

type node struct {
	Policy       string            `json:"policy"`
	Scope        string            `json:"scope"`
	Options      map[string]string `json:"options"`
	Static       bool              `json:"static"`
	CPUOptions   map[string]string `json:"cpu_options"`
	ReservedCPUs []int             `json:"reserved_cpus"`
	Threads      int               `json:"threads"`
	MemoryStatic bool              `json:"memory_static"`
	Unaligned    map[string]int    `json:"unaligned"` // devices without NUMA nodes
	Zones        []zone            `json:"zones"`
}

type container struct {
	Resources map[string]string `json:"resources"` // limits and requests alike
	Requests  map[string]string `json:"requests"`  // where they differ from limits
	Init      bool              `json:"init"`
	Sidecar   bool              `json:"sidecar"`
}

type step struct {
	Admit      string      `json:"admit"`
	Try        string      `json:"try"` // admitted and taken back: nothing changes
	Remove     string      `json:"remove"`
	Containers []container `json:"containers"`
	Prefer     []int       `json:"prefer"` // NUMA nodes in the order in which the plugin prefers devices
}

type job struct {
	Node  node   `json:"node"`
	Steps []step `json:"steps"`
}

type verdict struct {
	Admitted bool                `json:"admitted"`
	Reason   string              `json:"reason,omitempty"`
	Message  string              `json:"message,omitempty"`
	CPUs     []int               `json:"cpus,omitempty"`    // free after it, by NUMA node
	Devices  map[string][]int    `json:"devices,omitempty"` // likewise
	Memory   map[string][]uint64 `json:"memory,omitempty"`
}

type device struct {
	id   int
	numa int // -1: none
}

type devices struct {
	store  topologymanager.Store
	numas  []int
	all    map[string][]device
	used   map[string]map[int]bool
	held   map[string]map[string]map[string][]int // pod, container, resource
	reuse  map[string]map[string]map[int]bool
	prefer []int
}

func (m *devices) aligned(name string) bool {
	for _, each := range m.all[name] {
		if each.numa >= 0 {
			return true
		}
	}
	return false
}

func (m *devices) free(name string) []device {
	var found []device
	for _, each := range m.all[name] {
		if !m.used[name][each.id] {
			found = append(found, each)
		}
	}
	return found
}

func (m *devices) hints(name string, available []device, reusable map[int]bool, request int) []topologymanager.TopologyHint {
	with := map[int]bool{}
	for _, each := range m.all[name] {
		if each.numa >= 0 {
			with[each.numa] = true
		}
	}
	numas := []int{}
	for _, each := range m.numas {
		if with[each] {
			numas = append(numas, each)
		}
	}
	if len(numas) == 0 {
		numas = m.numas
	}
	least := len(numas)
	found := []topologymanager.TopologyHint{}
	bitmask.IterateBitMasks(numas, func(mask bitmask.BitMask) {
		total := 0
		for _, each := range m.all[name] {
			if each.numa >= 0 && mask.IsSet(each.numa) {
				total++
			}
		}
		if total >= request && mask.Count() < least {
			least = mask.Count()
		}
		matching := 0
		for _, each := range m.all[name] {
			if reusable[each.id] && each.numa >= 0 {
				if !mask.IsSet(each.numa) {
					return
				}
				matching++
			}
		}
		for _, each := range available {
			if each.numa >= 0 && mask.IsSet(each.numa) {
				matching++
			}
		}
		if matching >= request {
			found = append(found, topologymanager.TopologyHint{NUMANodeAffinity: mask})
		}
	})
	for i := range found {
		found[i].Preferred = found[i].NUMANodeAffinity.Count() == least
	}
	return found
}

func (m *devices) asked(limits v1.ResourceList) map[string]int {
	found := map[string]int{}
	for name, quantity := range limits {
		if _, known := m.all[string(name)]; known {
			found[string(name)] = int(quantity.Value())
		}
	}
	return found
}

func (m *devices) GetTopologyHints(pod *v1.Pod, c *v1.Container) map[string][]topologymanager.TopologyHint {
	found := map[string][]topologymanager.TopologyHint{}
	for name, request := range m.asked(c.Resources.Limits) {
		if !m.aligned(name) {
			found[name] = nil
			continue
		}
		available, reusable := m.free(name), m.reuse[string(pod.UID)][name]
		if len(available)+len(reusable) < request {
			found[name] = []topologymanager.TopologyHint{}
			continue
		}
		found[name] = m.hints(name, available, reusable, request)
	}
	return found
}

func (m *devices) GetPodTopologyHints(pod *v1.Pod) map[string][]topologymanager.TopologyHint {
	found := map[string][]topologymanager.TopologyHint{}
	limits := componentresource.PodLimits(pod, componentresource.PodResourcesOptions{ExcludeOverhead: true})
	for name, request := range m.asked(limits) {
		if !m.aligned(name) {
			found[name] = nil
			continue
		}
		available := m.free(name)
		if len(available) < request {
			found[name] = []topologymanager.TopologyHint{}
			continue
		}
		found[name] = m.hints(name, available, nil, request)
	}
	return found
}

func (m *devices) AllocatePod(pod *v1.Pod) error { return nil }

// Devices to reuse first, then those of the hint, then others; which of equal ones is the plugin's preference.
func (m *devices) Allocate(pod *v1.Pod, c *v1.Container) error {
	uid := string(pod.UID)
	for other := range m.reuse {
		if other != uid {
			delete(m.reuse, other)
		}
	}
	if m.reuse[uid] == nil {
		m.reuse[uid] = map[string]map[int]bool{}
	}
	names := []string{}
	asked := m.asked(c.Resources.Limits)
	for name := range asked {
		names = append(names, name)
	}
	sort.Strings(names)
	init, sidecar := false, false
	for _, each := range pod.Spec.InitContainers {
		if each.Name == c.Name {
			init, sidecar = true, each.RestartPolicy != nil
		}
	}
	for _, name := range names {
		needed := asked[name]
		hint := m.store.GetAffinity(uid, c.Name).NUMANodeAffinity
		rank := func(each device) int {
			if m.reuse[uid][name][each.id] {
				return -1
			}
			place := len(m.prefer)
			for i, numa := range m.prefer {
				if numa == each.numa {
					place = i
				}
			}
			if hint == nil || !m.aligned(name) {
				return place
			}
			if each.numa >= 0 && hint.IsSet(each.numa) {
				return place
			}
			return 1000 + place
		}
		candidates := m.free(name)
		for _, each := range m.all[name] {
			if m.reuse[uid][name][each.id] {
				candidates = append(candidates, each)
			}
		}
		if len(candidates) < needed {
			return fmt.Errorf("requested number of devices unavailable for %s. Requested: %d, Available: %d", name, needed, len(candidates))
		}
		sort.SliceStable(candidates, func(i, j int) bool {
			if a, b := rank(candidates[i]), rank(candidates[j]); a != b {
				return a < b
			}
			return candidates[i].id < candidates[j].id
		})
		if m.held[uid] == nil {
			m.held[uid] = map[string]map[string][]int{}
		}
		if m.held[uid][c.Name] == nil {
			m.held[uid][c.Name] = map[string][]int{}
		}
		for _, each := range candidates[:needed] {
			m.used[name][each.id] = true
			m.held[uid][c.Name][name] = append(m.held[uid][c.Name][name], each.id)
			if init && !sidecar {
				if m.reuse[uid][name] == nil {
					m.reuse[uid][name] = map[int]bool{}
				}
				m.reuse[uid][name][each.id] = true
			} else {
				delete(m.reuse[uid][name], each.id)
			}
		}
	}
	return nil
}

func (m *devices) remove(uid string) {
	for _, resources := range m.held[uid] {
		for name, ids := range resources {
			for _, id := range ids {
				delete(m.used[name], id)
			}
		}
	}
	delete(m.held, uid)
}

type cpus struct {
	policy cpumanager.Policy
	state  cpustate.State
}

func (c *cpus) GetTopologyHints(pod *v1.Pod, ctr *v1.Container) map[string][]topologymanager.TopologyHint {
	return c.policy.GetTopologyHints(klog.Background(), c.state, pod, ctr)
}
func (c *cpus) GetPodTopologyHints(pod *v1.Pod) map[string][]topologymanager.TopologyHint {
	return c.policy.GetPodTopologyHints(klog.Background(), c.state, pod)
}
func (c *cpus) AllocatePod(pod *v1.Pod) error {
	return c.policy.AllocatePod(klog.Background(), c.state, pod)
}
func (c *cpus) Allocate(pod *v1.Pod, ctr *v1.Container) error {
	return c.policy.Allocate(klog.Background(), c.state, pod, ctr)
}

type memory struct {
	policy memorymanager.Policy
	state  memorystate.State
}

func (c *memory) GetTopologyHints(pod *v1.Pod, ctr *v1.Container) map[string][]topologymanager.TopologyHint {
	return c.policy.GetTopologyHints(klog.Background(), c.state, pod, ctr)
}
func (c *memory) GetPodTopologyHints(pod *v1.Pod) map[string][]topologymanager.TopologyHint {
	return c.policy.GetPodTopologyHints(klog.Background(), c.state, pod)
}
func (c *memory) AllocatePod(pod *v1.Pod) error {
	return c.policy.AllocatePod(klog.Background(), c.state, pod)
}
func (c *memory) Allocate(pod *v1.Pod, ctr *v1.Container) error {
	return c.policy.Allocate(klog.Background(), c.state, pod, ctr)
}

func machine(n node) *cadvisor.MachineInfo {
	info := &cadvisor.MachineInfo{}
	sockets := map[int]bool{}
	cpu, core := 0, 0
	for id, each := range n.Zones {
		sockets[each.Socket] = true
		one := cadvisor.Node{Id: id, Memory: each.Memory, Distances: each.Distances}
		for size, bytes := range each.Pages {
			var kib uint64
			fmt.Sscan(size, &kib)
			one.HugePages = append(one.HugePages, cadvisor.HugePagesInfo{PageSize: kib, NumPages: bytes / (kib * 1024)})
		}
		for i := 0; i < each.Cores; i++ {
			threads := []int{}
			for t := 0; t < n.Threads; t++ {
				threads = append(threads, cpu)
				cpu++
			}
			one.Cores = append(one.Cores, cadvisor.Core{Id: core, Threads: threads, SocketID: each.Socket})
			core++
		}
		info.Topology = append(info.Topology, one)
	}
	info.NumCores, info.NumPhysicalCores, info.NumSockets = cpu, core, len(sockets)
	return info
}

func list(given map[string]string) v1.ResourceList {
	found := v1.ResourceList{}
	for name, quantity := range given {
		found[v1.ResourceName(name)] = resource.MustParse(quantity)
	}
	return found
}

func podOf(s step) *v1.Pod {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: s.Admit, Namespace: "default", UID: types.UID(s.Admit)}}
	for i, each := range s.Containers {
		requests := each.Requests
		if requests == nil {
			requests = each.Resources
		}
		one := v1.Container{Name: fmt.Sprintf("c%d", i), Resources: v1.ResourceRequirements{
			Limits: list(each.Resources), Requests: list(requests)}}
		if each.Init || each.Sidecar {
			if each.Sidecar {
				always := v1.ContainerRestartPolicyAlways
				one.RestartPolicy = &always
			}
			pod.Spec.InitContainers = append(pod.Spec.InitContainers, one)
		} else {
			pod.Spec.Containers = append(pod.Spec.Containers, one)
		}
	}
	return pod
}

// What the managers know, to be put back after a trial.
func save(held *devices, processors *cpus, banks *memory) func() {
	used := map[string]map[int]bool{}
	for name, ids := range held.used {
		used[name] = maps.Clone(ids)
	}
	kept := maps.Clone(held.held)
	var free cpuset.CPUSet
	var pinned cpustate.ContainerCPUAssignments
	if processors != nil {
		free, pinned = processors.state.GetDefaultCPUSet(), processors.state.GetCPUAssignments()
	}
	var machine memorystate.NUMANodeMap
	var blocks memorystate.ContainerMemoryAssignments
	if banks != nil {
		machine, blocks = banks.state.GetMachineState(), banks.state.GetMemoryAssignments()
	}
	return func() {
		held.used, held.held = used, kept
		if processors != nil {
			processors.state.SetDefaultCPUSet(free)
			processors.state.SetCPUAssignments(pinned)
		}
		if banks != nil {
			banks.state.SetMachineState(machine)
			banks.state.SetMemoryAssignments(blocks)
		}
	}
}

func run(j job) ([]verdict, error) {
	logger, info := klog.Background(), machine(j.Node)
	manager, err := topologymanager.NewManager(info.Topology, j.Node.Policy, j.Node.Scope, j.Node.Options)
	if err != nil {
		return nil, err
	}
	held := &devices{store: manager, all: map[string][]device{}, used: map[string]map[int]bool{},
		held: map[string]map[string]map[string][]int{}, reuse: map[string]map[string]map[int]bool{}}
	id := 0
	for numa, each := range j.Node.Zones {
		held.numas = append(held.numas, numa)
		for name, count := range each.Devices {
			for i := 0; i < count; i++ {
				held.all[name] = append(held.all[name], device{id, numa})
				id++
			}
		}
	}
	for name, count := range j.Node.Unaligned {
		for i := 0; i < count; i++ {
			held.all[name] = append(held.all[name], device{id, -1})
			id++
		}
	}
	for name := range held.all {
		held.used[name] = map[int]bool{}
	}
	manager.AddHintProvider(logger, held)
	topo, err := topology.Discover(logger, info)
	if err != nil {
		return nil, err
	}
	var processors *cpus
	if j.Node.Static {
		policy, err := cpumanager.NewStaticPolicy(logger, topo, len(j.Node.ReservedCPUs), cpuset.New(j.Node.ReservedCPUs...), manager, j.Node.CPUOptions)
		if err != nil {
			return nil, err
		}
		processors = &cpus{policy, cpustate.NewMemoryState(logger)}
		if err := policy.Start(logger, processors.state); err != nil {
			return nil, err
		}
		manager.AddHintProvider(logger, processors)
	}
	var banks *memory
	if j.Node.MemoryStatic {
		reserved := map[int]map[v1.ResourceName]uint64{}
		for numa, each := range j.Node.Zones {
			reserved[numa] = map[v1.ResourceName]uint64{v1.ResourceMemory: each.Reserved}
		}
		policy, err := memorymanager.NewPolicyStatic(logger, info, reserved, manager)
		if err != nil {
			return nil, err
		}
		banks = &memory{policy, memorystate.NewMemoryState(logger)}
		if err := policy.Start(logger, banks.state); err != nil {
			return nil, err
		}
		manager.AddHintProvider(logger, banks)
	}
	pods := map[string]*v1.Pod{}
	remove := func(uid string) {
		pod := pods[uid]
		if pod == nil {
			return
		}
		for _, each := range append(append([]v1.Container{}, pod.Spec.InitContainers...), pod.Spec.Containers...) {
			if processors != nil {
				if err := processors.policy.RemoveContainer(logger, processors.state, uid, each.Name); err != nil {
					panic(err)
				}
			}
			if banks != nil {
				banks.policy.RemoveContainer(logger, banks.state, uid, each.Name)
			}
		}
		held.remove(uid)
		delete(pods, uid)
	}
	found := []verdict{}
	for _, each := range j.Steps {
		one := verdict{Admitted: true}
		if each.Remove != "" {
			remove(each.Remove)
		} else if each.Try != "" {
			each.Admit = "try-" + each.Try // what init containers leave is kept by UID
			held.prefer = each.Prefer
			restore := save(held, processors, banks)
			result := manager.Admit(&lifecycle.PodAdmitAttributes{Pod: podOf(each)})
			restore()
			found = append(found, verdict{Admitted: result.Admit, Reason: result.Reason})
			continue
		} else {
			pod := podOf(each)
			held.prefer = each.Prefer
			pods[each.Admit] = pod
			result := manager.Admit(&lifecycle.PodAdmitAttributes{Pod: pod})
			one = verdict{Admitted: result.Admit, Reason: result.Reason, Message: result.Message}
			if !result.Admit {
				remove(each.Admit)
			}
		}
		if processors != nil {
			free := processors.state.GetDefaultCPUSet().Difference(cpuset.New(j.Node.ReservedCPUs...))
			for numa := range j.Node.Zones {
				one.CPUs = append(one.CPUs, free.Intersection(topo.CPUDetails.CPUsInNUMANodes(numa)).Size())
			}
		}
		one.Devices = map[string][]int{}
		for name := range held.all {
			counts := make([]int, len(j.Node.Zones))
			for _, free := range held.free(name) {
				if free.numa >= 0 {
					counts[free.numa]++
				}
			}
			one.Devices[name] = counts
		}
		if banks != nil {
			one.Memory = map[string][]uint64{}
			for numa, state := range banks.state.GetMachineState() {
				for name, table := range state.MemoryMap {
					if one.Memory[string(name)] == nil {
						one.Memory[string(name)] = make([]uint64, len(j.Node.Zones))
					}
					one.Memory[string(name)][numa] = table.Free
				}
			}
		}
		found = append(found, one)
	}
	return found, nil
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == "-version" {
		fmt.Println(version)
		return
	}
	klog.SetLogger(klog.Logger{})
	klog.LogToStderr(false)
	klog.SetOutput(devNull{})
	input := bufio.NewReaderSize(os.Stdin, 1<<20)
	output := bufio.NewWriter(os.Stdout)
	defer output.Flush()
	decoder, encoder := json.NewDecoder(input), json.NewEncoder(output)
	for {
		var one job
		if err := decoder.Decode(&one); err != nil {
			return
		}
		found, err := run(one)
		answer := map[string]any{"verdicts": found, "version": version}
		if err != nil {
			answer["error"] = err.Error()
		}
		if err := encoder.Encode(answer); err != nil {
			return
		}
		output.Flush()
	}
}

type devNull struct{}

func (devNull) Write(p []byte) (int, error) { return len(p), nil }
