package expression

import (
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"

	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

// variable is one name that expressions can use.
type variable struct {
	name    string
	typ     *cel.Type
	meaning string
	value   func(v *vars) ref.Val
}

var (
	stringMap = cel.MapType(cel.StringType, cel.StringType)
	numberMap = cel.MapType(cel.StringType, cel.DoubleType)
)

// variables are all names, as the manual lists them.
var variables = []variable{
	{"request.model", cel.StringType, "model, as the client sent it", func(v *vars) ref.Val { return text(v.c.Request.Model) }},
	{"request.adapter", cel.StringType, "LoRA adapter, empty for a base model", func(v *vars) ref.Val { return text(v.c.Request.Adapter) }},
	{"request.path", cel.StringType, "path without query", func(v *vars) ref.Val { return text(v.c.Request.Path) }},
	{"request.headers", stringMap, "headers by lower-case name; an absent one is empty", func(v *vars) ref.Val { return (*headers)(v) }},
	{"request.priority", cel.IntType, "priority of the objective", func(v *vars) ref.Val { return types.Int(v.c.Request.Priority) }},
	{"request.fairness_id", cel.StringType, "fairness ID, empty if absent", func(v *vars) ref.Val { return text(v.c.Request.FairnessID) }},
	{"request.prompt_tokens", cel.IntType, "tokens of the prompt, estimated unless token IDs are sent", func(v *vars) ref.Val { return types.Int(v.c.Request.InputTokens) }},
	{"request.max_tokens", cel.IntType, "the client's limit of generated tokens, 0 if absent", func(v *vars) ref.Val { return types.Int(v.c.Request.MaxTokens) }},
	{"request.stream", cel.BoolType, "whether the answer is streamed", func(v *vars) ref.Val { return types.Bool(v.c.Request.Stream) }},
	{"endpoint.name", cel.StringType, "name, in Kubernetes the pod's", func(v *vars) ref.Val { return text(v.at.Name) }},
	{"endpoint.address", cel.StringType, "ip:port", func(v *vars) ref.Val { return text(v.at.Address) }},
	{"endpoint.labels", stringMap, "labels; an absent one is empty", func(v *vars) ref.Val { return (*labels)(v) }},
	{"endpoint.role", cel.StringType, "value of the role label, empty if absent", func(v *vars) ref.Val { return v.label(endpoint.LabelRole) }},
	{"endpoint.engine", cel.StringType, "vllm, sglang, trtllm-serve or triton-tensorrt-llm, by the engine-type label; else unknown", func(v *vars) ref.Val { return text(v.at.Engine.String()) }},
	{"load.inflight", cel.IntType, "requests in flight, of all replicas", func(v *vars) ref.Val { return types.Int(v.at.Load.Requests) }},
	{"load.inflight_tokens", cel.IntType, "prompt tokens in flight that are not computed yet", func(v *vars) ref.Val { return types.Int(v.at.Load.Prefill) }},
	{"load.waiting", cel.IntType, "waiting requests, by the engine's last sample", func(v *vars) ref.Val { return types.Int(v.at.Waiting) }},
	{"load.running", cel.IntType, "running requests, by the engine's last sample", func(v *vars) ref.Val { return types.Int(v.at.Running) }},
	{"load.kv_usage", cel.DoubleType, "used share of the KV cache, 0 to 1", func(v *vars) ref.Val { return types.Double(v.at.KVUse) }},
	{"load.gauges", numberMap, "custom gauges of the engine by name; one without a value is not in the map", func(v *vars) ref.Val { return (*gauges)(v) }},
	{"prefix.cached_tokens", cel.IntType, "tokens of the prompt that the endpoint holds, weighted by tier", func(v *vars) ref.Val { return types.Int(v.c.Held(v.k)) }},
	{"prefix.ratio", cel.DoubleType, "their share of the prompt, 0 to 1", func(v *vars) ref.Val { return types.Double(v.ratio()) }},
}

// index finds a variable by name.
var index = func() map[string]*variable {
	m := make(map[string]*variable, len(variables))
	for i := range variables {
		m[variables[i].name] = &variables[i]
	}
	return m
}()

// names returns all names.
func names() []string {
	out := make([]string, len(variables))
	for i, v := range variables {
		out[i] = v.name
	}
	return out
}

// longest is the largest length of a value in bytes. Longer ones count as empty, so that the cost of
// an evaluation is bounded.
const longest = 1024

func text(s string) types.String {
	if len(s) > longest {
		return ""
	}
	return types.String(s)
}

// vars are the variables of one evaluation: of candidate k of c. It implements the activation of CEL programs.
type vars struct {
	c  *cycle.Cycle
	k  int
	at *cycle.View
}

func (v *vars) set(k int) { v.k, v.at = k, v.c.At(k) }

// ResolveName returns the value of a variable.
func (v *vars) ResolveName(name string) (any, bool) {
	known := index[name]
	if known == nil {
		return nil, false
	}
	return known.value(v), true
}

// Parent returns nil: there is no other scope.
func (v *vars) Parent() cel.Activation { return nil }

func (v *vars) label(name string) types.String {
	value, _ := v.at.Label(name)
	return text(value)
}

func (v *vars) header(name string) types.String {
	if v.c.Request.Headers == nil {
		return ""
	}
	return text(v.c.Request.Headers.Get(name))
}

func (v *vars) ratio() float64 {
	return min(v.c.Held(v.k)/float64(max(v.c.Request.InputTokens, 1)), 1)
}

// namesNear returns the closest of the names that start as word does.
func namesNear(word string) []string {
	group, _, _ := strings.Cut(word, ".")
	near := slices.DeleteFunc(names(), func(n string) bool { return !strings.HasPrefix(n, group+".") })
	if len(near) == 0 {
		return names()
	}
	return near
}
