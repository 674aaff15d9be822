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

// variable is one name that expressions can use. One of the four functions is set.
type variable struct {
	name    string
	typ     *cel.Type
	meaning string
	text    func(v *vars) string
	number  func(v *vars) float64 // of integers and booleans, too
	texts   func(v *vars, key string) string
	numbers func(v *vars, key string) (float64, bool)
}

var (
	stringMap = cel.MapType(cel.StringType, cel.StringType)
	numberMap = cel.MapType(cel.StringType, cel.DoubleType)
)

func texts(name, meaning string, f func(*vars) string) variable {
	return variable{name: name, typ: cel.StringType, meaning: meaning, text: f}
}

func integers(name, meaning string, f func(*vars) float64) variable {
	return variable{name: name, typ: cel.IntType, meaning: meaning, number: f}
}

func doubles(name, meaning string, f func(*vars) float64) variable {
	return variable{name: name, typ: cel.DoubleType, meaning: meaning, number: f}
}

// variables are all names, as the manual lists them.
var variables = []variable{
	texts("request.model", "model, as the client sent it", func(v *vars) string { return v.c.Request.Model }),
	texts("request.adapter", "LoRA adapter, empty for a base model", func(v *vars) string { return v.c.Request.Adapter }),
	texts("request.path", "path without query", func(v *vars) string { return v.c.Request.Path }),
	{name: "request.headers", typ: stringMap, meaning: "headers by lower-case name; an absent one is empty", texts: (*vars).header},
	integers("request.priority", "priority of the objective", func(v *vars) float64 { return float64(v.c.Request.Priority) }),
	texts("request.fairness_id", "fairness ID, empty if absent", func(v *vars) string { return v.c.Request.FairnessID }),
	texts("request.session", "session key, empty if absent", func(v *vars) string { return v.c.Request.Session }),
	integers("request.prompt_tokens", "tokens of the prompt, estimated unless token IDs are sent", func(v *vars) float64 { return float64(v.c.Request.InputTokens) }),
	integers("request.max_tokens", "the client's limit of generated tokens, 0 if absent", func(v *vars) float64 { return float64(v.c.Request.MaxTokens) }),
	{name: "request.stream", typ: cel.BoolType, meaning: "whether the answer is streamed", number: (*vars).stream},
	texts("endpoint.name", "name, in Kubernetes the pod's", func(v *vars) string { return v.at.Name }),
	texts("endpoint.address", "ip:port", func(v *vars) string { return v.at.Address }),
	{name: "endpoint.labels", typ: stringMap, meaning: "labels; an absent one is empty", texts: (*vars).label},
	texts("endpoint.role", "value of the role label, empty if absent", func(v *vars) string { return v.label(endpoint.LabelRole) }),
	texts("endpoint.engine", "vllm, sglang, trtllm-serve or triton-tensorrt-llm, by the engine-type label; else unknown", func(v *vars) string { return v.at.Engine.String() }),
	integers("load.inflight", "requests in flight, of all replicas", func(v *vars) float64 { return float64(v.at.Load.Requests) }),
	integers("load.inflight_tokens", "prompt tokens in flight that are not computed yet", func(v *vars) float64 { return float64(v.at.Load.Prefill) }),
	integers("load.waiting", "waiting requests, by the engine's last sample", func(v *vars) float64 { return float64(v.at.Waiting) }),
	integers("load.running", "running requests, by the engine's last sample", func(v *vars) float64 { return float64(v.at.Running) }),
	doubles("load.kv_usage", "used share of the KV cache, 0 to 1", func(v *vars) float64 { return v.at.KVUse }),
	{name: "load.gauges", typ: numberMap, meaning: "custom gauges of the engine by name; one without a value is not in the map", numbers: (*vars).gauge},
	integers("prefix.cached_tokens", "tokens of the prompt that the endpoint holds, weighted by tier", func(v *vars) float64 { return v.c.Held(v.k) }),
	doubles("prefix.ratio", "their share of the prompt, 0 to 1", (*vars).ratio),
	doubles("latency.wait", "predicted seconds until the endpoint's queue is done", (*vars).wait),
	doubles("latency.ttft", "predicted seconds to the first token, by the learned cost of the endpoint", (*vars).ttft),
}

// value returns the variable's value for expressions.
func (x *variable) value(v *vars) ref.Val {
	switch x.typ {
	case cel.StringType:
		return types.String(text(x.text(v)))
	case cel.IntType:
		return types.Int(x.number(v))
	case cel.DoubleType:
		return types.Double(x.number(v))
	case cel.BoolType:
		return types.Bool(x.number(v) != 0)
	case numberMap:
		return (*gauges)(v)
	}
	if x.name == "request.headers" {
		return (*headers)(v)
	}
	return (*labels)(v)
}

// index finds a variable by name.
var index = func() map[string]*variable {
	m := make(map[string]*variable, len(variables))
	for i := range variables {
		m[variables[i].name] = &variables[i]
	}
	return m
}()

// Names returns the names that expressions and modules can use.
func Names() []string {
	out := make([]string, len(variables))
	for i, v := range variables {
		out[i] = v.name
	}
	return out
}

// longest is the largest length of a value in bytes. Longer ones count as empty, so that the cost of
// an evaluation is bounded.
const longest = 1024

func text(s string) string {
	if len(s) > longest {
		return ""
	}
	return s
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

func (v *vars) label(name string) string {
	value, _ := v.at.Label(name)
	return value
}

func (v *vars) header(name string) string {
	if v.c.Request.Headers == nil {
		return ""
	}
	return v.c.Request.Headers.Get(name)
}

func (v *vars) gauge(name string) (float64, bool) {
	value, ok := v.at.Custom[name]
	return value, ok
}

func (v *vars) stream() float64 {
	if v.c.Request.Stream {
		return 1
	}
	return 0
}

func (v *vars) ratio() float64 {
	return min(v.c.Held(v.k)/float64(max(v.c.Request.InputTokens, 1)), 1)
}

func (v *vars) wait() float64 {
	r := v.at.Rank()
	return r.Cost.Wait(&r.Load, v.c.Now)
}

func (v *vars) ttft() float64 {
	r := v.at.Rank()
	return r.Cost.Wait(&r.Load, v.c.Now) + r.Cost.Prefill(v.c.Work(v.k)) + r.Cost.Base
}

// namesNear returns the closest of the names that start as word does.
func namesNear(word string) []string {
	group, _, _ := strings.Cut(word, ".")
	near := slices.DeleteFunc(Names(), func(n string) bool { return !strings.HasPrefix(n, group+".") })
	if len(near) == 0 {
		return Names()
	}
	return near
}
