// Command cel says what Kubernetes' own evaluation of CEL device selectors says.
//
// Each line of standard input is a JSON object: an expression and a device. Each line of output is the verdict: "compile"
// (the expression is not valid), "error" (evaluating it failed), "true" or "false", with the message of an error, the
// estimated cost of the expression and the cost of this evaluation. The compiler is the one of the scheduler: expressions
// that are stored, with the features that are on by default.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/dynamic-resource-allocation/cel"
)

// attribute is one value of a device; exactly one field is set.
type attribute struct {
	Int     *int64  `json:"int,omitempty"`
	Bool    *bool   `json:"bool,omitempty"`
	String  *string `json:"string,omitempty"`
	Version *string `json:"version,omitempty"`
}

type question struct {
	Expression string               `json:"expression"`
	Driver     string               `json:"driver"`
	Attributes map[string]attribute `json:"attributes"`
	Capacity   map[string]string    `json:"capacity"`
	Multiple   *bool                `json:"multiple"`
}

type answer struct {
	Verdict  string `json:"verdict"`
	Message  string `json:"message,omitempty"`
	Estimate uint64 `json:"estimate"`
	Cost     uint64 `json:"cost"`
}

func main() {
	compiler := cel.GetCompiler(cel.Features{EnableConsumableCapacity: true})
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(make([]byte, 1<<20), 1<<24)
	output := bufio.NewWriter(os.Stdout)
	defer output.Flush()
	encoder := json.NewEncoder(output)
	encoder.SetEscapeHTML(false)
	for lines.Scan() {
		var asked question
		if err := json.Unmarshal(lines.Bytes(), &asked); err != nil {
			fmt.Fprintln(os.Stderr, "not a question:", err)
			os.Exit(1)
		}
		compiled := compiler.CompileCELExpression(asked.Expression, cel.Options{})
		if err := encoder.Encode(judge(compiled, asked)); err != nil {
			os.Exit(1)
		}
	}
	if err := lines.Err(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func judge(compiled cel.CompilationResult, asked question) answer {
	if compiled.Error != nil {
		return answer{Verdict: "compile", Message: compiled.Error.Error()}
	}
	device := cel.Device{
		Driver:                   asked.Driver,
		AllowMultipleAllocations: asked.Multiple,
		Attributes:               map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{},
		Capacity:                 map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{},
	}
	for name, value := range asked.Attributes {
		device.Attributes[resourceapi.QualifiedName(name)] = resourceapi.DeviceAttribute{
			IntValue: value.Int, BoolValue: value.Bool, StringValue: value.String, VersionValue: value.Version,
		}
	}
	for name, text := range asked.Capacity {
		value, err := resource.ParseQuantity(text)
		if err != nil {
			return answer{Verdict: "error", Message: "capacity " + name + ": " + err.Error(), Estimate: compiled.MaxCost}
		}
		device.Capacity[resourceapi.QualifiedName(name)] = resourceapi.DeviceCapacity{Value: value}
	}
	matches, details, err := compiled.DeviceMatches(context.Background(), device)
	said := answer{Verdict: fmt.Sprint(matches), Estimate: compiled.MaxCost}
	if details != nil && details.ActualCost() != nil {
		said.Cost = *details.ActualCost()
	}
	if err != nil {
		said.Verdict, said.Message = "error", err.Error()
	}
	return said
}
