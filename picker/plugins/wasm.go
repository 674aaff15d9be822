package plugins

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/grapevine-epp/grapevine/internal/budget"
	"github.com/grapevine-epp/grapevine/internal/sandbox"
	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/plugin"
	"github.com/grapevine-epp/grapevine/picker/plugins/expression"
)

// moduleParams are the parameters of all types whose rule is a WebAssembly module.
type moduleParams struct {
	File    string   `json:"file"`
	SHA256  string   `json:"sha256,omitempty"`
	Config  string   `json:"config,omitempty"`
	Headers []string `json:"headers,omitempty"`
	Labels  []string `json:"labels,omitempty"`

	MemoryLimit     string `json:"memoryLimit"`
	MaxInstructions int64  `json:"maxInstructions"`
}

type wasmScorerParams struct {
	moduleParams
	Normalize bool    `json:"normalize"`
	OnError   float64 `json:"onError"`
}

type wasmFilterParams struct {
	moduleParams
	OnError         string `json:"onError"`
	FallbackOnEmpty bool   `json:"fallbackOnEmpty"`
}

// Values of onError of filters.
const (
	onErrorKeep = "keep"
	onErrorDrop = "drop"
)

var moduleDefaults = moduleParams{MemoryLimit: "32Mi", MaxInstructions: 10_000_000}

// Limits on parameters.
const (
	leastMemory      = 64 << 10
	mostMemory       = 1 << 30
	mostInstructions = 1_000_000_000
)

func newWasmScorer(params *plugin.Params) (plugin.Plugin, error) {
	p := wasmScorerParams{moduleParams: moduleDefaults}
	m, err := openModule(params, &p, &p.moduleParams, false,
		func() error {
			return plugin.Require(p.OnError >= 0 && p.OnError <= 1, "onError", "must be from 0 to 1")
		})
	if err != nil {
		return plugin.Plugin{}, err
	}
	return m.plugin(plugin.Plugin{Scorer: wasmScorer{m, p.Normalize, p.OnError}}), nil
}

func newWasmFilter(params *plugin.Params) (plugin.Plugin, error) {
	p := wasmFilterParams{moduleParams: moduleDefaults, OnError: onErrorKeep}
	m, err := openModule(params, &p, &p.moduleParams, true,
		func() error {
			return plugin.Require(p.OnError == onErrorKeep || p.OnError == onErrorDrop, "onError", "must be keep or drop")
		})
	if err != nil {
		return plugin.Plugin{}, err
	}
	return m.plugin(plugin.Plugin{Filter: wasmFilter{m, p.OnError == onErrorKeep, p.FallbackOnEmpty}}), nil
}

// openModule reads the parameters into all, of which p is a part, and opens the module.
func openModule(params *plugin.Params, all any, p *moduleParams, filter bool, more func() error) (*wasmModule, error) {
	unread := params.Read(all)
	memory, sizeErr := budget.ParseSize(p.MemoryLimit)
	err := plugin.Faults(more(),
		plugin.Require(p.File != "", "file", "is required"),
		plugin.Require(sizeErr == nil && memory >= leastMemory && memory <= mostMemory, "memoryLimit", "must be a size from 64Ki to 1Gi"),
		plugin.Require(p.MaxInstructions > 0 && p.MaxInstructions <= mostInstructions, "maxInstructions", "must be from 1 to 1000000000"))
	if err = errors.Join(unread, err); err != nil {
		return nil, err
	}
	folder := ""
	if params != nil {
		folder = params.Folder
	}
	code, err := readModule(folder, p)
	if err != nil {
		return nil, err
	}
	module, err := sandbox.Open(sandbox.Options{Code: code, Filter: filter, Config: p.Config, Memory: memory, Steps: p.MaxInstructions})
	var refused *sandbox.ConfigError
	switch {
	case errors.As(err, &refused):
		return nil, &plugin.ParamError{Field: "config", Message: "is refused by the module: " + refused.Message}
	case err != nil:
		return nil, &plugin.ParamError{Field: "file", Message: fmt.Sprintf("names a module that cannot be used, %s: %v", p.File, err)}
	}
	m := &wasmModule{module: module}
	return m, m.bind(p)
}

// readModule reads and verifies the file. It sets the checksum, so that it is part of the effective
// configuration.
func readModule(folder string, p *moduleParams) ([]byte, error) {
	path := p.File
	if !filepath.IsAbs(path) {
		path = filepath.Join(folder, path)
	}
	code, err := readAtMost(path, sandbox.MaxModule)
	if err != nil {
		return nil, &plugin.ParamError{Field: "file", Message: "cannot be read: " + err.Error()}
	}
	sum := sha256.Sum256(code)
	actual := hex.EncodeToString(sum[:])
	if p.SHA256 != "" && !strings.EqualFold(p.SHA256, actual) {
		return nil, &plugin.ParamError{Field: "sha256", Message: fmt.Sprintf("is not the checksum of %s, which is %s", p.File, actual)}
	}
	p.SHA256 = actual
	return code, nil
}

func readAtMost(path string, most int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	data, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(data)) > most {
		err = fmt.Errorf("%s has more than %d MiB", path, most>>20)
	}
	return data, err
}

// wasmModule is a module with the facts that it reads.
type wasmModule struct {
	module   *sandbox.Module
	request  []expression.Fact
	endpoint []expression.Fact
}

// bind finds the facts that the module names. Headers and labels need to be in the configuration.
func (m *wasmModule) bind(p *moduleParams) error {
	for _, name := range m.module.Facts() {
		f, err := expression.ParseFact(name)
		if err != nil {
			bad := &plugin.ParamError{Field: "file", Message: fmt.Sprintf("names a module that cannot be used, %s: %v", p.File, err)}
			var e *expression.Error
			if errors.As(err, &e) {
				bad.Hint = e.Hint
			}
			return bad
		}
		for _, list := range []struct {
			fact, field string
			names       []string
		}{{"request.headers", "headers", p.Headers}, {"endpoint.labels", "labels", p.Labels}} {
			if f.Name() == list.fact && !slices.ContainsFunc(list.names, func(s string) bool { return strings.EqualFold(s, f.Key) }) {
				return &plugin.ParamError{Field: list.field, Message: fmt.Sprintf("must list %s, which the module reads", f.Key)}
			}
		}
		if f.OfRequest() {
			m.request = append(m.request, f)
		} else {
			m.endpoint = append(m.endpoint, f)
		}
	}
	m.module.SetShape(len(m.request), len(m.endpoint))
	return nil
}

// plugin adds what the module is to a plugin.
func (m *wasmModule) plugin(p plugin.Plugin) plugin.Plugin {
	p.Sandbox = m
	for _, f := range m.endpoint {
		if f.Name() == "load.gauges" {
			p.Gauges = append(p.Gauges, f.Key)
		}
	}
	return p
}

// Report implements plugin.Sandbox.
func (m *wasmModule) Report() plugin.SandboxReport {
	s := m.module.Stats()
	r := plugin.SandboxReport{Calls: s.Calls, Failures: map[string]uint64{}, Seconds: s.Seconds, Buckets: map[float64]uint64{}, PausedUntil: s.Paused}
	for reason := sandbox.OK + 1; reason < sandbox.NumReasons; reason++ {
		r.Failures[reason.String()] = s.Failed[reason]
	}
	sum := uint64(0)
	for i, n := range s.Buckets {
		sum += n
		r.Buckets[sandbox.Bounds[i]] = sum
	}
	if f := s.Last; f != nil {
		r.LastFailure, r.FailedAt = f.Reason.String()+": "+f.Message, f.At
	}
	return r
}

// Continue implements plugin.Sandbox.
func (m *wasmModule) Continue(old plugin.Sandbox) {
	if o, ok := old.(*wasmModule); ok && o != m {
		m.module.Continue(o.module.Stats())
	}
}

// wasmSource writes the facts of one decision for a module.
type wasmSource struct {
	m        *wasmModule
	facts    expression.Facts
	verdicts []byte
}

var wasmSources = sync.Pool{New: func() any { return new(wasmSource) }}

func (m *wasmModule) source(c *cycle.Cycle) *wasmSource {
	s := wasmSources.Get().(*wasmSource)
	s.m = m
	s.facts.Reset(c)
	return s
}

func (s *wasmSource) free() {
	s.m = nil
	s.facts.Reset(nil)
	wasmSources.Put(s)
}

// WriteRequest implements sandbox.Source.
func (s *wasmSource) WriteRequest(w *sandbox.Writer) { s.write(w, s.m.request) }

// WriteEndpoint implements sandbox.Source.
func (s *wasmSource) WriteEndpoint(k int, w *sandbox.Writer) {
	s.facts.At(k)
	s.write(w, s.m.endpoint)
}

func (s *wasmSource) write(w *sandbox.Writer, facts []expression.Fact) {
	for _, f := range facts {
		if f.IsText() {
			w.Text(s.facts.Text(f))
		} else {
			w.Number(s.facts.Number(f))
		}
	}
}

type wasmScorer struct {
	*wasmModule
	normalize bool
	onError   float64
}

// Score implements cycle.Scorer.
func (s wasmScorer) Score(c *cycle.Cycle, scores []float64) {
	src := s.source(c)
	s.module.Score(c.Now, src, scores)
	src.free()
	expression.Scale(scores, s.normalize, s.onError)
}

type wasmFilter struct {
	*wasmModule
	keepOnError bool
	soft        bool
}

// Filter implements cycle.Filter.
func (f wasmFilter) Filter(c *cycle.Cycle, keep []bool) {
	src := f.source(c)
	src.verdicts = slices.Grow(src.verdicts[:0], len(keep))[:len(keep)]
	f.module.Filter(c.Now, src, src.verdicts)
	for k, v := range src.verdicts {
		keep[k] = v == sandbox.Keep || v == sandbox.Unknown && f.keepOnError
	}
	src.free()
	if f.soft {
		cycle.KeepAllIfNone(keep)
	}
}
