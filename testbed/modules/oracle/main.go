// Command oracle judges clusters with the real plugins of kube-scheduler.
//
// It reads one cluster per line of JSON from standard input and prints one line per cluster: for every
// pod without a node where it could run, which plugin turns each other node away, what each plugin
// scores the nodes it could run on, and which preemptions DefaultPreemption might choose. Every pod is
// judged against the same snapshot, with the default profile of this version.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"os"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
	resourceslicetracker "k8s.io/dynamic-resource-allocation/resourceslice/tracker"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/latest"
	schedulercache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/defaultpreemption"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/dynamicresources"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/nodevolumelimits"
	"k8s.io/kubernetes/pkg/scheduler/framework/preemption"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/metrics"
	"k8s.io/kubernetes/pkg/scheduler/util/assumecache"
)

// cluster is one case; whatever is absent does not exist.
type cluster struct {
	ID                     json.RawMessage                 `json:"id"`
	Nodes                  []*v1.Node                      `json:"nodes"`
	Pods                   []*v1.Pod                       `json:"pods"`
	Namespaces             []*v1.Namespace                 `json:"namespaces"`
	Services               []*v1.Service                   `json:"services"`
	ReplicationControllers []*v1.ReplicationController     `json:"replicationControllers"`
	ReplicaSets            []*appsv1.ReplicaSet            `json:"replicaSets"`
	StatefulSets           []*appsv1.StatefulSet           `json:"statefulSets"`
	PersistentVolumes      []*v1.PersistentVolume          `json:"persistentVolumes"`
	PersistentVolumeClaims []*v1.PersistentVolumeClaim     `json:"persistentVolumeClaims"`
	StorageClasses         []*storagev1.StorageClass       `json:"storageClasses"`
	CSINodes               []*storagev1.CSINode            `json:"csiNodes"`
	CSIDrivers             []*storagev1.CSIDriver          `json:"csiDrivers"`
	CSIStorageCapacities   []*storagev1.CSIStorageCapacity `json:"csiStorageCapacities"`
	VolumeAttachments      []*storagev1.VolumeAttachment   `json:"volumeAttachments"`
	PodDisruptionBudgets   []*policyv1.PodDisruptionBudget `json:"podDisruptionBudgets"`
}

type choice struct {
	Node    string   `json:"node"`
	Victims []string `json:"victims"`
}

// verdict is what is said of one pod. Alone: node -> every plugin that turns it away, asked each by itself.
type verdict struct {
	Pod      string                      `json:"pod"`
	Feasible []string                    `json:"feasible"`
	Rejects  map[string]string           `json:"rejects"`
	Scores   map[string]map[string]int64 `json:"scores"`
	Preempts []choice                    `json:"preempts"`
	Gated    bool                        `json:"gated"`
	Alone    map[string][]string         `json:"alone,omitempty"`
	Error    string                      `json:"error,omitempty"`
}

type answer struct {
	ID   json.RawMessage `json:"id"`
	Pods []*verdict      `json:"pods"`
}

// nominator says which waiting pods count on which node.
type nominator map[string][]fwk.PodInfo

func (n nominator) AddNominatedPod(klog.Logger, fwk.PodInfo, *fwk.NominatingInfo) {}
func (n nominator) DeleteNominatedPodIfExists(*v1.Pod)                            {}
func (n nominator) UpdateNominatedPod(klog.Logger, *v1.Pod, fwk.PodInfo)          {}
func (n nominator) NominatedPodsForNode(node string) []fwk.PodInfo                { return n[node] }

// judge is a framework with the default profile over one cluster.
type judge struct {
	framework framework.Framework
	preempts  *defaultpreemption.DefaultPreemption
	snapshot  *schedulercache.Snapshot
	nodes     []fwk.NodeInfo
	budgets   []*policyv1.PodDisruptionBudget
	filters   []string
}

func main() {
	alone := flag.Bool("alone", false, "ask each filter by itself, too; slow on large clusters")
	flag.Parse()
	klog.SetLogger(klog.Logger{})
	metrics.Register()
	profile, err := defaultProfile()
	if err != nil {
		log.Fatal(err)
	}
	input := bufio.NewReaderSize(os.Stdin, 1<<20)
	output := bufio.NewWriter(os.Stdout)
	defer output.Flush()
	encoder := json.NewEncoder(output)
	for {
		line, err := input.ReadBytes('\n')
		if len(strings.TrimSpace(string(line))) > 0 {
			if problem := answerLine(line, profile, *alone, encoder); problem != nil {
				output.Flush()
				log.Fatal(problem)
			}
		}
		if err != nil {
			return
		}
	}
}

func defaultProfile() (*config.KubeSchedulerProfile, error) {
	defaults, err := latest.Default()
	if err != nil {
		return nil, err
	}
	return &defaults.Profiles[0], nil
}

func answerLine(line []byte, profile *config.KubeSchedulerProfile, alone bool, encoder *json.Encoder) error {
	given := &cluster{}
	if err := json.Unmarshal(line, given); err != nil {
		return fmt.Errorf("a cluster cannot be read: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	judge, waiting, err := newJudge(ctx, given, profile)
	if err != nil {
		return fmt.Errorf("cluster %s: %w", given.ID, err)
	}
	result := answer{ID: given.ID, Pods: []*verdict{}}
	for _, pod := range waiting {
		result.Pods = append(result.Pods, judge.judge(ctx, pod, alone))
	}
	return encoder.Encode(result)
}

func newJudge(ctx context.Context, given *cluster, profile *config.KubeSchedulerProfile) (*judge, []*v1.Pod, error) {
	client := fake.NewSimpleClientset()
	factory := informers.NewSharedInformerFactory(client, 0)
	running, waiting := sortPods(given)
	fill(factory, given)
	snapshot := schedulercache.NewSnapshot(running, given.Nodes)
	nominated := nominator{}
	for _, pod := range waiting {
		if pod.Status.NominatedNodeName != "" {
			info, _ := framework.NewPodInfo(pod)
			nominated[pod.Status.NominatedNodeName] = append(nominated[pod.Status.NominatedNodeName], info)
		}
	}
	tracker, err := resourceslicetracker.StartTracker(ctx, resourceslicetracker.Options{
		SliceInformer: factory.Resource().V1().ResourceSlices(),
		KubeClient:    client,
	})
	if err != nil {
		return nil, nil, err
	}
	claims := assumecache.NewAssumeCache(klog.Logger{}, factory.Resource().V1().ResourceClaims().Informer(), "ResourceClaim", "", nil)
	made := &judge{snapshot: snapshot, budgets: given.PodDisruptionBudgets}
	registry := plugins.NewInTreeRegistry()
	makePreemption := registry[names.DefaultPreemption]
	registry[names.DefaultPreemption] = func(ctx context.Context, args runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
		plugin, err := makePreemption(ctx, args, handle)
		if err == nil {
			made.preempts = plugin.(*defaultpreemption.DefaultPreemption)
		}
		return plugin, err
	}
	made.framework, err = frameworkruntime.NewFramework(ctx, registry, profile,
		frameworkruntime.WithClientSet(client),
		frameworkruntime.WithInformerFactory(factory),
		frameworkruntime.WithSnapshotSharedLister(snapshot),
		frameworkruntime.WithSharedDRAManager(dynamicresources.NewDRAManager(ctx, claims, tracker, factory)),
		frameworkruntime.WithSharedCSIManager(nodevolumelimits.NewCSIManager(factory.Storage().V1().CSINodes().Lister())),
		frameworkruntime.WithPodNominator(nominated),
		frameworkruntime.WithParallelism(1),
		frameworkruntime.WithMetricsRecorder(metrics.NewMetricsAsyncRecorder(0, 0, ctx.Done())),
		frameworkruntime.WithLogger(klog.Logger{}),
	)
	if err != nil {
		return nil, nil, err
	}
	if made.nodes, err = snapshot.NodeInfos().List(); err != nil {
		return nil, nil, err
	}
	for _, plugin := range made.framework.ListPlugins().Filter.Enabled {
		made.filters = append(made.filters, plugin.Name)
	}
	return made, waiting, nil
}

// sortPods tells those on a node from those that wait, as the scheduler's cache and queue do. Finished pods are in
// neither, nor are pods on nodes that do not exist.
func sortPods(given *cluster) (running, waiting []*v1.Pod) {
	known := map[string]bool{}
	for _, node := range given.Nodes {
		known[node.Name] = true
	}
	for _, pod := range given.Pods {
		switch {
		case pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed:
		case pod.Spec.NodeName == "":
			waiting = append(waiting, pod)
		case known[pod.Spec.NodeName]:
			running = append(running, pod)
		}
	}
	return running, waiting
}

// fill puts the objects where the listers of the plugins look; nothing is watched.
func fill(factory informers.SharedInformerFactory, given *cluster) {
	core, storage, apps := factory.Core().V1(), factory.Storage().V1(), factory.Apps().V1()
	add(core.Nodes().Informer(), given.Nodes)
	add(core.Pods().Informer(), given.Pods)
	add(core.Namespaces().Informer(), given.Namespaces)
	add(core.Services().Informer(), given.Services)
	add(core.ReplicationControllers().Informer(), given.ReplicationControllers)
	add(apps.ReplicaSets().Informer(), given.ReplicaSets)
	add(apps.StatefulSets().Informer(), given.StatefulSets)
	add(storage.StorageClasses().Informer(), given.StorageClasses)
	add(storage.CSINodes().Informer(), given.CSINodes)
	add(storage.CSIDrivers().Informer(), given.CSIDrivers)
	add(storage.CSIStorageCapacities().Informer(), given.CSIStorageCapacities)
	add(factory.Policy().V1().PodDisruptionBudgets().Informer(), given.PodDisruptionBudgets)
	// Objects of these kinds are also looked up by an index that the plugins add, so those come before the objects.
	volumes, claims, attachments := core.PersistentVolumes().Informer(), core.PersistentVolumeClaims().Informer(), storage.VolumeAttachments().Informer()
	add(claims, given.PersistentVolumeClaims)
	add(volumes, given.PersistentVolumes)
	add(attachments, given.VolumeAttachments)
}

func add[T runtime.Object](informer cache.SharedIndexInformer, objects []T) {
	for _, object := range objects {
		if err := informer.GetIndexer().Add(object); err != nil {
			log.Fatal(err)
		}
	}
}

func (j *judge) judge(ctx context.Context, pod *v1.Pod, alone bool) *verdict {
	said := &verdict{
		Pod:      pod.Namespace + "/" + pod.Name,
		Feasible: []string{},
		Rejects:  map[string]string{},
		Scores:   map[string]map[string]int64{},
		Gated:    !j.enqueued(ctx, pod),
	}
	if said.Gated {
		return said
	}
	state := framework.NewCycleState()
	statuses := framework.NewDefaultNodeToStatus()
	allowed, status, narrowing := j.framework.RunPreFilterPlugins(ctx, state, pod)
	if !status.IsSuccess() {
		plugin := status.Plugin()
		if plugin == "" {
			plugin = strings.Join(slices.Sorted(slices.Values(narrowing.UnsortedList())), ",")
		}
		for _, node := range j.nodes {
			said.Rejects[node.Node().Name] = plugin
		}
		if !status.IsRejected() {
			said.Error = status.Message()
		}
		return said
	}
	var feasible []fwk.NodeInfo
	for _, node := range j.nodes {
		name := node.Node().Name
		if !allowed.AllNodes() && !allowed.NodeNames.Has(name) {
			said.Rejects[name] = strings.Join(slices.Sorted(slices.Values(narrowing.UnsortedList())), ",")
			continue
		}
		status := j.framework.RunFilterPluginsWithNominatedPods(ctx, state, pod, node)
		if status.IsSuccess() {
			said.Feasible = append(said.Feasible, name)
			feasible = append(feasible, node)
			continue
		}
		said.Rejects[name] = status.Plugin()
		if !status.IsRejected() {
			said.Error = status.Message()
		}
		statuses.Set(name, status)
	}
	statuses.SetAbsentNodesStatus(fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "outside of what PreFilter allows"))
	slices.Sort(said.Feasible)
	if alone {
		j.askAlone(ctx, state, pod, said)
	}
	if len(feasible) > 0 {
		j.score(ctx, state, pod, feasible, said)
	} else if said.Error == "" {
		said.Preempts = j.preemptions(ctx, state, pod, statuses)
	}
	return said
}

func (j *judge) enqueued(ctx context.Context, pod *v1.Pod) bool {
	for _, plugin := range j.framework.PreEnqueuePlugins() {
		if plugin.Name() == names.SchedulingGates && !plugin.PreEnqueue(ctx, pod).IsSuccess() {
			return false
		}
	}
	return true
}

// askAlone runs each filter by itself, by skipping all others.
func (j *judge) askAlone(ctx context.Context, state fwk.CycleState, pod *v1.Pod, said *verdict) {
	said.Alone = map[string][]string{}
	skipped := state.GetSkipFilterPlugins()
	defer state.SetSkipFilterPlugins(skipped)
	for _, filter := range j.filters {
		if skipped.Has(filter) {
			continue
		}
		others := skipped.Clone().Insert(j.filters...)
		others.Delete(filter)
		state.SetSkipFilterPlugins(others)
		for _, node := range j.nodes {
			if !j.framework.RunFilterPlugins(ctx, state, pod, node).IsSuccess() {
				name := node.Node().Name
				said.Alone[name] = append(said.Alone[name], filter)
			}
		}
	}
}

func (j *judge) score(ctx context.Context, state fwk.CycleState, pod *v1.Pod, feasible []fwk.NodeInfo, said *verdict) {
	if status := j.framework.RunPreScorePlugins(ctx, state, pod, feasible); !status.IsSuccess() {
		said.Error = status.Message()
		return
	}
	scores, status := j.framework.RunScorePlugins(ctx, state, pod, feasible)
	if !status.IsSuccess() {
		said.Error = status.Message()
		return
	}
	for _, node := range scores {
		plugins := map[string]int64{}
		for _, plugin := range node.Scores {
			plugins[plugin.Name] = plugin.Score
		}
		said.Scores[node.Name] = plugins
	}
}

// preemptions lists every choice that DefaultPreemption might make. It takes the best node at random among
// equals: a candidate belongs to the set if it is ever preferred to the best one.
func (j *judge) preemptions(ctx context.Context, state fwk.CycleState, pod *v1.Pod, statuses *framework.NodeToStatus) []choice {
	nominated := statuses.Get(pod.Status.NominatedNodeName)
	if eligible, _ := j.preempts.PodEligibleToPreemptOthers(ctx, pod, nominated); !eligible {
		return nil
	}
	potential, err := statuses.NodesForStatusCode(j.snapshot.NodeInfos(), fwk.Unschedulable)
	if err != nil || len(potential) == 0 {
		return nil
	}
	count := int32(len(potential))
	candidates, _, _ := j.preempts.Evaluator.DryRunPreemption(ctx, state, pod, potential, j.budgets, 0, count+1)
	best := j.preempts.Evaluator.SelectCandidate(ctx, candidates)
	if best == nil {
		return nil
	}
	var choices []choice
	for _, candidate := range candidates {
		if candidate.Name() == best.Name() || j.everPreferred(ctx, candidate, best) {
			choices = append(choices, describe(candidate))
		}
	}
	slices.SortFunc(choices, func(a, b choice) int { return strings.Compare(a.Node, b.Node) })
	return choices
}

func (j *judge) everPreferred(ctx context.Context, candidate, best preemption.Candidate) bool {
	for range 50 {
		if j.preempts.Evaluator.SelectCandidate(ctx, []preemption.Candidate{candidate, best}).Name() == candidate.Name() {
			return true
		}
	}
	return false
}

func describe(candidate preemption.Candidate) choice {
	made := choice{Node: candidate.Name(), Victims: []string{}}
	for _, pod := range candidate.Victims().Pods {
		made.Victims = append(made.Victims, pod.Namespace+"/"+pod.Name)
	}
	slices.Sort(made.Victims)
	return made
}
