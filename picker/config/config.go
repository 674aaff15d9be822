package config

import (
	"os"
	"time"

	"github.com/grapevine-epp/grapevine/internal/strict"
	"github.com/grapevine-epp/grapevine/picker"
	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/plugin"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// Names of the format.
const (
	groupGateway = "inference.networking.x-k8s.io/v1alpha1"
	groupLLMD    = "llm-d.ai/v1alpha1"
	groupStable  = "llm-d.ai/v1" // has the sharing settings elsewhere; all versions accept both places
	kindName     = "EndpointPickerConfig"

	defaultProfile  = "default"
	defaultScorer   = "predicted-ttft-scorer"
	defaultPicker   = "max-score-picker"
	defaultHandler  = "single-profile-handler"
	defaultDetector = "utilization-detector"
	defaultFairness = "global-strict-fairness-policy"
	defaultOrdering = "fcfs-ordering-policy"
	gateFlowControl = "flowControl"
)

// Problem is one error in a file.
type Problem = strict.Problem

// Options limit the files and types that a configuration may refer to.
type Options struct {
	// Table has the plugin types; nil means plugins.Builtin(), which lacks prefill/decode
	// handlers (pd.Table has them).
	Table plugin.Table
}

// Config is a validated file with its plugins.
type Config struct {
	File     string
	Rules    *picker.Rules
	Profiles []*cycle.Profile

	// Detector determines saturation, for admission and queues.
	Detector     plugin.Detector
	DetectorName string
	// GaugeAge is the age above which the detector ignores an engine's gauges; 0 if unspecified.
	// Gauges must be read more often.
	GaugeAge time.Duration

	// Metrics configure reading engines' metrics pages.
	Metrics Metrics

	// ReportServed enables the response header in which gateways' conformance tests expect the
	// endpoint.
	ReportServed bool

	// Trust determines whose intent headers count; nil means all clients'.
	Trust *request.Trust

	Producer  plugin.Producer       // merged settings for the index and sessions
	Discovery *plugin.FileDiscovery // nil: not in the file
	Flow      *Flow                 // nil: requests are not queued
	Gates     map[string]bool       // as in the file

	// Sandboxes are the plugins that run code in another language.
	Sandboxes []Sandbox

	// Notes are about parts that are accepted but work differently here.
	Notes []Problem

	effective effective
}

// Sandbox is the code that a plugin runs, with the plugin's name.
type Sandbox struct {
	Name string
	plugin.Sandbox
}

// Continue adds the counts of old's sandboxes to those with the same names. It must be called before c
// is used. old may be nil.
func (c *Config) Continue(old *Config) {
	if old == nil || old == c {
		return
	}
	for _, s := range c.Sandboxes {
		for _, o := range old.Sandboxes {
			if o.Name == s.Name {
				s.Sandbox.Continue(o.Sandbox)
			}
		}
	}
}

// Load reads the file at path.
func Load(path string, o Options) (*Config, []Problem) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, []Problem{{File: path, Message: cause(err)}}
	}
	return Parse(path, data, o)
}

// Parse parses a file; name is for problems. With any problem the Config is nil.
func Parse(name string, data []byte, o Options) (*Config, []Problem) {
	root, report := strict.Parse(name, data)
	if !root.Found() {
		return nil, report.Problems()
	}
	b := newBuilder(name, report, o)
	b.document(root)
	if report.Len() > 0 {
		return nil, report.Problems()
	}
	return b.config(), nil
}

// Default returns the configuration without a file: one profile with the predicted-ttft-scorer and
// the max-score picker.
func Default(o Options) *Config {
	c, problems := Parse("default", []byte("apiVersion: "+groupGateway+"\nkind: "+kindName+"\n"), o)
	if len(problems) > 0 {
		panic("config: the default has problems: " + problems[0].String())
	}
	return c
}
